"""Test whether this machine can isolate programs: `python -m reward_fns.sandbox.probe`."""

from reward_fns.sandbox.local import LocalSandbox

if __name__ == "__main__":
    LocalSandbox().prepare()
    print("programs are isolated on this machine")
