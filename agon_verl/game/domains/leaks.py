r"""Whether an attempt still gives its answer away: two measures, independent of the rules that withhold.

`contains` asks whether the answer is anywhere in the text. It overcounts: a small number is often there for other
reasons, as 2 is in `x^2`. `states` asks whether it stands there as a result: after a sign of equality, an arrow or a
word such as "is" or "gives", or alone on a line. It knows nothing of the problem, so it also counts a value that the
problem gives (`a_1 = 1`) and an equation that is to be solved (`2x = 2`).

Both read text. `states` also knows a rational number in its other usual notations; what only algebra can call equal,
neither sees. Neither shares code with `restatements`: a rule that is measured by itself finds nothing.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from agon_verl.game.domains.domain import WITHHELD, squash

_LONGEST = 60  # characters of an answer that is read as a number
_MOST = 240  # characters of an answer that is looked for token by token; a longer one is in the text or it is not
_RATIONAL = re.compile(r"(-?)\s*(?:\\frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+)|(\d*\.?\d+))\s*(\\?%)?", re.ASCII)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\\?[^\W\d_]+|[^\w\s]|_")
_RESULT = re.compile(
    r"(?:[=≈≃→⇒:]|\\(?:approx|simeq|equiv|implies|rightarrow|to|therefore)"
    r"|\b(?:is|are|was|be|equals?|equal to|becomes?|gives?|giving|gets?|obtain|yields?|have|has|makes?|leaves?|find|in|"
    r"total|of|to|as|thus|so|therefore|hence|exactly|approximately|about|only|can \w+))[\s,:{~]*$"
)
_THIN = re.compile(r"\\?\$|\\[!,;]|\{,\}")
_MARKUP = re.compile(r"\\[:() \[\]]|\*\*|\\(?:left|right|displaystyle|quad|qquad)(?![a-z])|[&`]")
_WORDS = re.compile(r"\\(?:text|textbf|mathrm|mbox|mathbf)\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def contains(shown: str, answer: str) -> bool:
    """Whether `answer` is in `shown` as a token, ignoring white space, `$` and thousands commas.

    5 is in "= 5" and "$5$", not in "15", "5.2" or "-5".
    """
    text, wanted = _plain(shown), _plain(answer)
    if squash(wanted) not in squash(text):
        return False
    return len(wanted) > _MOST or any(True for _ in _occurrences(text, wanted))


def states(shown: str, answer: str) -> bool:
    """Whether `shown` states `answer` as a result."""
    text = _plain(shown)
    wanted = _plain(answer).strip(" .\\\n")
    packed = squash(text)
    if len(wanted) > _MOST:
        return squash(wanted) in packed
    for form in {wanted, *_notations(_plain(answer))}:
        if form and squash(form) in packed and any(_is_result(text, *span) for span in _occurrences(text, form)):
            return True
    return False


def _is_result(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 40) : start], text[end : end + 20]
    if re.match(r"\s*[+*/^×÷·<>_(-]|\s*\\(?:cdot|times|div|frac|sqrt|pm)|\s*(?:times|more|less|fewer)\b", after):
        return False
    alone = re.search(r"(?:^|\n)[\s>*]*$", before) and re.match(r"[\s.*]*(?:\n|$)", after)
    return bool(alone or _RESULT.search(before.rstrip("\n\t ") + " "))


def _notations(answer: str) -> set[str]:
    """A rational number as a decimal, a fraction and a percentage."""
    match = _RATIONAL.fullmatch(answer.strip()) if len(answer) <= _LONGEST else None
    if not match:
        return set()
    sign, top, below, over, under, decimal, percent = match.groups()
    if decimal is None and int(below or under) == 0:
        return set()
    value = Fraction(decimal) if decimal else Fraction(int(top or over), int(below or under))
    value = value / 100 if percent else value
    p, q = value.as_integer_ratio()
    forms = {f"\\frac{{{p}}}{{{q}}}", f"{p}/{q}"} if q > 1 else {str(p), f"{p}.0", f"{p}.00"}
    if pow(10, 6, q) == 0:  # a finite decimal of at most six places
        forms.add(f"{float(value):.6f}".rstrip("0").rstrip("."))
        if percent or value < 1:
            forms |= {f"{float(100 * value):.6f}".rstrip("0").rstrip(".") + sign for sign in ("%", "\\%")}
    return {("-" if sign else "") + form for form in forms}


def _occurrences(text: str, answer: str) -> Iterator[tuple[int, int]]:
    if tokens := _TOKEN.findall(answer):
        left = r"(?<![\w.\-])" if tokens[0][0].isalnum() else ""
        right = r"(?!\w|\.\d)" if tokens[-1][-1].isalnum() else ""
        for match in re.finditer(left + r"\s*".join(map(re.escape, tokens)) + right, text):
            yield match.span()


def _plain(text: str) -> str:
    r"""Lower case, without markup, thousands commas, the `\text{}` around words and the marker of a withheld answer."""
    text = _MARKUP.sub(" ", _THIN.sub("", text.replace(WITHHELD, " ; ").casefold()))
    return _THOUSANDS.sub("", _WORDS.sub(r"\1", re.sub(r"\\[dt]frac", r"\\frac", text)))
