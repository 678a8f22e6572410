r"""What surrounds a number without being part of its value: units, money, degrees, percent.

Either side may leave the unit out; different units are different answers (5 cm is not 5 m, 5 cm not 5 cm²). Any word
can be a unit ("12 apples"), so the words that change a number's meaning are listed instead: numerals, multipliers,
connectives and negations.
"""

import re
from typing import NamedTuple

from reward_fns.mathematics.tokens import FUNCTIONS, LETTER, MARK, NUMBER, RUN, WORD, Token, Tokens

_MOST_WORDS = 4

# Words that make the number before them another number, or one of several. The list need not be complete: the number
# before the words is the only one in the answer, and has to be correct.
NOT_UNITS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    dozen score half halves third thirds fourth fourths quarter quarters fifth fifths sixth sixths tenth tenths
    hundredth hundredths thousandth thousandths squared cubed factorial root power mod modulo base plus minus times
    divided over not nor neither but except or and if when unless either maybe perhaps versus vs than less more fewer
    least most between through up until about approximately around almost nearly roughly wrong incorrect false true yes
    no choose pi thereof remainder twice thrice double triple""".split()
)
_COMPARED = ("more", "fewer", "less")
_ALIASES = {
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "millimetre": "mm", "kilometer": "km",
    "kilometre": "km", "meter": "m", "metre": "m", "inch": "in", "foot": "ft", "feet": "ft", "yard": "yd",
    "mile": "mi", "pound": "lb", "ounce": "oz", "gram": "g", "kilogram": "kg", "milligram": "mg", "second": "s",
    "sec": "s", "minute": "min", "hour": "h", "hr": "h", "liter": "l", "litre": "l", "milliliter": "ml",
    "millilitre": "ml", "dollar": "$", "usd": "$", "degree": "deg", "radian": "rad", "mph": "mi/h",
    "celsius": "C", "fahrenheit": "F",
}  # fmt: skip
_ALIASES |= {f"{name}s": unit for name, unit in _ALIASES.items()} | {"inches": "in", "lbs": "lb", "yds": "yd"}
_ALIASES |= dict.fromkeys(("st", "nd", "rd", "th", "a", "an", "the", "of"), "") | {"per": "/"}
_SQUARES = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_LETTERS = set("mgslhLNJWVAKCF")  # units of one letter, if separated from the number
_POWERS = {"hundred": "2", "thousand": "3", "million": "6", "billion": "9", "trillion": "12"}
# An optional degree sign and a unit: words with powers, or one separated letter. In the letters of `_code`.
_WORD = r"(?:w|(?<=n)L|(?<=[o/])[lL])(?:\^n)?"
_SUFFIX = re.compile(rf"(\^o)?({_WORD}(?:/?{_WORD})*)?$")


class Quantity(NamedTuple):
    body: Tokens
    unit: str = ""
    percent: bool = False


def quantity(tokens: Tokens) -> Quantity:
    """Split a number, or any other formula, from what surrounds it."""
    currency = ""
    for index, token in enumerate(tokens[:2]):
        if token.text == r"\$" and (index == 0 or tokens[0].text == "-"):
            tokens, currency = tokens[:index] + tokens[index + 1 :], "$"
    body, unit = _suffix(tokens)
    percent = len(body) > 1 and body[-1].text == "%"
    return Quantity(body[:-1] if percent else body, currency if unit == currency else currency + unit, percent)


def _suffix(tokens: Tokens) -> tuple[Tokens, str]:
    match = _SUFFIX.search("".join(map(_code, tokens)), 1)
    if not tokens or not match or any(token.text[1:] in FUNCTIONS for token in tokens):
        return tokens, ""
    body, tail = tokens[: match.start()], tokens[match.start() + 2 * bool(match[1]) :]
    if tail and len(body) == 1 and (power := _POWERS.get(tail[0].text.lower())):  # 1.5 million
        body, tail = (*body, Token(MARK, "*"), Token(NUMBER, "10"), Token(MARK, "^"), Token(NUMBER, power)), tail[1:]
    if len(tail) > 1 and tail[0].text.lower() in _COMPARED:  # 5 more apples
        tail = tail[1:]
    words = [token.text.lower() for token in tail if token.kind in (WORD, RUN)]
    if len(words) > _MOST_WORDS or any(word in NOT_UNITS for word in words):
        return tokens, ""
    if tail and not any(token.kind == NUMBER for token in body) or body[-1].text in "=+-*/^_<>(,":
        return tokens, ""
    return body, "deg" * bool(match[1]) + _name(tail)


def _code(token: Token) -> str:
    if token.kind == LETTER and token.text in _LETTERS:
        return "L" if token.spaced else "l"
    if token.kind == WORD or token.kind == RUN and token.spaced:
        return "w"
    return "n" if token.kind == NUMBER else {"^": "^", "/": "/", r"\circ": "o"}.get(token.text, ".")


def _name(tail: Tokens) -> str:
    """One spelling per unit: square inches, inches^2 and sq in are in^2."""
    power, parts = "", []
    for token in tail:
        text = token.text.lower() if token.kind in (WORD, RUN) else token.text
        singular = text[:-1] if len(text) > 3 and text.endswith("s") and not text.endswith("ss") else text
        power = _SQUARES.get(text, power)
        if text not in _SQUARES:
            parts.append(_ALIASES.get(text, _ALIASES.get(singular, singular)))
    return "".join(parts) + power
