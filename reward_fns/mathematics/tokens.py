r"""An answer as a list of symbols: the only module that handles the different spellings of LaTeX, text and Unicode.

Spelling without meaning is removed (`\left`, `\,`, `\dfrac`, `\leq`, `$`, `−`, `½`), and numbers get one form (`1,234`,
`1\frac{4}{5}`, `0.\overline{3}`, `0.333…`). Nothing else is dropped: an unknown command or character stays in the list,
and no later step skips it. So hidden text (`\phantom{6}`), look-alike letters and digits of other scripts make an
answer unreadable and not correct.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

NUMBER, COMMAND, LETTER, RUN, WORD, MARK = "number", "command", "letter", "run", "word", "mark"


class Token(NamedTuple):
    r"""A RUN is three or more bare letters (`abc`: a word or a product); a WORD was in `\text{…}` or is a unit."""

    kind: str
    text: str
    spaced: bool = False  # after white space


Tokens = tuple[Token, ...]

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_UNICODE = {
    "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "⁄": "/", "∕": "/", "√": r"\sqrt ",
    "∞": r"\infty ", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "=", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "°": r"^\circ ", "º": r"^\circ ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "⟨": r"\langle ", "⟩": r"\rangle ", "…": r"\dots ", "∠": r"\angle ", "’": "'", "′": "'", "∨": r"\lor ",
    "∧": r"\land ", "€": r"\text{euro}", "£": r"\text{pound sterling}", "\0": " ", "\1": " ",
}  # fmt: skip
_UNICODE |= dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", "")
_UNICODE |= dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003", " ")
_UNICODE |= dict(zip("αβγδεζηθικλμνξπρστφχψω", (rf"\{name} " for name in _GREEK.split()), strict=True))
_UNICODE |= {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}  # full-width forms of ASCII
for _char in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞":
    _UNICODE[_char] = r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", _char).split("⁄"))
_UNICODE_TABLE = str.maketrans(_UNICODE)

# One spelling for each meaning.
_SAME = {
    r"\cdot": "*", r"\times": "*", r"\ast": "*", r"\div": "/", "**": "^", "==": "=", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\lt": "<", r"\gt": ">", r"\ne": "!=",
    r"\neq": "!=", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lvert": "|", r"\rvert": "|", r"\vert": "|", r"\mid": "|",
    r"\|": "|", r"\%": "%", r"\varnothing": r"\emptyset", r"\lor": "or", r"\vee": "or", r"\land": "and",
    r"\wedge": "and", r"\lbrack": "[", r"\rbrack": "]", r"\ldots": r"\dots", r"\cdots": r"\dots", "...": r"\dots",
    r"\approx": "=", r"\simeq": "=", r"\colon": ":", r"\backslash": r"\setminus", r"\varphi": r"\phi",
}  # fmt: skip
FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp".split())
FUNCTION_COMMANDS = frozenset(rf"\{name}" for name in FUNCTIONS)
VARIABLE_COMMANDS = frozenset(  # all Greek letters but pi
    rf"\{name}" for name in f"{_GREEK} varepsilon Gamma Delta Theta Lambda Sigma Phi Psi Omega".split() if name != "pi"
)
# Plain words that mean a symbol.
_PLAIN = {name: "\\" + name for name in (*FUNCTIONS, "sqrt", *_GREEK.split())}
_PLAIN |= {"infinity": r"\infty", "inf": r"\infty", "percent": "%", "pct": "%", "or": "or", "and": "and"}
_UNITS_OF_TWO = frozenset("cm mm km kg mg ml ft lb oz hr st nd rd th pm am".split())
_WORDS_OF_TWO = frozenset("mi sq cu is of in no".split())

_LEXEME = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<text>\x00[^\x00]*\x00)|(?P<command>\\[A-Za-z]+|\\.)|(?P<letters>[A-Za-z]+)"
    r"|(?P<mark><=|>=|!=|==|\*\*|\.\.\.|[^\s])",
    re.ASCII,
)
_ARGUMENT = r"\{[^{}]*\}|\\pi(?![A-Za-z])|[0-9A-Za-z]"
_DIGITS = r"\{\s*(\d{1,9})\s*\}"
_SPELLINGS: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+", lambda match: "^{" + match[0].translate(_SUPERSCRIPTS) + "}"),
    (".+", lambda match: match[0].translate(_UNICODE_TABLE)),
    (r"\\operatorname\*?\s*\{([A-Za-z]+)\}", r"\\\1 "),
    (r"\\[dtc](frac|binom)(?![A-Za-z])", r"\\\1"),
    (r"([_^])\s*\{\s*(\d+|[A-Za-z]|\\[A-Za-z]+)\s*\}", r"\1\2 "),  # x^{2}
    (rf"\\(frac|binom)(?![A-Za-z])\s*({_ARGUMENT})\s*({_ARGUMENT})", lambda match: _braced(*match.groups())),  # \frac12
    (
        r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|mathrm|hbox)\s*\{([^{}]*)\}",
        lambda match: f"\0{match[1]}\0" if re.search("[A-Za-z]", match[1]) else f" {match[1]} ",
    ),
    (r"\(([0-9A-F]+)\)(?=_)", r"\1"),  # (52)_8
    (r"(?<=\d)_10(?!\d)", ""),
    (r"(?<=[)\]])\s*U\s*(?=[(\[])", r"\\cup "),
    (r"(?<=\d)\s*(?:\{\s*,\s*\}|,\s*\\!)\s*(?=\d{3}(?!\d))", ""),  # 10,\!080 and 10{,}080
    (
        r"(?<![\d.,/^_{])([1-9]\d{0,2})((?:(?:\\[,;]|~| ) ?\d{3})+)(?![\d,/])",  # 10\,080 and 10 080
        lambda match: match[1] + re.sub(r"\D", "", match[2]),
    ),
    (
        r"(?P<row>\\\\)|\\(?:left|right|(?:[Bb]igg?)[lrm]?|displaystyle|textstyle|limits|nolimits|mathstrut|quad|qquad"
        r"|space|mathbf|mathit|mathsf|boldsymbol|bm|rm|bf|it)(?![A-Za-z])|\\(?:text)?color\s*\{[A-Za-z]{1,20}\}"
        r"|\\[,;:> \n\t]|~|\\[()\[\]]|\\!",
        lambda match: match["row"] or " ",
    ),
    (
        r"(?<![\d.])(\d{0,99}\.\d{0,99})(?:\\(?:overline|bar|dot)\s*(?:\{(\d{1,99})\}|(\d))"
        r"|\s*(?:\\[lc]?dots(?![A-Za-z])|\.{3,4})(?!\s*\d))",
        lambda match: _repeating(match[1], match[2] or match[3]) if match[2] or match[3] else _continued(match),
    ),
    (rf"(?<![\d.^_])(\d{{1,9}})\s*\\frac{_DIGITS}{_DIGITS}(?!\d)", lambda match: _mixed(*match.groups())),
    (r"(?<![\d.^_,/])(\d{1,9})\s+(\d{1,9})/(\d{1,9})(?![\d.])", lambda match: _mixed(*match.groups())),
]
_REWRITES = [(re.compile(pattern, re.ASCII | re.DOTALL), replacement) for pattern, replacement in _SPELLINGS]
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\S)", re.ASCII)
_SINGLE = re.compile(r"(?<!\d)\{(\w|\\[A-Za-z]+)\}", re.ASCII)  # \sqrt{2}, {x}
_SPACE = re.compile(r" (?![A-Za-z0-9.])|(?<![A-Za-z0-9.\\]) ")
ROUNDED = 6  # significant digits a rounded decimal must have to stand for 1/3 or pi
_PERIOD = re.compile(r"(\d)\1\1+$|(\d{2,}?)\2+$", re.ASCII)
_ENDS = "$.,;: \t\r\n*`\\"
_STARTS = "$,;: \t\r\n*`+"


def tokenize(text: str) -> Tokens:
    r"""The symbols of one answer, in order, without the full stop, the `$` and the `**` around it."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.replace(r"\$", "\1").replace("$", " ")
    text = text.lstrip(_STARTS).rstrip(_ENDS).replace("\1", r"\$")
    text = _THOUSANDS.sub(
        lambda match: match[0] if _bracketed(text[: match.start()]) else match[0].replace(",", ""), text
    )
    return tuple(_lex(text))


def _braced(command: str, *arguments: str) -> str:
    return "\\" + command + "".join(f"{{{argument.strip('{}')}}}" for argument in arguments)


def _repeating(digits: str, period: str) -> str:
    r"""0.1\overline{6} is 1/6."""
    shift = 10 ** len(digits.partition(".")[2])
    value = Fraction(f"0{digits}0") + Fraction(int(period), shift * (10 ** len(period) - 1))
    return str(value) if value.denominator == 1 else _braced("frac", str(value.numerator), str(value.denominator))


def _continued(match: re.Match[str]) -> str:
    """0.1666… is 1/6 if the digits show the period: one digit three times, several digits twice.

    In a long decimal digits also repeat by chance: 2.718281828... is e. It stays as it is, and is compared as a rounded
    number (`formula`), unless the period begins at the point.
    """
    integer, _, places = match[1].partition(".")
    period = _PERIOD.search(places)
    is_long = len(f"{integer}{places}".lstrip("0")) >= ROUNDED
    if period and period.start() and is_long and match[0].endswith("..."):
        return match[0]
    return _repeating(f"{integer}.{places[: period.start()]}", period[1] or period[2]) if period else match[0]


def _mixed(integer: str, top: str, below: str) -> str:
    r"""1\frac{4}{5} is 9/5. An improper fraction there, as in 2\frac{3}{2}, has no agreed meaning."""
    a, b, c = int(integer), int(top), int(below)
    return rf"\frac{{{a * c + b}}}{{{c}}}" if 0 < b < c else rf"{integer}\improper\frac{{{top}}}{{{below}}}"


def _bracketed(before: str) -> bool:
    """Whether a comma here separates the items of a bracket: (1,234) is a pair."""
    return sum(map(before.count, ("(", "[", r"\{", r"\begin"))) > sum(map(before.count, (")", "]", r"\}", r"\end")))


def _lex(text: str) -> list[Token]:
    tokens: list[Token] = []
    end = 0
    for lexeme in _LEXEME.finditer(text):
        spaced, end = lexeme.start() > end, lexeme.end()
        if lexeme["number"]:
            tokens.append(Token(NUMBER, lexeme["number"], spaced))
        elif lexeme["text"]:
            tokens += _words(lexeme["text"][1:-1])
        elif lexeme["letters"]:
            tokens += _letters(lexeme["letters"], spaced, bool(tokens) and tokens[-1].kind == NUMBER)
        else:
            same = _SAME.get(lexeme.group(), lexeme.group())
            tokens.append(Token(COMMAND if re.fullmatch(r"\\[A-Za-z]+", same) else MARK, same, spaced))
    return tokens


def _letters(run: str, spaced: bool, after_number: bool) -> list[Token]:
    """Bare letters: the name of a symbol, a word, or a product of variables."""
    if symbol := _PLAIN.get(run.lower() if len(run) > 3 else run):
        return [Token(COMMAND if symbol[0] == "\\" else MARK, symbol, spaced)]
    unit = run.lower() in _UNITS_OF_TWO and (spaced or after_number) or run.lower() in _WORDS_OF_TWO and spaced
    if unit or run.lower() == "no":
        return [Token(WORD, run, spaced)]
    if len(run) >= 3:
        return [Token(RUN, run, spaced)]
    return [Token(LETTER, letter, spaced and not index) for index, letter in enumerate(run)]


def _words(text: str) -> list[Token]:
    r"""The content of `\text{…}`: two or more letters are a word, the rest is as outside."""
    if re.fullmatch(r"\s*[A-Za-z]{2}\s*", text) and text.strip() not in _PLAIN:
        return [Token(WORD, text.strip(), True)]
    lexed = _lex(text.replace("\\", " \\"))
    return [Token(WORD if token.kind == RUN else token.kind, token.text, True) for token in lexed]


def plain(tokens: Tokens) -> str:
    """The tokens as one text, with white space only between letters or digits and braces only around several."""
    text = _SPACE.sub("", " ".join(token.text for token in tokens))
    return _SPACE.sub("", _SINGLE.sub(r" \1", text))
