"""Test whether this machine can isolate programs: `python -m reward_fns.sandbox.probe`.

With `--attack` it runs all attacks of docs/security.md on the judge, and the honest programs that it must not fail:

    python -m reward_fns.sandbox.probe --attack [--sandbox bwrap|e2b] [--json FILE] [--only TEXT]

Exit code 0 if nothing was reached, 1 if an attack succeeded or an honest program failed, 2 if programs cannot be run.
"""

import argparse
import sys
from pathlib import Path

from reward_fns.sandbox import SandboxError
from reward_fns.sandbox.launchers import memory_keeper
from reward_fns.sandbox.local import LocalSandbox

_BACKENDS = {"bwrap": "local", "e2b": "e2b"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reward_fns.sandbox.probe", description=__doc__.partition("\n")[0])
    parser.add_argument("--attack", action="store_true", help="run all attacks and honest programs (minutes)")
    parser.add_argument("--sandbox", choices=_BACKENDS, default="bwrap", help="what to attack (default: bwrap)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result to FILE")
    parser.add_argument("--only", metavar="TEXT", action="append", help="only names or families with TEXT; repeatable")
    options = parser.parse_args(arguments)
    try:
        if options.sandbox == "bwrap":
            LocalSandbox().prepare()
            print("programs are isolated on this machine")
            print(f"memory limits are kept by {memory_keeper()}", flush=True)
        return attack(options.sandbox, options.json, options.only or [""]) if options.attack else 0
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 2


def attack(sandbox: str, result: Path | None, only: list[str]) -> int:
    from reward_fns.sandbox.attacks import ATTACKS, HONEST
    from reward_fns.sandbox.attacks.suite import AttackSuite, report

    attacks = [one for one in ATTACKS if any(text in f"{one.family}: {one.name}" for text in only)]
    honest = [one for one in HONEST if any(text in f"honest: {one.name}" for text in only)]
    print(f"running {len(attacks)} attacks and {len(honest)} honest programs", flush=True)
    outcome = AttackSuite(_BACKENDS[sandbox], measured=sandbox == "bwrap").run(attacks, honest)
    if result is not None:
        result.write_text(outcome.as_json(), encoding="utf-8")
    print(report(outcome))
    return 1 if outcome.holes else 0


if __name__ == "__main__":
    sys.exit(main())
