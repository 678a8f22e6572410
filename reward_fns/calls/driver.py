"""Runs inside the sandbox: executes a program, calls its function, and writes each value as a line of JSON.

    python driver.py PROGRAM < marshal of (function's name, setup code, [marshal of (arguments, keywords), ...])

It is sent as it is and imports little of the standard library: `json` and `typing` alone would double the time of a
short run. A line is `[value, seconds]`: the value in the notation of `encode`, and the time used so far, by which the
judge tells a call that hangs from many slow ones. What the program prints goes to /dev/null. The first exception ends
the run, `SystemExit` too. The process ends by `_exit`, so threads and exit handlers of the program do not delay it.

A function of the program's is used, else a method of its `class Solution`, with a new object for each call.
"""

import itertools
import marshal
import numbers
import os
import sys
import time
import types
from collections.abc import Callable, Iterable

try:
    from _json import encode_basestring_ascii as quoted  # what `json` uses
except ImportError:
    from json import dumps as quoted

DEPTH = 100
_ITEMS = 100_000  # of an iterator; an endless one is no value
_EXACT = 1 << 53
_WALL_PER_CPU = 3.0  # as the sandbox counts time
_NO_NUMBERS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def encode(value: object, depth: int = DEPTH) -> str:
    """As JSON. Lists, text, numbers, booleans and None are themselves, everything else is {tag: content}:

    t tuple, s set, d dict (pairs), i large integer (hexadecimal), c complex, b bytes (hexadecimal), g another iterable
    (its items), o another object (its truth value). Subclasses count as what they extend.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        return int.__repr__(value) if -_EXACT < value < _EXACT else f'{{"i": "{value:x}"}}'
    if isinstance(value, float):
        number = float.__repr__(value)
        return _NO_NUMBERS.get(number, number)
    if depth == 0:
        raise ValueError("the returned value is nested too deeply, or contains itself")
    if isinstance(value, list):
        return _listed(value, depth)
    if isinstance(value, tuple):
        return f'{{"t": {_listed(value, depth)}}}'
    if isinstance(value, (set, frozenset)):
        return f'{{"s": {_listed(value, depth)}}}'
    if isinstance(value, dict):
        return f'{{"d": {_listed(map(list, value.items()), depth)}}}'
    if isinstance(value, complex):
        return f'{{"c": {_listed([value.real, value.imag], depth)}}}'
    if isinstance(value, (bytes, bytearray)):
        return f'{{"b": "{value.hex()}"}}'
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return encode(value.item(), depth - 1)  # type: ignore[attr-defined]
    if isinstance(value, numbers.Number) and hasattr(value, "__float__"):  # a fraction or a decimal
        return encode(int(value) if value == int(value) else float(value), depth - 1)  # type: ignore[call-overload]
    if isinstance(value, Iterable):
        items = list(itertools.islice(value, _ITEMS + 1))
        if len(items) <= _ITEMS:
            return f'{{"g": {_listed(items, depth)}}}'
    return f'{{"o": {encode(bool(value))}}}'


def _listed(items: Iterable[object], depth: int) -> str:
    return "[" + ", ".join([encode(item, depth - 1) for item in items]) + "]"


def find(module: types.ModuleType, name: str) -> Callable[..., object]:
    function = getattr(module, name, None)
    if callable(function):
        return function
    solution = getattr(module, "Solution", None)
    if solution is not None and hasattr(solution, name):
        return lambda *args, **kwargs: getattr(solution(), name)(*args, **kwargs)
    raise NameError(f"the program defines no function {name}")


def run(request: bytes, source: bytes, write: Callable[[bytes], None]) -> None:
    name, setup, calls = marshal.loads(request)
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    cpu, clock, loads = time.process_time, time.monotonic, marshal.loads
    began = clock()
    for code, file in ((setup, "setup.py"), (source, "solution.py")):
        module.__dict__.pop(name, None)  # the program must define it: what setup imports may have its name (`gcd`)
        exec(compile(code, file, "exec", dont_inherit=True), module.__dict__)
    function = find(module, name)
    for call in calls:
        arguments, keywords = loads(call)
        value = function(*arguments, **keywords)
        seconds = max(cpu(), (clock() - began) / _WALL_PER_CPU)
        write(f"[{encode(value)}, {seconds}]\n".encode())


def main(path: str) -> None:
    channel, leave = os.dup(1), os._exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    status = 1

    def write(line: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
        while line:
            line = line[write(channel, line) :]

    try:
        with open(path, "rb") as file:
            source = file.read()
        run(sys.stdin.buffer.read(), source, write)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        leave(status)


if __name__ == "__main__":
    main(sys.argv[1])
