r"""Two formulas decided with math-verify: what is left when text, form and value have not decided.

Runs in a worker only: it can take for ever, and all the memory there is. math-verify reads the formulas, and is given
only notation that it is known to read (of the rest it drops parts: it reads `5\phantom{6}` as 11), without its own
guesses at units, and with decimals as fractions. They are then evaluated to 60 digits at random values of their
variables, and have to agree to 40 of the larger: math-verify itself compares sizes absolutely, so that 1/2004! and
1/2006!, which differ by less than 10^-15, are the same to it. Where values do not settle it, for steps and bends
between the points or an f that is not given, math-verify has to find them equal as well.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any

from reward_fns.mathematics.tokens import LETTER, MARK, NUMBER, RUN, Token, Tokens
from reward_fns.mathematics.value import agree, as_inexact, variable

_MOST_TOKENS = 300
_DEEPEST = 30
_POINTS = 4
_NONE = Token(MARK, "")
_KNOWN = frozenset(
    r"""+ - * / ^ _ ( ) [ ] { } ! | = , ' \frac \sqrt \pi \infty \binom \sin \cos \tan \cot \sec \csc \arcsin \arccos
    \arctan \sinh \cosh \tanh \log \ln \exp \sum \prod \int \lim \to \lfloor \rfloor \lceil \rceil \gcd \max \min \det
    \alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi
    \chi \psi \omega \Gamma \Delta \Theta \Lambda \Sigma \Phi \Psi \Omega""".split()
)


def same(gold: Tokens, answer: Tokens) -> bool:
    """Whether two formulas are equal; what has a value is not equal to what has none."""
    from math_verify import verify
    from sympy import Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign

    theirs, ours = parsed(gold), parsed(answer)
    if theirs is None or ours is None or theirs == ours:
        return theirs is not None and ours is not None
    settled = not any(tree.has(Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign) for tree in (theirs, ours))
    for point in range(_POINTS if theirs.free_symbols or ours.free_symbols else 1):
        values = _point(point, theirs, ours)
        gap = (theirs - ours).subs(values).doit()
        if gap.is_Rational:  # exactly: 3^100000 + 1 agrees with 3^100000 to more digits than are looked at
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
    """The work that any comparison with `gold` takes, so that a time-out here is the reference's own."""
    if readable(gold) and (tree := parsed(gold)) is not None:
        _number(tree.subs(_point(0, tree)))


@lru_cache(maxsize=1024)
def parsed(tokens: Tokens) -> Any:
    """The formula as sympy's, or `None` where there is none or it is no formula but a relation, a set or a pair."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse
    from sympy import Expr

    plain = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="all", equations=False
    )
    found = parse(
        rf"\boxed{{{latex(tokens)}}}",
        [LatexExtractionConfig(normalization_config=plain, boxed_match_priority=0)],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return found[0] if len(found) == 1 and isinstance(found[0], Expr) else None


def _point(point: int, *trees: Any) -> dict[Any, Any]:
    """Values for the variables, those of `value.variable`, but whole numbers if there is a sum."""
    from sympy import Product, Rational, Sum

    found = {symbol: variable(symbol.name, point) for tree in trees for symbol in tree.free_symbols}
    if any(tree.has(Sum, Product) for tree in trees):
        found = {symbol: Fraction(2 + value.numerator % 13) for symbol, value in found.items()}
    return {symbol: Rational(value.numerator, value.denominator) for symbol, value in found.items()}


def _number(fixed: Any) -> Any:
    """The value, if it has one."""
    parts = [part.doit().evalf(60) for part in fixed.evalf(60).as_real_imag()]
    return as_inexact(*map(str, parts)) if all(part.is_Number and part.is_finite for part in parts) else None


def readable(tokens: Tokens) -> bool:
    """Whether a formula is in notation that math-verify reads in full, and of a size that makes sense for an answer."""
    if not 0 < len(tokens) <= _MOST_TOKENS:
        return False
    depth = 0
    for earlier, before, token in zip((_NONE, _NONE, *tokens), (_NONE, *tokens), tokens, strict=False):
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth > _DEEPEST or token.kind not in (NUMBER, LETTER, RUN) and token.text not in _KNOWN:
            return False
        follows = before.kind in (NUMBER, LETTER, RUN) and earlier.text not in ("^", "_") or before.text == ")"
        if token.kind == NUMBER and follows or before.kind == NUMBER and token.text == "_":
            return False  # 2 3, x2, 11_2
    return True


def latex(tokens: Tokens) -> str:
    """In the spelling that math-verify reads best: exact decimals, letters apart, braces around an exponent."""
    written: list[str] = []
    for before, token in zip((_NONE, *tokens), tokens, strict=False):
        text = r"\cdot" if token.text == "*" else token.text
        if token.kind == NUMBER and "." in text:
            whole, _, places = text.partition(".")
            text = rf"(\frac{{{int(whole + places)}}}{{{10 ** len(places)}}})"
        elif token.kind == RUN:
            text = " ".join(text)
        braced = before.text in ("^", "_") and token.kind in (NUMBER, LETTER)
        written.append(f"{{{text}}}" if braced or before.text == r"\sqrt" and token.kind == NUMBER else text)
    return " ".join(written)
