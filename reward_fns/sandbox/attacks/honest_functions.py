"""Correct functions in the styles of people and models. Each has a problem of its own, added to `PROBLEMS`."""

from typing import Any

from reward_fns.sandbox.attacks.programs import PROBLEMS, Honest

# fmt: off


def asserts(name: str, source: str, fn_name: str, *tests: str, setup: str = "", **limits: Any) -> Honest:
    return _honest(name, source, {"asserts": [f"assert {test}" for test in tests]}, fn_name, setup, limits)


def values(name: str, source: str, fn_name: str, *tests: tuple[str, str], setup: str = "") -> Honest:
    inputs, outputs = zip(*tests, strict=True)
    return _honest(name, source, {"inputs": list(inputs), "outputs": list(outputs)}, fn_name, setup, {})


def _honest(
    name: str, source: str, tests: dict[str, Any], fn_name: str, setup: str, limits: dict[str, Any]
) -> Honest:
    PROBLEMS[name := f"function: {name}"] = {"fn_name": fn_name, "setup": setup, **tests}
    return Honest(name, name, source, **limits)


ADD = ("add(1, 2) == 3", "add(-1, 1) == 0", "add(2.5, 2) == 4.5")
SUMS = (("[2, 7, 11, 15]\n9", "[0, 1]"), ("[3, 3]\n6", "[0, 1]"))

FUNCTIONS = [
    asserts("a function", """
def add(a, b):
    return a + b
""", "add", *ADD),
    asserts("a lambda", "add = lambda a, b: a + b", "add", *ADD),
    asserts("a builtin", "from operator import add", "add", *ADD),
    asserts("a callable object", """
class Adder:
    def __call__(self, a, b):
        return a + b
add = Adder()
""", "add", *ADD),
    asserts("a partial function", """
from functools import partial
add = partial(lambda a, b: a + b)
""", "add", *ADD),
    asserts("a cached function", """
from functools import cache
@cache
def add(a, b): return a + b
""", "add", *ADD),
    asserts("keywords", "def add(a, *, b=0): return a + b", "add", "add(1, b=2) == 3", "add(5) == 5"),
    asserts("a demonstration at the end", """
def add(a, b): return a + b
if __name__ == '__main__':
    print(add(int(input()), 2))
""", "add", *ADD),
    asserts("its own asserts and prints", """
def add(a, b):
    print('adding', a, b)
    return a + b
assert add(1, 1) == 2
print('ok')
""", "add", *ADD),
    asserts("results printed as JSON", """
def add(a, b):
    print('[5, 0.0]', flush=True)
    return a + b
""", "add", *ADD),
    asserts("messages on stderr", """
import sys
def add(a, b):
    print('x' * 1000, file=sys.stderr)
    return a + b
""", "add", *ADD),
    asserts("a thread that waits", """
import threading
threading.Thread(target=threading.Event().wait).start()
def add(a, b): return a + b
""", "add", *ADD),
    asserts("work in a thread", """
import threading
def add(a, b):
    result = []
    worker = threading.Thread(target=lambda: result.append(a + b))
    worker.start()
    worker.join()
    return result[0]
""", "add", *ADD),
    asserts("recursion", """
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
""", "depth", "depth(900) == 900", "depth(0) == 0"),
    asserts("deep recursion", """
import sys
sys.setrecursionlimit(100_000)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
""", "depth", "depth(20_000) == 20_000", "depth(0) == 0"),
    asserts("a large number", """
from math import factorial as fact
""", "fact", "fact(30) == 265252859812191058636308480000000", "fact(3) == 6"),
    asserts("a number of 6,000 digits", """
def power(n): return 2 ** n
""", "power", f"power(20_000) == {hex(1 << 20_000)}", "power(3) == 8"),
    asserts("tuples", "def pair(x): return x, [x]", "pair", "pair(1) == (1, [1])", "pair('a') == ('a', ['a'])"),
    asserts("a named tuple", """
from collections import namedtuple
P = namedtuple('P', 'x y')
def point(x): return P(x, -x)
""", "point", "point(1) == (1, -1)", "point(0) == (0, 0)"),
    asserts("a data class inside", """
from dataclasses import dataclass
@dataclass
class P:
    x: int
def f(x): return P(x).x
""", "f", "f(1) == 1", "f(2) == 2"),
    asserts("a set", """
def letters(s): return set(s)
""", "letters", "letters('aab') == {'a', 'b'}", "letters('') == set()"),
    asserts("a frozen set", """
def letters(s): return frozenset(s)
""", "letters", "letters('aab') == {'a', 'b'}", "letters('') == set()"),
    asserts("sets of tuples", """
def edges(g): return {(a, b) for a in g for b in g[a]}
""", "edges", "edges({1: [2, 3]}) == {(1, 3), (1, 2)}", "edges({}) == set()"),
    asserts("a counter", """
from collections import Counter as count
""", "count", "count('aab') == {'a': 2, 'b': 1}", "count([]) == {}"),
    asserts("a default dict", """
from collections import defaultdict
def group(words):
    result = defaultdict(list)
    for word in words:
        result[len(word)].append(word)
    return result
""", "group", "group(['a', 'bb', 'c']) == {1: ['a', 'c'], 2: ['bb']}", "group([]) == {}"),
    asserts("a generator that is sorted", """
def squares(xs):
    for x in xs:
        yield x * x
""", "squares", "sorted(squares([3, -1])) == [1, 9]", "list(squares([2])) == [4]"),
    asserts("a view of a dict", """
def names(d): return d.keys()
""", "names", "set(names({'a': 1})) == {'a'}", "len(list(names({}))) == 0",
    "sorted(names({'b': 1, 'a': 2})) == ['a', 'b']"),
    asserts("a range", """
def upto(n): return range(n)
""", "upto", "list(upto(3)) == [0, 1, 2]", "tuple(upto(1)) == (0,)", "len(list(upto(0))) == 0"),
    asserts("any order", """
def divisors(n): return [d for d in range(n, 0, -1) if n % d == 0]
""", "divisors", "sorted(divisors(6)) == [1, 2, 3, 6]", "set(divisors(4)) == {1, 2, 4}"),
    asserts("floats", """
def third(x): return x / 3
""", "third", "third(1) == 0.3333333333333333", "abs(third(2) - 0.6667) < 1e-3", "round(third(5), 2) == 1.67",
    "math.isclose(third(10), 3.33333333333)"),
    asserts("floats summed in another order", """
def total(xs): return sum(sorted(xs))
""", "total", "total([0.3, 0.2, 0.1]) == 0.6", "total([]) == 0"),
    asserts("infinity", """
def most(xs): return max(xs, default=float('-inf'))
""", "most", "most([]) == -1e309", "most([1]) == 1"),
    asserts("fractions and decimals", """
from fractions import Fraction
from decimal import Decimal
def half(x): return Fraction(x, 2) if x % 4 else Decimal(x) / 2
""", "half", "half(1) == 0.5", "half(2) == 1", "half(4) == 2"),
    asserts("complex numbers", "def square(z): return z * z", "square", "square(1j) == -1", "square(1+2j) == -3+4j"),
    asserts("bytes", """
def turn(b): return b[::-1]
""", "turn", "turn(b'\\x00\\xff') == b'\\xff\\x00'", "turn(b'') == b''"),
    asserts("truth", """
import re
def match(s): return re.match('a+$', s)
""", "match", "match('aa')", "not match('ab')", "match('') is None"),
    asserts("True and False", """
def even(n): return n % 2 == 0
""", "even", "even(2) is True", "even(3) == False", "even(0) == True"),
    asserts("one of several values", """
def pick(xs): return xs[-1]
""", "pick", "pick([1, 2]) in (1, 2)", "pick([5]) != 4", "0 < pick([1])", "pick([5]) == 5"),
    asserts("changed arguments", "def last(xs): return xs.pop()", "last", "last([1, 2]) == 2", "last([1, 2]) == 2"),
    asserts("text with every kind of character", """
def twice(s): return s + s
""", "twice", 'twice(\'é\\n"\\\\ 😀\\x00\\ud800\') == \'é\\n"\\\\ 😀\\x00\\ud800é\\n"\\\\ 😀\\x00\\ud800\'',
    "twice('') == ''"),
    asserts("nested values", """
def nest(x): return {x: [(x, {x}), {'k': (None, True)}]}
""", "nest", "nest(1) == {1: [(1, {1}), {'k': (None, True)}]}",
    "nest('a') == {'a': [('a', {'a'}), {'k': (None, True)}]}"),
    asserts("names of the setup", """
def first(xs: List[int]) -> Optional[int]:
    return xs[0] if xs else None
""", "first", "first([1]) == 1", "first([]) is None", setup="from typing import List, Optional"),
    asserts("a helper of the setup", """
def encode(s): return shift(s, 1)
""", "encode", "encode('ab') == 'bc'", "encode('') == ''",
    setup="def shift(s, n):\n    return ''.join(chr(ord(c) + n) for c in s)"),
    asserts("a future import", """
from __future__ import annotations
def f(x: Undefined) -> Undefined: return x
""", "f", "f(1) == 1", "f('a') == 'a'"),
    asserts("a name that the driver uses", """
import json, os, sys, marshal
encode = decode = run = main = write = None
def find(x): return x + 1
""", "find", "find(1) == 2", "find(2) == 3"),
    asserts("json replaced", """
import json
json.dumps = None
def f(x): return [x]
""", "f", "f(1) == [1]", "f(2) == [2]"),
    asserts("standard output closed", """
import sys
sys.stdout.close()
def f(x): return [x]
""", "f", "f(1) == [1]", "f(2) == [2]"),
    asserts("its state kept between calls", """
calls = 0
def f(x):
    global calls
    calls += 1
    return x * 2
""", "f", "f(1) == 2", "f(2) == 4"),
    asserts("slow calls, each within the limit", """
import time
def f(x):
    end = time.process_time() + 0.35
    while time.process_time() < end: pass
    return x
""", "f", "f(1) == 1", "f(2) == 2", "f(3) == 3", "f(4) == 4", cpu=0.5),
    asserts("memory that adds up", """
kept = []
def f(x):
    kept.append(bytearray(30_000_000))
    return x
""", "f", *(f"f({n}) == {n}" for n in range(8)), memory=128),
    values("LiveCodeBench, a method", """
class Solution:
    def twoSum(self, nums: List[int], target: int) -> List[int]:
        seen = {}
        for i, x in enumerate(nums):
            if target - x in seen:
                return (seen[target - x], i)
            seen[x] = i
    
""", "twoSum", *SUMS, setup="from typing import *"),
    values("LiveCodeBench, a function", """
def twoSum(nums, target):
    seen = {}
    for i, x in enumerate(nums):
        if target - x in seen:
            return (seen[target - x], i)
        seen[x] = i
""", "twoSum", *SUMS),
    values("a method with state", """
class Solution:
    def __init__(self):
        self.seen = []
    def count(self, xs):
        self.seen += xs
        return len(self.seen)
""", "count", ("[1, 2]", "2"), ("[1]", "1")),
    values("a static method", """
class Solution:
    @staticmethod
    def twice(x):
        return 2 * x
""", "twice", ("2", "4"), ("[1]", "[1, 1]")),
    values("tuples for lists", """
def pairs(xs): return tuple((x, x) for x in xs)
""", "pairs", ("[1]", "[[1, 1]]"), ("[]", "[]")),
    values("keys that are numbers", """
def squares(xs): return {x: x * x for x in xs}
""", "squares", ("[2]", '{"2": 4}'), ("[]", "{}")),
    values("a float, a text and null", r"""
def f(x): return {1: 0.1 + 0.2, 2: 'a\n', 3: None}[x]
""", "f", ("1", "0.3"), ("2", '"a\\n"'), ("3", "null")),
]
