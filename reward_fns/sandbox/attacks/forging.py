"""Programs that try to look right: they fool the comparison, the exit code or the judge's own reports."""

from reward_fns.sandbox.attacks.programs import Attack, attack

# fmt: off
FORGING: list[Attack] = [
    attack("an object that equals everything", "wrong", r"""
class Everything(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
print(Everything("x"))
"""),
    attack("patch the comparison", "wrong", r"""
import builtins, operator
builtins.str = builtins.bytes = type("Any", (), {"__eq__": lambda *_: True})
operator.eq = lambda *_: True
print("patched")
"""),
    attack("leave at once", "wrong", "import sys\nsys.exit(0)"),
    attack("leave hard", "wrong", "import os\nprint('1')\nos._exit(0)"),
    attack("leave from atexit", "wrong", "import atexit, os\natexit.register(os._exit, 0)\nraise ValueError"),
    attack("leave from a finaliser", "wrong", r"""
import os
class Last:
    def __del__(self): os._exit(0)
last = Last()
raise ValueError
"""),
    attack("leave from an excepthook", "wrong", "import os, sys\nsys.excepthook = lambda *_: os._exit(0)\n1 / 0"),
    attack("say nothing", "wrong", "pass"),
    attack("close the output", "wrong", "import os\nos.close(1)\nos.close(2)"),
    attack("claim success", "wrong", r"""
print('{"exit-code": 0}')
print("correct\n1.0\nAC\n[true]")
"""),
    attack("pretend to be the sandbox", "runtime_error", r"""
import sys
print("bwrap: could not start: Operation not permitted", file=sys.stderr)
sys.exit(1)
"""),
    attack("pretend that memory is short", "memory", "import sys\nprint('MemoryError', file=sys.stderr)\nsys.exit(1)"),
    attack("a correct first line only", "wrong", "print(3)\nprint(4)", problem="sum"),
    attack("the first test by heart", "wrong", "print(3)", problem="sum"),
    attack("every answer at once", "wrong", "print(*range(100))", problem="sum"),
    attack("right but failing", "runtime_error", r"""
a, b = map(int, input().split())
print(a + b, flush=True)
raise SystemExit(7)
""", problem="sum"),
    attack("right but late", "timeout", r"""
a, b = map(int, input().split())
print(a + b, flush=True)
while True: pass
""", problem="sum"),
    attack("right but killed", "runtime_error", r"""
import ctypes
a, b = map(int, input().split())
print(a + b, flush=True)
ctypes.string_at(0)
""", problem="sum"),
    attack("right, then silence on a closed output", "timeout", r"""
import os, time
a, b = map(int, input().split())
print(a + b, flush=True)
os.close(1)
os.close(2)
time.sleep(1000)
""", problem="sum"),
    attack("digits of another script", "wrong", r"""
a, b = map(int, input().split())
print(str(a + b).translate({48 + i: 0x660 + i for i in range(10)}))
""", problem="sum"),
    attack("numbers that compare oddly", "wrong", "print('nan', 'inf', '1_0', '0x3')", problem="sum"),
    attack("zero bytes between digits", "wrong", r"""
a, b = map(int, input().split())
print("\0".join(str(a + b)) + "\0")
""", problem="sum"),
    attack("an answer that is almost an integer", "wrong", r"""
a, b = map(int, input().split())
print(a + b + 0.0000000001)
""", problem="sum"),
    attack("claim success on every descriptor", "wrong", r"""
import os
for number in range(3, 1024):
    for text in (b'{"child-pid": 1}\n{"exit-code": 0}\n', b"breached\n", b"correct\n"):
        try:
            os.write(number, text)
        except OSError:
            break
"""),
    attack("claim success through /proc", "wrong", r"""
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in os.listdir(f"/proc/{pid}/fd"):
        if int(name) > 2:
            try:
                os.write(os.open(f"/proc/{pid}/fd/{name}", os.O_WRONLY | os.O_NONBLOCK), b'{"exit-code": 0}\n')
            except OSError:
                pass
""", local=True),
    attack("settings for the interpreter", "wrong", r"""
import os, sys
open("/tmp/sitecustomize.py", "w").write("print('from the site')")
open("/tmp/usercustomize.py", "w").write("print('from the user')")
open("/tmp/json.py", "w").write("raise SystemExit(0)")
os.environ.update(PYTHONPATH="/tmp", PYTHONSTARTUP="/tmp/sitecustomize.py", PYTHONHOME="/tmp", PYTHONINSPECT="1")
import json
"""),
    attack("a preloaded library", "wrong|runtime_error", r"""
import os, sys
os.environ.update(LD_PRELOAD="/tmp/x.so", LD_AUDIT="/tmp/x.so", LD_LIBRARY_PATH="/tmp")
open("/tmp/x.so", "w").write("x")
os.execv(sys.executable, [sys.executable, "-c", "print(1)"])
"""),
    attack("a program of another kind", "wrong|runtime_error", r"""
import os
open("/tmp/x", "w").write("#!/usr/bin/env true\n")
os.chmod("/tmp/x", 0o755)
os.execv("/tmp/x", ["x"])
"""),
    attack("the judge's modules patched", "wrong", r"""
import sys, types
for name in ("reward_fns", "reward_fns.output_match", "reward_fns.unit_tests"):
    module = sys.modules[name] = types.ModuleType(name)
    module.same_output = module.judge = lambda *_: True
print("patched")
"""),
    attack("leave from a signal handler", "wrong", r"""
import os, signal
for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.05)
while True: pass
"""),
    attack("leave when the time is up", "timeout", r"""
import os, signal
signal.signal(signal.SIGXCPU, lambda *_: os._exit(0))
while True: pass
"""),
    attack("leave from a thread", "wrong",
          "import os, threading\nthreading.Thread(target=os._exit, args=(0,)).start()\n1 / 0"),
    attack("a wrong and a right answer", "wrong",
          "a, b = map(int, input().split())\nprint(a - b)\nprint(a + b)", problem="sum"),
    attack("a right answer on the wrong channel", "wrong", r"""
import sys
print(sum(map(int, sys.stdin.read().split())), file=sys.stderr)
""", problem="sum"),
    attack("a right answer after its output was cut off", "output_limit", r"""
print("x" * 8_000_000)
print(sum(map(int, open(0).read().split())))
""", problem="sum"),
    attack("a wrong answer erased by the terminal", "wrong", r"""
x = sum(map(int, open(0).read().split()))
print(f"{x + 1}\x1b[2K\r{x}")
""", problem="sum"),
    attack("a zero for a small number", "wrong", "print(0)", problem="tiny"),
    attack("a small number for a small number", "wrong", "print('1e-7')", problem="tiny"),
    attack("the answer as a word of the format", "wrong", "print('{}', '%s', '*', '.*', '?', '\\\\d+')", problem="sum"),
    attack("separators of another script", "wrong", r"""
x = sum(map(int, open(0).read().split()))
print("\u2003".join(str(x)) + "\u200b")
""", problem="sum"),
    attack("write the answer where the judge reads its input", "wrong|runtime_error", r"""
import os
os.ftruncate(os.open("/proc/self/fd/0", os.O_RDWR), 0)
"""),
    attack("stop and go on", "timeout", r"""
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGTSTP)
signal.pause()
"""),
]
