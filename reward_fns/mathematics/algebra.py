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

from reward_fns.mathematics.tokens import COMMAND, LETTER, MARK, NUMBER, RUN, Token
from reward_fns.mathematics.value import agree, as_inexact, variable

Tokens = tuple[Token, ...]

_MOST_TOKENS = 300
_DEEPEST = 30
_POINTS = 4
_COMMANDS = frozenset(
    r"""\frac \sqrt \pi \infty \binom \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \log \ln
    \exp \sum \prod \int \lim \to \lfloor \rfloor \lceil \rceil \gcd \max \min \det \alpha \beta \gamma \delta \epsilon
    \varepsilon \zeta \eta \theta \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi \chi \psi \omega \Gamma \Delta \Theta
    \Lambda \Sigma \Phi \Psi \Omega""".split()
)
_MARKS = frozenset("+ - * / ^ _ ( ) [ ] { } ! | = , '".split())


def readable(tokens: Tokens) -> bool:
    """Whether a formula is in notation that math-verify reads in full, and of a size that makes sense for an answer."""
    if len(tokens) > _MOST_TOKENS:
        return False
    depth = 0
    for before, token in zip((None, *tokens), tokens, strict=False):
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind == MARK else 0
        if depth > _DEEPEST:
            return False
        known = (
            token.kind in (LETTER, RUN)
            or token.kind == NUMBER
            and not (before and (before.kind in (NUMBER, LETTER, RUN) or before.text == ")"))
            or token.kind == COMMAND
            and token.text in _COMMANDS
            or token.kind == MARK
            and token.text in _MARKS
            and not (token.text == "_" and before and before.kind == NUMBER)
        )
        if not known:
            return False
    return bool(tokens)


def same(gold: Tokens, answer: Tokens) -> bool:
    """Whether two formulas are equal; what has a value is not equal to what has none."""
    theirs, ours = parsed(gold), parsed(answer)
    if theirs is None or ours is None:
        return False
    if theirs == ours:
        return True
    settled = not (_bends(theirs) or _bends(ours))
    for point in range(_POINTS if theirs.free_symbols or ours.free_symbols else 1):
        values = _number(theirs, point, ours), _number(ours, point, theirs)
        if values == (None, None):
            settled = False
        elif None in values or not agree(*values):
            return False
    return settled or _verified(theirs, ours)


def check(gold: Tokens) -> None:
    """The work that any comparison with `gold` takes, so that a time-out here is the reference's own."""
    tree = parsed(gold)
    if tree is not None:
        _number(tree, 0, tree)


def _verified(theirs: Any, ours: Any) -> bool:
    from math_verify import verify

    return bool(verify(theirs, ours, timeout_seconds=None, raise_on_error=True))


def _bends(tree: Any) -> bool:
    from sympy import Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign

    return bool(tree.has(Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign))


@lru_cache(maxsize=1024)
def parsed(tokens: Tokens) -> Any:
    """The formula as sympy's, or `None` where there is none or it is no formula but a relation, a set or a pair."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse
    from sympy import Expr

    plain = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="all", equations=False
    )
    config = LatexExtractionConfig(normalization_config=plain, boxed_match_priority=0)
    found = parse(
        rf"\boxed{{{_latex(tokens)}}}",
        [config],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return found[0] if len(found) == 1 and isinstance(found[0], Expr) else None


def _number(tree: Any, point: int, other: Any) -> Any:
    """The value, if it has one, at the point that `value.variable` gives; at whole numbers if either holds a sum."""
    from sympy import Product, Rational, Sum

    found = {symbol: variable(symbol.name, point) for symbol in tree.free_symbols}
    if tree.has(Sum, Product) or other.has(Sum, Product):
        found = {symbol: Fraction(2 + value.numerator % 13) for symbol, value in found.items()}
    fixed = tree.subs({symbol: Rational(value.numerator, value.denominator) for symbol, value in found.items()})
    parts = [part.doit().evalf(60) for part in fixed.evalf(60).as_real_imag()]
    return as_inexact(*map(str, parts)) if all(part.is_Number and part.is_finite for part in parts) else None


def _latex(tokens: Tokens) -> str:
    """In the spelling that math-verify reads best: exact decimals, letters apart, braces around every argument."""
    written: list[str] = []
    wanted, depth = 0, 0  # arguments still to come, and braces open in the present one
    for token in tokens:
        for piece in token.text if wanted and not depth and token.kind == NUMBER and token.text.isdigit() else [token]:
            text = piece if isinstance(piece, str) else _spelled(piece)
            bare = wanted and not depth and text not in ("{", "[")
            written.append(f"{{{text}}}" if bare and text != "]" else text)
            depth += (text in ("{", "[")) - (text in ("}", "]")) if wanted else 0
            wanted -= bool(wanted and not depth and text != "]")
            wanted = _ARGUMENTS.get(text, wanted)
    return " ".join(written)


def _spelled(token: Token) -> str:
    if token.kind == NUMBER and "." in token.text:
        whole, _, places = token.text.partition(".")
        return rf"(\frac{{{int(whole + places)}}}{{{10 ** len(places)}}})"
    if token.kind == RUN:
        return " ".join(token.text)
    return r"\cdot" if token.text == "*" else token.text


_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1}
