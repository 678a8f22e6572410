"""Programs that run longer than they may, or that are still there when their test is over."""

from reward_fns.sandbox.attacks.programs import CALLS, Attack, attack, breach

# fmt: off
WAITING: list[Attack] = [
    attack("sleep", "timeout", "import time\ntime.sleep(1000)"),
    attack("wait for a signal", "timeout", "import signal\nwhile True:\n    signal.pause()"),
    attack("spin", "timeout", "while True: pass"),
    attack("spin deaf to signals", "timeout", r"""
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True: pass
"""),
    attack("spin on many threads", "timeout", r"""
import threading
def spin():
    while True: pass
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
spin()
"""),
    attack("stop itself", "timeout", "import os, signal, time\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(1000)"),
    attack("wait for more input", "timeout",
          "import sys, time\nsys.stdin.read()\nwhile not sys.stdin.read(): time.sleep(0.1)"),
    attack("a deadlock", "timeout", "import threading\nx = threading.Lock()\nx.acquire()\nx.acquire()"),
    attack("hold a slot with the lowest priority", "timeout|runtime_error", r"""
import os
try:
    open("/proc/self/autogroup", "w").write("19")
except OSError:
    pass
os.nice(19)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    os.sched_yield()
""", alone=True, busy=True),
    attack("wait for a core on purpose", "timeout|runtime_error", r"""
import os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
for _ in range(8):
    threading.Thread(target=lambda: [os.sched_yield() for _ in iter(int, 1)], daemon=True).start()
time.sleep(1000)
""", alone=True, busy=True),
    attack("sleep between two looks", "timeout", "import time\nwhile True:\n    time.sleep(0.001)"),
    attack("spin where the main thread sleeps", "timeout", r"""
import threading, time
def spin():
    while True: pass
threading.Thread(target=spin).start()
time.sleep(1000)
"""),
    attack("spin after the main thread is gone", "timeout", CALLS + r"""
import threading
def spin():
    while True: pass
threading.Thread(target=spin).start()
call("exit", 0)
"""),
    attack("sleep after the main thread is gone", "timeout", CALLS + r"""
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
call("exit", 0)
"""),
    attack("spin in one thread after the other", "timeout", r"""
import threading, time
def spin():
    end = time.thread_time() + 0.02
    while time.thread_time() < end: pass
while True:
    thread = threading.Thread(target=spin)
    thread.start()
    thread.join()
"""),
    attack("spin in children", "timeout|runtime_error", r"""
import os, time
for _ in range(8):
    if os.fork() == 0:
        while True: pass
time.sleep(1000)
"""),
    attack("spin in one child after the other", "timeout|runtime_error", r"""
import os, time
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""),
    attack("replace itself without end", "timeout", r"""
import os, sys
os.execv(sys.executable, [sys.executable, "-I", "/box/main"])
""", local=True),
    attack("deaf to the time limit of the kernel", "timeout", r"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
"""),
    attack("a long answer from a short wait", "timeout", "import select\nselect.select([], [], [], 1000)"),
    attack("wait on a futex", "timeout", "import threading\nthreading.Event().wait()"),
    attack("many sums in one number", "timeout", "print(sum(range(10**12)))"),
    attack("one call that lasts", "timeout", "print(len(str(3 ** 30_000_000)))"),
]

SURVIVING: list[Attack] = [
    attack("a child that stays", "wrong|runtime_error", r"""
import os, time
if os.fork() == 0:
    time.sleep(1000)
"""),
    attack("a child of a child that stays", "wrong|runtime_error|timeout", r"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(64):
            try:
                os.close(number)
            except OSError:
                pass
        time.sleep(1000)
    os._exit(0)
"""),
    attack("a child that inherits orphans", "wrong|runtime_error|timeout", CALLS + r"""
import time
libc.prctl(36, 1, 0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
"""),
    attack("children that nobody collects", "wrong|runtime_error", r"""
import os
for _ in range(40):
    if os.fork() == 0:
        os._exit(0)
"""),
    attack("a child that is stopped", "wrong|runtime_error|timeout", r"""
import os, signal, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    time.sleep(1000)
os.kill(child, signal.SIGSTOP)
"""),
    attack("a child that kills its parent", "wrong|runtime_error", r"""
import os, signal, time
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)
time.sleep(1000)
"""),
    attack("threads that stay", "timeout", r"""
import threading, time
for _ in range(10):
    threading.Thread(target=time.sleep, args=(1000,)).start()
"""),
    breach("outlive the judge", CALLS + "must(libc.prctl(1, 0, 0, 0, 0))", local=True),
    breach("outlive the judge by another signal", CALLS + "must(libc.prctl(1, 18, 0, 0, 0))", local=True),
    attack("a judge that is killed", "killed", "import time\ntime.sleep(1000)", kill_judge=True, cpu=100.0),
    attack("a judge that is killed, a program that spins", "killed", "while True: pass", kill_judge=True, cpu=100.0),
    attack("a judge that is killed, threads without the first", "killed", CALLS + r"""
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
call("exit", 0)
""", kill_judge=True, cpu=100.0, local=True),
    attack("a judge that is killed, a stopped program", "killed",
          "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nsignal.pause()",
          kill_judge=True, cpu=100.0),
]
