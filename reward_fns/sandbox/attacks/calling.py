"""Attacks on tests that call a function, from inside the process that calls it.

The function is `f`. Its values (the problem "function") are nowhere but in the judge: a token for f(1), a list with it
for f(2), a number for f(3), and True for f(4).
"""

from functools import partial

from reward_fns.sandbox.attacks.programs import attack as attack_on

# fmt: off
attack = partial(attack_on, problem="function")

FIND = r"""
import re
def search(text):
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    hit = re.search("SECRET" + "-[0-9a-f]{32}", text)
    return hit and hit.group()
"""

FORGE = r"""
import os
def forge(text):
    for fd in range(64):
        try:
            os.write(fd, text)
        except OSError:
            pass
"""

COMPARISON = [
    attack("function: an object equal to everything", "wrong", """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
def f(n): return Any()
"""),
    attack("function: mock.ANY", "wrong|timeout", "from unittest.mock import ANY\ndef f(n): return ANY"),
    attack("function: a text equal to everything", "wrong", """
class Text(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def f(n): return Text("x")
"""),
    attack("function: a list equal to everything", "wrong", """
class Items(list):
    def __eq__(self, other): return True
    def __len__(self): return 2
def f(n): return Items() if n == 2 else True
"""),
    attack("function: a float equal to everything", "wrong", """
class Number(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return Number(0)
    def __abs__(self): return Number(0)
def f(n): return Number(0)
"""),
    attack("function: an int with a format of its own", "wrong", """
class Number(int):
    def __repr__(self): return 'true, 0]\\n[true'
    __str__ = __format__ = lambda self, *rest: repr(self)
def f(n): return Number(1 << 60 if n % 2 else 1)
"""),
    attack("function: a class that lies about its type", "wrong|runtime_error", """
class Liar:
    __class__ = str
    def __eq__(self, other): return True
def f(n): return Liar()
"""),
    attack("function: nan", "wrong", "def f(n): return float('nan')"),
    attack("function: a metaclass that compares", "wrong", """
class Meta(type):
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
class Answer(metaclass=Meta): pass
def f(n): return Answer
"""),
    attack("function: numpy in name only", "wrong|runtime_error", """
class Scalar:
    ndim = 0
    def item(self): return self
    def __eq__(self, other): return True
Scalar.__module__ = "numpy"
def f(n): return Scalar()
"""),
    attack("function: True for everything", "wrong", "def f(n): return True"),
    attack("function: None", "wrong", "def f(n): pass"),
    attack("function: its own function", "wrong", "def f(n): return f"),
    attack("function: the driver's module", "wrong", "import sys\ndef f(n): return sys.modules['__main__']"),
    attack("function: equality replaced in the interpreter", "wrong|runtime_error", """
import ctypes
class Slots(ctypes.Structure):
    _fields_ = [("head", ctypes.c_ssize_t * 25), ("richcompare", ctypes.c_void_p)]
kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)
always = kind(lambda a, b, op: True)
Slots.from_address(id(str)).richcompare = ctypes.cast(always, ctypes.c_void_p).value
def f(n): return "x"
"""),
]

FORGERY = [
    attack("function: results printed before the calls", "wrong", """
for answer in ('"x"', '["x", 3]', '0.5', 'true'):
    print(f"[{answer}, 0.0]", flush=True)
def f(n): return None
"""),
    attack("function: true on every descriptor", "wrong", FORGE + """
forge(b"true\\n" * 4 + b"[true, 0.0]\\n" * 4)
def f(n): return True
"""),
    attack("function: the object tag", "wrong", FORGE + """
forge(b'[{"o": true}, 0.0]\\n' * 4)
os._exit(0)
"""),
    attack("function: tags that do not exist", "wrong", FORGE + """
forge(b'[{"any": []}, 0.0]\\n[{"t": [], "s": []}, 0]\\n[{}, 0]\\n[{"d": [[1]]}, 0]\\n')
os._exit(0)
"""),
    attack("function: NaN and infinity as JSON", "wrong", FORGE + r"""
forge(b'[NaN, NaN]\n[Infinity, -Infinity]\n' * 2)
os._exit(0)
"""),
    attack("function: a million brackets", "wrong|output_limit", FORGE + "forge(b'[' * 900_000 + b'\\n')\nos._exit(0)"),
    attack("function: 100,000 nested tuples", "wrong|output_limit", FORGE + r"""
forge(b'{"t": [' * 100_000 + b'\n')
os._exit(0)
"""),
    attack("function: bytes that are no text", "wrong", FORGE + "forge(b'\\xff\\xfe\\x00\\n' * 4)\nos._exit(0)"),
    attack("function: a number of 900,000 digits", "wrong|output_limit", FORGE + r"""
forge(b'[' + b'9' * 900_000 + b', 0]\n')
os._exit(0)
"""),
    attack("function: a hexadecimal number of 900,000 digits", "wrong|output_limit", FORGE + """
forge(b'[{"i": "' + b'f' * 900_000 + b'"}, 0]\\n')
os._exit(0)
"""),
    attack("function: numbers with one hash, as a set", "wrong", FORGE + """
prime = (1 << 61) - 1
items = b', '.join(b'{"i": "%x"}' % (prime * k) for k in range(1, 20_000))
forge(b'[{"s": [' + items + b']}, 0]\\n')
os._exit(0)
"""),
    attack("function: numbers with one hash, as keys", "wrong", """
prime = (1 << 61) - 1
class Key(int):
    __hash__ = object.__hash__
def f(n): return {Key(prime * k): None for k in range(1, 20_000)}
"""),
    attack("function: sets in sets", "wrong|runtime_error", """
def f(n):
    value = frozenset()
    for _ in range(99):
        value = frozenset([value, "x" * 1000])
    return value
"""),
    attack("function: empty lines", "wrong", FORGE + "forge(b'\\n' * 500_000)\nos._exit(0)"),
    attack("function: many results for one call", "wrong", FORGE + """
def f(n):
    forge(b''.join(b'[%d, 0]\\n' % guess for guess in range(1000)))
"""),
    attack("function: another program in its place", "wrong|runtime_error", """
import os, sys
os.execv(sys.executable, [sys.executable, "-c", "print('[true, 0.0]\\\\n' * 4)"])
"""),
]

HARNESS = [
    attack("function: json patched", "wrong", """
import json
json.loads = json.dumps = lambda *args, **kwargs: "SECRET"
json.decoder.JSONDecoder.decode = lambda self, text: True
def f(n): return "x"
"""),
    attack("function: builtins patched", "wrong|runtime_error", """
import builtins
builtins.isinstance = lambda *args: True
builtins.all = builtins.any = lambda items: True
builtins.len = lambda items: 2
builtins.type = lambda *args: str
def f(n): return "x"
"""),
    attack("function: the driver's encoder patched", "wrong", """
import sys
main = sys.modules["__main__"]
main.encode = lambda value, depth=0: "true"
main._listed = lambda items, depth: "[]"
def f(n): return "x"
"""),
    attack("function: marshal patched", "wrong|runtime_error", """
import marshal
marshal.loads = lambda data: ((), {})
def f(n=0): return True
"""),
    attack("function: the modules exchanged", "wrong|runtime_error", """
import sys
for name in list(sys.modules):
    sys.modules[name] = sys
def f(n): return True
"""),
    attack("function: exit at the start", "runtime_error", "import sys\nsys.exit(0)"),
    attack("function: hard exit at the start", "wrong", "import os\nos._exit(0)"),
    attack("function: exit in a call", "runtime_error", "def f(n): raise SystemExit(0)"),
    attack("function: hard exit in a call", "wrong", "import os\ndef f(n): os._exit(0)"),
    attack("function: hard exit in a thread", "wrong", """
import os, threading
threading.Thread(target=lambda: os._exit(0)).start()
def f(n): return True
"""),
    attack("function: exit handlers", "wrong|runtime_error", """
import atexit, os
atexit.register(os._exit, 0)
def f(n): return 1
"""),
    attack("function: an exception that exits", "wrong|runtime_error", """
import os, sys
sys.excepthook = lambda *rest: os._exit(0)
class Gone(BaseException):
    def __str__(self): os._exit(0)
def f(n): raise Gone
"""),
    attack("function: os._exit replaced", "wrong|runtime_error", """
import os
os._exit = lambda status: None
def f(n): return None
"""),
    attack("function: killed by itself", "wrong|runtime_error", """
import os, signal
def f(n): os.kill(os.getpid(), signal.SIGKILL)
"""),
    attack("function: the driver traced", "wrong|runtime_error", """
import sys
def trace(frame, event, arg):
    frame.f_locals.update(value=True, status=0)
    return trace
sys.settrace(trace)
sys._getframe(1).f_trace = trace
def f(n): return True
"""),
    attack("function: the function is a constant", "runtime_error", "f = True"),
    attack("function: a program without the function", "runtime_error", "print('correct')"),
    attack("function: an empty program", "runtime_error", "pass"),
]

LOOKING = [
    attack("function: the frames of the driver", "wrong|runtime_error", FIND + """
import sys
def f(n):
    frame = sys._getframe()
    while frame:
        hit = search(repr(frame.f_locals) + repr(frame.f_code.co_consts))
        if hit:
            return hit
        frame = frame.f_back
"""),
    attack("function: every object of the process", "wrong|runtime_error|timeout", FIND + """
import gc
def f(n):
    for item in gc.get_objects():
        if isinstance(item, (str, bytes, dict, list, tuple)):
            hit = search(repr(item)[:100_000])
            if hit:
                return hit
"""),
    attack("function: the memory of the process", "wrong|runtime_error|timeout|memory", FIND + """
def f(n):
    for line in open("/proc/self/maps"):
        if "[heap]" in line or " 00:00 0 " in line:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            with open("/proc/self/mem", "rb") as memory:
                try:
                    memory.seek(low)
                    hit = search(memory.read(min(high - low, 8 << 20)))
                except OSError:
                    continue
            if hit:
                return hit
"""),
    attack("function: standard input read again", "wrong", FIND + """
import os
def f(n):
    os.lseek(0, 0, 0)
    return search(os.read(0, 1 << 20)) or search(open("/dev/stdin", "rb").read())
"""),
    attack("function: files and arguments", "wrong", FIND + """
import glob, os, sys
def f(n):
    for path in [*sys.argv, *glob.glob("/box/*"), *glob.glob("/tmp/*"), *glob.glob("/proc/self/*")]:
        try:
            hit = search(open(path, "rb").read(1 << 20))
        except OSError:
            continue
        if hit:
            return hit
    return search(repr(dict(os.environ)))
"""),
    attack("function: the judge's own modules", "runtime_error", """
from reward_fns.unit_tests import judge
def f(n): return True
"""),
]

LIMITS = [
    attack("function: a list that contains itself", "runtime_error", """
def f(n):
    x = []
    x.append(x)
    return x
"""),
    attack("function: a list 100,000 deep", "runtime_error", """
def f(n):
    x = []
    for _ in range(100_000):
        x = [x]
    return x
"""),
    attack("function: a value of 2 to the 60 parts", "memory|timeout|output_limit|runtime_error", """
def f(n):
    x = [1]
    for _ in range(60):
        x = [x, x]
    return x
"""),
    attack("function: a text of 200 MB", "memory|output_limit", "def f(n): return 'x' * 200_000_000"),
    attack("function: ten million numbers", "memory|output_limit|timeout", "def f(n): return list(range(10_000_000))"),
    attack("function: an endless generator", "wrong", "import itertools\ndef f(n): return itertools.count()"),
    attack("function: an iterator that hangs", "timeout", """
class Slow:
    def __iter__(self): return self
    def __next__(self):
        while True: pass
def f(n): return Slow()
"""),
    attack("function: a hang after wrong results", "wrong|timeout", FORGE + r"""
forge(b'[true, 0]\n' * 9)
while True: pass
"""),
    attack("function: a thread that goes on", "wrong", """
import threading
def work():
    while True: pass
threading.Thread(target=work).start()
def f(n): return True
"""),
    attack("function: noise on stderr", "output_limit|timeout", """
import sys
def f(n):
    while True: sys.stderr.write("x" * 10_000)
"""),
    attack("function: endless printing", "timeout", "def f(n):\n    while True: print('x' * 1000)"),
    attack("function: forking", "runtime_error|wrong", "import os\ndef f(n): return os.fork()"),
]

CALLING = [*COMPARISON, *FORGERY, *HARNESS, *LOOKING, *LIMITS]
