"""Programs that want the judge to fail: odd names, odd bytes, odd sizes. No program may cause such a failure."""

from reward_fns.sandbox.attacks.programs import CALLS, SOLVE, Attack, attack

_WAIT = "\nimport time\ntime.sleep(0.3)\n"

# fmt: off
CRASHING: list[Attack] = [
    attack("a name that is not text", "wrong|runtime_error",
          "open('/proc/self/comm', 'wb').write(b'\\xff')" + _WAIT),
    attack("a name of line ends", "wrong|runtime_error",
          "open('/proc/self/comm', 'wb').write(b'\\nVmHWM:\\n 1')" + _WAIT),
    attack("a name of brackets", "wrong|runtime_error", "open('/proc/self/comm', 'wb').write(b') R 1 1 1 1')" + _WAIT),
    attack("a thread with a name that is not text", "wrong|runtime_error", r"""
import threading, time
def name():
    open("/proc/thread-self/comm", "wb").write(b"\xff\xfe)")
    time.sleep(0.3)
thread = threading.Thread(target=name)
thread.start()
thread.join()
"""),
    attack("hide from the judge", "timeout", CALLS + r"""
libc.prctl(4, 0, 0, 0, 0)
libc.prctl(15, b"judge", 0, 0, 0)
while True: pass
"""),
    attack("hide and leave", "wrong", CALLS + "libc.prctl(4, 0, 0, 0, 0)" + _WAIT),
    attack("a name that reads like a statistic", "timeout", CALLS + r"""
libc.prctl(15, b"VmHWM: 9) R 0 1", 0, 0, 0)
while True: pass
"""),
    attack("lock its own folder", "wrong|runtime_error", "import os\nos.chdir('/')\nos.chmod('/tmp', 0)" + _WAIT),
    attack("folders without end", "wrong", r"""
import os
for _ in range(3000):
    os.mkdir("x" * 200)
    os.chdir("x" * 200)
"""),
    attack("bytes that are no text", "wrong", "import os\nos.write(1, bytes(range(256)) * 100)"),
    attack("half a character", "wrong", "import os\nos.write(1, b'\\xf0\\x9f')\nos.write(2, b'\\xf0\\x9f')"),
    attack("zero bytes", "wrong", "import os\nos.write(1, bytes(100000))"),
    attack("one line of a megabyte", "wrong", "print('9' * 1_000_000)"),
    attack("a hundred thousand tokens", "wrong", "print('1 ' * 100_000)"),
    attack("terminal commands", "wrong", "print('\\x1b[2J\\x1b]0;x\\x07\\x1b[1A\\x1b[2K3')", problem="sum"),
    attack("numbers too large to read", "wrong",
          "print('1e999999999', '9' * 5000 + '.0', '1e-999999999')", problem="divide"),
    attack("brackets without end", "wrong", "print('[' * 200_000)"),
    attack("errors that are no text", "runtime_error", "import os\nos.write(2, b'\\xff' * 5000)\nos._exit(3)"),
    attack("errors that name the judge's files", "runtime_error",
          "import sys\nprint('bwrap: setpriv: unshare: {\"exit-code\": 0}', file=sys.stderr)\nsys.exit(255)"),
    attack("a source with zero bytes", "compile_error|runtime_error|wrong", "print(1)\n\0\nprint(2)"),
    attack("a source with half a surrogate", "wrong|compile_error|runtime_error", "print('\ud800')"),
    attack("a source that is not indented", "compile_error", "if True:\nprint(1)"),
    attack("a source of a megabyte", "wrong|memory", "x = 1\n" * 170_000),
    attack("a source that the parser chokes on", "compile_error", "x = " + "(" * 5000 + ")" * 5000),
    attack("a source that nests without end", "compile_error|runtime_error|timeout|memory", "-" * 100_000 + "1"),
    attack("a source with another encoding", "compile_error|runtime_error", "# -*- coding: utf-7 -*-\nprint(1)\n+AG8-"),
    *(attack(f"end by signal {number}", "runtime_error", f"""
import ctypes, os, signal
signal.signal({number}, signal.SIG_DFL)
print(3, flush=True)
os.abort() if {number} == 6 else signal.raise_signal({number})
ctypes.string_at(0)  # the first process of a namespace does not get the signals that it sends itself
""", problem="one_sum") for number in (4, 6, 8, 11, 31)),
    attack("close everything and wait", "timeout", "import os, time\nos.closerange(0, 64)\ntime.sleep(1000)"),
    attack("make the pipes block", "correct|runtime_error", r"""
import fcntl, os
for number in (0, 1, 2):
    for flag in (os.O_NONBLOCK, os.O_APPEND, os.O_ASYNC, os.O_DIRECT):
        try:
            fcntl.fcntl(number, fcntl.F_SETFL, flag)
        except OSError:
            pass
fcntl.fcntl(1, 1031, 4096)
""" + SOLVE, problem="sum", solves=True),
    attack("one byte per packet", "output_limit|timeout|wrong", r"""
import fcntl, os
fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)
while True:
    os.write(1, b"x")
""", cpu=1.0),
    attack("one byte at a time", "output_limit|timeout", "import os\nwhile True:\n    os.write(1, b'x')", cpu=1.0),
    attack("read its own output", "wrong|timeout", r"""
import os
print("x" * 1000, flush=True)
os.set_blocking(os.open("/proc/self/fd/1", os.O_RDONLY), False)
"""),
    attack("steal its output back while the judge waits", "timeout", r"""
import os
reader = os.open("/proc/self/fd/1", os.O_RDWR)
while True:
    os.write(1, b"y")
    os.read(reader, 1)
"""),
]
