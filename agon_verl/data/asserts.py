"""From the test code of a benchmark to asserts that the judge can read: each with literals only.

The judge never runs test code beside a program (reward_fns/calls), so every assert is reduced to one call and one
expected value. Where an assert is that already, nothing is executed. Otherwise (a loop, a variable, an expression) the
test code runs once in the sandbox, without any program: each assert on the function is replaced by a note of its
arguments and of the other side, so loops and variables unfold into one assert with literals per note.

    for n in range(2, 4):                      assert f(2, 3) == '2'
        assert candidate(n, n + 1) == str(n)   assert f(3, 4) == '3'

An assert that does not have one of the judge's forms, or whose values are no literals, is removed and counted. Test
code that uses the function in any other way (`x = candidate(1)`) is refused as a whole. Random numbers are seeded, so
the same code gives the same asserts.
"""

import ast
import asyncio
import marshal
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agon_verl.data.problem import Unusable
from reward_fns.calls import driver
from reward_fns.calls.assertions import AssertForm, NotConvertible, conjuncts, from_assert, mentions, recognise
from reward_fns.calls.values import DictValue, SetValue, read_answers
from reward_fns.sandbox import MB, Job, Program, ProgramLimits
from reward_fns.sandbox.local import LocalSandbox

NOT_CONVERTIBLE = "with an assert that cannot be judged outside the program"
_LIMITS = ProgramLimits(cpu=20.0, memory=1024 * MB, output=64 * MB)
_MOST_NOTES = 10_000
_PRELUDE = f"""
import copy as _copy
import random as _random
_random.seed(0)
_notes = []
def _note(number, values):
    if len(_notes) < {_MOST_NOTES}:
        try:
            _notes.append((number, _copy.deepcopy(values())))
        except Exception:
            _notes.append((number, None))
def _all_notes():
    return _notes
"""


def literal_asserts(code: str, name: str, setup: str) -> tuple[list[str], Counter[str]]:
    """The asserts on the function `name`, and how many were removed. `setup` runs before the code."""
    try:
        tree = _inside_out(ast.parse(code), name)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Unusable("with tests that are not Python") from None
    recorder = _Recorder(name)
    plain = _plain(tree.body, name)
    removed = Counter[str]()
    if plain is not None:
        return plain, removed
    recorded = recorder.visit(tree)
    if mentions(recorded, name):
        raise Unusable("with tests that use the function outside an assert")
    removed[NOT_CONVERTIBLE] += recorder.refused
    asserts = []
    for number, values in _run(ast.unparse(ast.fix_missing_locations(recorded)), setup, len(recorder.forms)):
        try:
            text = _text(recorder.forms[number], name, values)
            from_assert(text, name)
            asserts.append(text)
        except NotConvertible:
            removed[NOT_CONVERTIBLE] += 1
    return asserts, removed


def _inside_out(tree: ast.Module, name: str) -> ast.Module:
    """The body of `def check(candidate)` at the end of the module, with the function's own name for `candidate`."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "check" and len(statement.args.args) == 1:
            rename = _Rename(statement.args.args[0].arg, name)
            body += [rename.visit(inner) for inner in statement.body]
        elif not (isinstance(statement, ast.Expr) and _calls(statement.value, "check")):
            body.append(statement)
    return ast.Module(body, [])


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._new if node.id == self._old else node.id, node.ctx), node)


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _plain(body: Sequence[ast.stmt], name: str) -> list[str] | None:
    """The asserts as they are, if every one of them is one already and nothing else mentions the function."""
    asserts: list[str] = []
    for statement in body:
        if not mentions(statement, name):
            continue
        if not isinstance(statement, ast.Assert):
            return None
        for test in conjuncts(statement.test):
            text = f"assert {ast.unparse(test)}"
            try:
                from_assert(text, name)
            except NotConvertible:
                return None
            asserts.append(text)
    return asserts


class _Recorder(ast.NodeTransformer):
    """Replaces every assert on the function by a note of its values, and removes those that have no known form.

    EvalPlus writes `assertion(candidate(*inp), exp, 1e-6)` for an equality with its tolerance; the judge has its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.forms: list[AssertForm] = []
        self.refused = 0

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        if not mentions(node, self._name):
            return [ast.Pass()]
        return [self._note(test) for test in conjuncts(node.test)]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        if _calls(call, "assertion") and isinstance(call, ast.Call) and len(call.args) >= 2:
            return self._note(ast.Compare(call.args[0], [ast.Eq()], [call.args[1]]))
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.stmt:
        """Packages are not installed in the sandbox, and most that tests import are not used."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return ast.Pass()  # it would have to be the first statement
        return ast.Try([node], [ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, [ast.Pass()])], [], [])

    visit_ImportFrom = visit_Import

    def _note(self, test: ast.expr) -> ast.stmt:
        try:
            form = recognise(test, self._name)
        except NotConvertible:
            self.refused += 1
            return ast.Pass()
        self.forms.append(form)
        keywords = ast.Dict(
            [None if word.arg is None else ast.Constant(word.arg) for word in form.call.keywords],
            [word.value for word in form.call.keywords],
        )
        values = [ast.List(form.call.args, ast.Load()), keywords, form.other or ast.Constant(None)]
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        note = ast.Lambda(nothing, ast.Tuple(values, ast.Load()))
        arguments: list[ast.expr] = [ast.Constant(len(self.forms) - 1), note]
        return ast.Expr(ast.Call(ast.Name("_note", ast.Load()), arguments, []))


def _run(code: str, setup: str, forms: int) -> list[tuple[int, Any]]:
    """The notes, made in the sandbox by the judge's own driver; the test code is its program, and may forge them."""
    call = marshal.dumps(([], {}), 2)
    request = marshal.dumps(("_all_notes", setup, [call]), 2)
    files = {"tests.py": (_PRELUDE + code).encode("utf-8", "surrogatepass")}
    program = Program("python", Path(driver.__file__).read_bytes())
    done = asyncio.run(_sandbox().run(Job(program, request, _LIMITS, files)))
    answers = read_answers(done.stdout, 1)
    notes = answers[0][0] if answers and done.ending == "exited" and done.exit_code == 0 else None
    if not isinstance(notes, list) or not all(
        isinstance(note, tuple) and len(note) == 2 and note[0] in range(forms) for note in notes
    ):
        raise Unusable("with tests that fail by themselves")
    return notes


@cache
def _sandbox() -> LocalSandbox:
    return LocalSandbox()


def _text(form: AssertForm, name: str, values: Any) -> str:
    if not (isinstance(values, tuple) and [type(value) for value in values[:2]] == [list, DictValue]):
        raise NotConvertible("its values cannot be computed without the program")
    arguments = [literal(value) for value in values[0]]
    arguments += [f"{key}={literal(value)}" for key, value in values[1].pairs.values()]
    called, other = f"{name}({', '.join(arguments)})", literal(values[2])
    for view, digits in form.views:
        called = f"{view}({called})" if digits is None else f"{view}({called}, {digits})"
    if form.relation == "true":
        return f"assert {called}"
    if form.relation == "false":
        return f"assert not {called}"
    if form.relation != "close":
        return f"assert {called} {form.relation} {other}"
    relative, absolute = form.tolerances
    if form.strict:
        return f"assert abs({called} - {other}) < {absolute!r}"
    return f"assert math.isclose({called}, {other}, rel_tol={relative!r}, abs_tol={absolute!r})"


def literal(value: Any) -> str:
    """A value that came out of the sandbox as Python's notation of it."""
    if isinstance(value, SetValue):
        return "{" + ", ".join(map(literal, value.members.values())) + "}" if value.members else "set()"
    if isinstance(value, DictValue):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.pairs.values()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{literal(item)}, " for item in value).removesuffix(" ") + ")"
    if isinstance(value, float) and math.isinf(value):
        return "1e309" if value > 0 else "-1e309"
    if isinstance(value, float) and math.isnan(value):
        raise NotConvertible("NaN equals nothing")
    if isinstance(value, int) and value.bit_length() > 4096:
        return hex(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | complex):
        return repr(value)
    raise NotConvertible("a value that is no literal")
