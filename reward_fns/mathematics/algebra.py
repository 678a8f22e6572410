r"""Two formulas compared with math-verify, if text, form and value have not decided.

Runs in a worker process only, since it may need unlimited time and memory. math-verify parses the formulas. It gets
only notation that it reads completely (elsewhere it drops parts: `5\phantom{6}` becomes 11), without its own rules for
units, and decimals as fractions. Both are then evaluated to 60 digits at random values of their variables and must
agree to 40 digits of the larger: math-verify itself compares with an absolute tolerance, so 1/2004! and 1/2006!, which
differ by less than 10^-15, would be equal. Where values cannot decide (steps and bends between the points, an undefined
f), math-verify must find them equal too.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any

from reward_fns.mathematics.tokens import FUNCTION_COMMANDS, LETTER, MARK, NUMBER, RUN, VARIABLE_COMMANDS, Token, Tokens
from reward_fns.mathematics.value import agree, as_inexact, variable

_MOST_TOKENS = 300
_DEEPEST = 30
_POINTS = 4
_NONE = Token(MARK, "")
_READABLE = FUNCTION_COMMANDS.union(
    VARIABLE_COMMANDS,
    r"""+ - * / ^ _ ( ) [ ] { } ! | = , ' \frac \sqrt \pi \infty \binom \sum \prod \int \lim \to \lfloor \rfloor \lceil
    \rceil \gcd \max \min \det""".split(),
)


def same(gold: Tokens, answer: Tokens) -> bool:
    """Whether two formulas are equal. A formula with a value never equals one without."""
    from math_verify import verify
    from sympy import Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign

    theirs, ours = parsed(gold), parsed(answer)
    if theirs is None or ours is None or theirs == ours:
        return theirs is not None and ours is not None
    settled = not any(tree.has(Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign) for tree in (theirs, ours))
    for point in range(_POINTS if theirs.free_symbols or ours.free_symbols else 1):
        values = _point(point, theirs, ours)
        gap = (theirs - ours).subs(values).doit()
        if gap.is_Rational:  # exact: 3^100000 + 1 agrees with 3^100000 to more digits than are compared
            if gap:
                return False
            continue
        numbers = _number(theirs.subs(values)), _number(ours.subs(values))
        if numbers == (None, None):
            settled = False
        elif None in numbers or not agree(*numbers):
            return False
    return settled or bool(verify(theirs, ours, timeout_seconds=None, raise_on_error=True))


def check(gold: Tokens) -> None:
    """The work that every comparison with `gold` includes: a time-out here is caused by the reference."""
    if readable(gold) and (tree := parsed(gold)) is not None:
        _number(tree.subs(_point(0, tree)))


@lru_cache(maxsize=1024)
def parsed(tokens: Tokens) -> Any:
    """The formula as a sympy expression; `None` for a relation, a set, a pair, or what cannot be parsed."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse
    from sympy import Expr

    spelling = {"basic_latex": True, "units": False, "malformed_operators": True, "nits": False, "equations": False}
    plain = NormalizationConfig(**spelling, boxed="all")
    parses = parse(
        rf"\boxed{{{latex(tokens)}}}",
        [LatexExtractionConfig(normalization_config=plain, boxed_match_priority=0)],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return parses[0] if len(parses) == 1 and isinstance(parses[0], Expr) else None


def _point(point: int, *trees: Any) -> dict[Any, Any]:
    """Values for the variables, from `value.variable`, but integers if there is a sum."""
    from sympy import Product, Rational, Sum

    values = {symbol: variable(symbol.name, point) for tree in trees for symbol in tree.free_symbols}
    if any(tree.has(Sum, Product) for tree in trees):
        values = {symbol: Fraction(2 + value.numerator % 13) for symbol, value in values.items()}
    return {symbol: Rational(value.numerator, value.denominator) for symbol, value in values.items()}


def _number(fixed: Any) -> Any:
    """The value, or `None`."""
    parts = [part.doit().evalf(60) for part in fixed.evalf(60).as_real_imag()]
    return as_inexact(*map(str, parts)) if all(part.is_Number and part.is_finite for part in parts) else None


def readable(tokens: Tokens) -> bool:
    """Whether math-verify reads the notation completely, and the size is that of an answer."""
    if not 0 < len(tokens) <= _MOST_TOKENS:
        return False
    depth = 0
    for earlier, before, token in zip((_NONE, _NONE, *tokens), (_NONE, *tokens), tokens, strict=False):
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth > _DEEPEST or token.kind not in (NUMBER, LETTER, RUN) and token.text not in _READABLE:
            return False
        follows = before.kind in (NUMBER, LETTER, RUN) and earlier.text not in ("^", "_") or before.text == ")"
        if token.kind == NUMBER and follows or before.kind == NUMBER and token.text == "_":
            return False  # 2 3, x2, 11_2
    return True


def latex(tokens: Tokens) -> str:
    """In the spelling that math-verify reads best: exact decimals, separated letters, braces around an exponent."""
    parts: list[str] = []
    for before, token in zip((_NONE, *tokens), tokens, strict=False):
        text = r"\cdot" if token.text == "*" else token.text
        if token.kind == NUMBER and "." in text:
            integer, _, places = text.partition(".")
            text = rf"(\frac{{{int(integer + places)}}}{{{10 ** len(places)}}})"
        elif token.kind == RUN:
            text = " ".join(text)
        braced = before.text in ("^", "_") and token.kind in (NUMBER, LETTER)
        parts.append(f"{{{text}}}" if braced or before.text == r"\sqrt" and token.kind == NUMBER else text)
    return " ".join(parts)
