r"""What stands around a number without being part of its value: units, money, degrees, percent, a base.

An answer may leave out the unit that the reference gives, or give one that the reference leaves out; two units that
differ are two answers (5 cm is not 5 m, 5 cm not 5 cm²). Any words of the language can be a unit ("12 apples"), so the
words that change a number's meaning are listed instead: numerals, multipliers, connectives and negations.

A numeral in another base keeps its base: 11 in base 2 is neither 11 nor, so that a question "write 11₂ in base ten"
cannot be answered by its own text, 3.
"""

import re
from typing import NamedTuple

from reward_fns.mathematics.tokens import FUNCTIONS, LETTER, MARK, NUMBER, RUN, WORD, Token

_MOST_WORDS = 4

# Words after which a number is another number, or one of several. Not exhaustive as English; it need not be: whatever
# the words say, the number in front of them is the only one in the answer, and has to be right.
_NOT_UNITS = set(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    dozen score half halves third thirds fourth fourths quarter quarters fifth fifths sixth sixths tenth tenths
    hundredth hundredths thousandth thousandths squared cubed factorial root power mod modulo base plus minus times
    divided over not nor neither but except or and if when unless either maybe perhaps versus vs than less more fewer
    least most between through up until about approximately around almost nearly roughly wrong incorrect false true yes
    no choose pi thereof remainder""".split()
)
_DROPPED = {"st", "nd", "rd", "th"}  # ordinals
_ALIASES = {
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "millimetre": "mm", "kilometer": "km",
    "kilometre": "km", "meter": "m", "metre": "m", "inch": "in", "foot": "ft", "feet": "ft", "yard": "yd",
    "mile": "mi", "pound": "lb", "ounce": "oz", "gram": "g", "kilogram": "kg", "milligram": "mg", "second": "s",
    "sec": "s", "minute": "min", "hour": "h", "hr": "h", "liter": "l", "litre": "l", "milliliter": "ml",
    "millilitre": "ml", "dollar": "$", "usd": "$", "degree": "deg", "radian": "rad", "mph": "mi/h",
    "celsius": "C", "fahrenheit": "F",
}  # fmt: skip
_ALIASES |= {f"{name}s": unit for name, unit in _ALIASES.items()} | {"inches": "in", "lbs": "lb", "yds": "yd"}
_LETTERS = set("mgslhLNJWVAKCF")  # units of one letter, when set apart from the number
_POWERS = {"hundred": "2", "thousand": "3", "million": "6", "billion": "9", "trillion": "12"}
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"}
_BASES |= {"ten": "10", "twelve": "12", "sixteen": "16"}


class Quantity(NamedTuple):
    """`unit` and `base` are "" where none is given."""

    body: tuple[Token, ...]
    unit: str
    percent: bool
    base: str


def quantity(tokens: tuple[Token, ...]) -> Quantity:
    """A number, or any other formula, apart from what stands around it."""
    if numeral := _numeral(tokens):
        return numeral
    body, currency = _money(tokens)
    body, unit = _suffix(body)
    unit = currency if unit == currency else currency + unit
    percent = len(body) > 1 and body[-1].text == "%"
    return Quantity(body[:-1] if percent else body, unit, percent, "")


def _numeral(tokens: tuple[Token, ...]) -> Quantity | None:
    """Digits with a subscript: 52_8, 52_{8}, (1A)_{16}, 1011_{two}."""
    written = "".join(token.text for token in tokens)
    match = re.fullmatch(r"(-?)\(?([0-9A-F]+)\)?_(?:\{(\w+)\}|(\w+))", written, re.ASCII)
    if not match or not re.search(r"\d", match[2]):
        return None
    base = match[3] or match[4]
    base = _BASES.get(base.lower(), base)
    if not re.fullmatch(r"[1-9]\d?", base):
        return None
    digits = match[2].lstrip("0") or "0"
    if base == "10" and digits.isdigit():
        sign = (Token(MARK, "-", False),) if match[1] else ()
        return Quantity((*sign, Token(NUMBER, digits, False)), "", False, "")
    return Quantity((Token(WORD, match[1] + digits, False),), "", False, base)


def _money(tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], str]:
    for index, token in enumerate(tokens[:2]):
        if token.text == r"\$" and (index == 0 or tokens[0].text == "-"):
            return tokens[:index] + tokens[index + 1 :], "$"
    return tokens, ""


def _suffix(tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], str]:
    """The unit behind a number: words with their powers, a degree sign, or one letter set apart."""
    at = len(tokens)
    while at > 1 and (length := _unit_token(tokens, at)):
        at -= length
    body, tail = _scaled(tokens[:at], tokens[at:])
    degrees = ""
    if len(body) > 2 and _is_degree(body) and not any(token.text[1:] in FUNCTIONS for token in body):
        body, degrees = (body[:-4] if body[-1].text == "}" else body[:-2]), "deg"
    if not tail:
        return (body, degrees) if body else (tokens, "")
    words = [token for token in tail if token.kind in (WORD, RUN)]
    if len(words) > _MOST_WORDS or any(token.text.lower() in _NOT_UNITS for token in words):
        return tokens, ""
    if not body or not any(token.kind == NUMBER for token in body) or body[-1].text in "=+-*/^_<>(,":
        return tokens, ""
    return body, degrees + _name(tail)


def _scaled(body: tuple[Token, ...], tail: tuple[Token, ...]) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """1.5 million is 1.5 * 10^6."""
    if tail and len(body) == 1 and (power := _POWERS.get(tail[0].text.lower())):
        power_of_ten = ((MARK, "*"), (NUMBER, "10"), (MARK, "^"), (NUMBER, power))
        return body + tuple(Token(kind, text, False) for kind, text in power_of_ten), tail[1:]
    return body, tail


def _unit_token(tokens: tuple[Token, ...], at: int) -> int:
    """How many tokens before `at` belong to a unit: a word or letter, with its power, or a slash between two."""
    last = tokens[at - 1].text
    if last == "/":
        return 1 if _is_unit(tokens, at - 1) else 0
    if tokens[at - 1].kind == NUMBER and at > 2 and tokens[at - 2].text == "^":
        return 2 if _is_unit(tokens, at - 2) else 0
    if last == "}" and at > 4 and [token.text for token in tokens[at - 4 : at - 2]] == ["^", "{"]:
        return 4 if tokens[at - 2].kind == NUMBER and _is_unit(tokens, at - 4) else 0
    return 1 if _is_unit(tokens, at) else 0


def _is_unit(tokens: tuple[Token, ...], at: int) -> bool:
    if at < 1:
        return False
    last, before = tokens[at - 1], [token.text for token in tokens[max(0, at - 5) : at - 1]]
    if last.kind != LETTER:
        return last.kind == WORD or last.kind == RUN and last.spaced
    if before and (before[-1] == r"\circ" or before[-2:] == [r"\circ", "}"]):
        return last.text in "CF"
    if before and before[-1] == "/":
        return last.text in _LETTERS and _is_unit(tokens, at - 2)
    return last.spaced and last.text in _LETTERS and at > 1 and tokens[at - 2].kind == NUMBER


def _is_degree(body: tuple[Token, ...]) -> bool:
    last = [token.text for token in body[-4:]]
    return last[-2:] == ["^", r"\circ"] or last == ["^", "{", r"\circ", "}"]


def _name(tail: tuple[Token, ...]) -> str:
    """One spelling for each unit: square inches, inches^2 and sq in are in^2."""
    power, parts = "", []
    for token in tail:
        text = token.text.lower() if token.kind in (WORD, RUN) else token.text
        if text in _DROPPED or text in "{}" or text in ("a", "an", "the", "of"):
            continue
        if text in ("square", "sq"):
            power = "^2"
        elif text in ("cubic", "cu"):
            power = "^3"
        elif text == "per":
            parts.append("/")
        else:
            singular = text[:-1] if len(text) > 3 and text.endswith("s") and not text.endswith("ss") else text
            parts.append(_ALIASES.get(text, _ALIASES.get(singular, singular)))
    return "".join(parts) + power
