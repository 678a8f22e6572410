r"""An answer as a list of symbols: the one place that knows how LaTeX, plain text and Unicode write the same thing.

Spelling that carries no meaning goes here (`\left`, `\,`, `\dfrac`, `\leq`, `$`, `−`, `½`). Nothing else is dropped: a
command or a character that is not known stays in the list, where no later step will read past it. So hidden text
(`\phantom{6}`), look-alike letters and digits of other scripts make an answer unreadable rather than right.
"""

import re
from typing import NamedTuple

NUMBER, COMMAND, LETTER, RUN, WORD, MARK = "number", "command", "letter", "run", "word", "mark"


class Token(NamedTuple):
    r"""A RUN is three or more bare letters (`abc`: a word or a product); a WORD stood in `\text{…}` or is a unit."""

    kind: str
    text: str
    spaced: bool  # white space stood in front of it


_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_FRACTIONS = {
    "½": "1/2",
    "⅓": "1/3",
    "⅔": "2/3",
    "¼": "1/4",
    "¾": "3/4",
    "⅕": "1/5",
    "⅖": "2/5",
    "⅗": "3/5",
    "⅘": "4/5",
}
_FRACTIONS |= {"⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_UNICODE = {
    "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "⁄": "/", "∕": "/", "√": r"\sqrt ",
    "∞": r"\infty ", "≤": "<=", "≥": ">=", "≠": "!=", "≈": r"\approx ", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "°": r"^\circ ", "º": r"^\circ ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "⟨": r"\langle ", "⟩": r"\rangle ", "…": r"\dots ", "∠": r"\angle ", "’": "'", "′": "'", "∨": r"\lor ",
    "∧": r"\land ", "€": r"\text{euro}", "£": r"\text{pound sterling}",
    "\0": " ", "\1": " ", "\u200b": "", "\u200c": "", "\u200d": "", "\u2060": "", "\ufeff": "", "\u00ad": "",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ",
}  # fmt: skip
_UNICODE |= dict(zip("αβγδεζηθικλμνξπρστφχψω", (rf"\{name} " for name in _GREEK.split()), strict=True))
_UNICODE |= {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}  # full-width forms of ASCII
_UNICODE |= {char: rf"\frac{{{value[0]}}}{{{value[2]}}}" for char, value in _FRACTIONS.items()}
_UNICODE_TABLE = str.maketrans(_UNICODE)
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")

_TEXT = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|mathrm|hbox)\s*\{([^{}]*)\}")
_OPERATOR = re.compile(r"\\operatorname\*?\s*\{([A-Za-z]+)\}")
_LAYOUT = re.compile(
    r"(?P<row>\\\\)|\\(?:left|right|(?:[Bb]igg?)[lrm]?|displaystyle|textstyle|limits|nolimits|mathstrut|quad|qquad|space"
    r"|mathbf|mathit|mathsf|boldsymbol|bm|rm|bf|it)(?![A-Za-z])|\\[,;:> \n\t]|~|\\[()\[\]]|\\!"
)
_JOINED_COMMA = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\s*\\!)\s*(?=\d{3}(?!\d))")  # 10,\!080 and 10{,}080
_JOINED_SPACE = re.compile(r"(?<![\d.,/^_{])([1-9]\d{0,2})((?:(?:\\[,;]|~| ) ?\d{3})+)(?![\d,/])")  # 10\,080, 10 080
_LEXEME = re.compile(
    r"(?P<number>\d+(?:\.(?:\d+|(?=\\overline)))?|\.\d+)|(?P<text>\x00[^\x00]*\x00)|(?P<command>\\[A-Za-z]+|\\.)|(?P<letters>[A-Za-z]+)"
    r"|(?P<mark><=|>=|!=|==|\*\*|\.\.\.|[^\s])",
    re.ASCII,
)

# One spelling for each meaning.
_SAME = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\dbinom": r"\binom", r"\tbinom": r"\binom",
    r"\cdot": "*", r"\times": "*", r"\ast": "*", r"\div": "/", "**": "^", "==": "=", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\lt": "<", r"\gt": ">", r"\ne": "!=",
    r"\neq": "!=", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lvert": "|", r"\rvert": "|", r"\vert": "|", r"\mid": "|",
    r"\|": "|", r"\%": "%", r"\varnothing": r"\emptyset", r"\lor": "or", r"\vee": "or", r"\land": "and",
    r"\wedge": "and", r"\lbrack": "[", r"\rbrack": "]", r"\ldots": r"\dots", r"\cdots": r"\dots", "...": r"\dots",
    r"\simeq": r"\approx", r"\colon": ":", r"\backslash": r"\setminus", r"\varphi": r"\phi",
}  # fmt: skip
FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp".split())
# Plain words that stand for a symbol.
_PLAIN = {name: "\\" + name for name in (*FUNCTIONS, "sqrt", *_GREEK.split())}
_PLAIN |= {
    "infinity": r"\infty",
    "inf": r"\infty",
    "percent": "%",
    "percentage": "%",
    "pct": "%",
    "or": "or",
    "and": "and",
}
_GLUED = re.compile(rf"({'|'.join(sorted(FUNCTIONS, key=len, reverse=True))}|pi)([a-zA-Z])")  # sinx, pir
_UNITS_OF_TWO = {"cm", "mm", "km", "kg", "mg", "ml", "ft", "lb", "oz", "hr", "st", "nd", "rd", "th", "pm", "am"}
_WORDS_OF_TWO = {"mi", "sq", "cu", "is", "of", "in"}
_ENDS = "$.,;: \t\r\n*`"


def tokenize(text: str) -> tuple[Token, ...]:
    r"""The symbols of one answer, in order, without the full stop, the `$` and the `**` around it."""
    text = _RAISED.sub(lambda match: "^{" + "".join(_SUPERSCRIPTS[char] for char in match.group()) + "}", text)
    text = text.translate(_UNICODE_TABLE)
    text = _OPERATOR.sub(r"\\\1 ", text)
    text = _TEXT.sub(lambda match: f"\0{match[1]}\0" if _LETTER.search(match[1]) else f" {match[1]} ", text)
    text = _JOINED_COMMA.sub("", text)
    text = _JOINED_SPACE.sub(lambda match: match[1] + re.sub(r"\D", "", match[2]), text)
    text = _LAYOUT.sub(lambda match: match["row"] or " ", text).replace(r"\$", "\1").replace("$", " ")
    text = text.lstrip(_ENDS.replace(".", "") + "+").rstrip(_ENDS).replace("\1", r"\$")
    return tuple(_join_thousands(_lex(text)))


_LETTER = re.compile("[A-Za-z]")


def _lex(text: str) -> list[Token]:
    found: list[Token] = []
    end = 0
    for lexeme in _LEXEME.finditer(text):
        spaced, end = lexeme.start() > end, lexeme.end()
        if lexeme["number"]:
            found.append(Token(NUMBER, lexeme["number"], spaced))
        elif lexeme["text"]:
            found += _words(lexeme["text"][1:-1])
        elif lexeme["letters"]:
            after_number = bool(found) and found[-1].kind == NUMBER
            found += _letters(lexeme["letters"], spaced, after_number)
        else:
            same = _SAME.get(lexeme.group(), lexeme.group())
            kind = COMMAND if re.fullmatch(r"\\[A-Za-z]+", same) else MARK
            found.append(Token(kind, same, spaced))
    return found


def _letters(run: str, spaced: bool, after_number: bool) -> list[Token]:
    """Bare letters: a name that stands for a symbol, a word, or variables side by side."""
    if symbol := _PLAIN.get(run.lower() if len(run) > 3 else run):
        return [Token(COMMAND if symbol[0] == "\\" else MARK, symbol, spaced)]
    if glued := _GLUED.fullmatch(run):
        return [Token(COMMAND, "\\" + glued[1], spaced), Token(LETTER, glued[2], False)]
    if run.lower() in _UNITS_OF_TWO and (spaced or after_number) or run.lower() in _WORDS_OF_TWO and spaced:
        return [Token(WORD, run, spaced)]
    if run in ("No", "NO", "no"):
        return [Token(WORD, run, spaced)]
    if len(run) >= 3:
        return [Token(RUN, run, spaced)]
    return [Token(LETTER, letter, spaced and not index) for index, letter in enumerate(run)]


def _words(text: str) -> list[Token]:
    r"""The content of `\text{…}`: two letters and more are a word, whatever else is as it would be outside."""
    found = []
    for token in _lex(text.replace("\\", " \\")):
        if token.kind == RUN:
            token = Token(WORD, token.text, True)
        found.append(token._replace(spaced=True))
    pairs = re.fullmatch(r"\s*([A-Za-z]{2})\s*", text)
    return [Token(WORD, pairs[1], True)] if pairs and found and found[0].kind == LETTER else found


def _join_thousands(tokens: list[Token]) -> list[Token]:
    """1,234 is a number where a comma cannot separate the items of a bracket: (1,234) is a pair."""
    joined: list[Token] = []
    depth = index = 0
    while index < len(tokens):
        token = tokens[index]
        depth += (token.text in ("(", "[", r"\{", r"\begin")) - (token.text in (")", "]", r"\}", r"\end"))
        text, index = token.text, index + 1
        if depth <= 0 and token.kind == NUMBER and re.fullmatch(r"[1-9]\d{0,2}", text):
            groups, after = text, index
            while _is_group(tokens, after) and "." not in groups:
                groups, after = groups + tokens[after + 1].text, after + 2
            if not (after < len(tokens) - 1 and tokens[after].text == "," and not tokens[after + 1].spaced):
                token, index = token._replace(text=groups), after
        joined.append(token)
    return joined


def _is_group(tokens: list[Token], at: int) -> bool:
    if at + 1 >= len(tokens) or tokens[at].text != "," or tokens[at].spaced or tokens[at + 1].spaced:
        return False
    return tokens[at + 1].kind == NUMBER and bool(re.fullmatch(r"\d{3}(\.\d+)?", tokens[at + 1].text))


def plain(tokens: tuple[Token, ...]) -> str:
    r"""The tokens as one text, in which white space shows only where it separates two words or two numbers.

    Braces around a single symbol are left out: x^{2} is x^2. Around a number of several digits they count, but for an
    exponent or index: \\frac{1}{25}, x^{25}.
    """
    parts: list[str] = []
    before: Token | None = None
    for index, token in enumerate(tokens):
        if token.text == "{" and _single(tokens, index + 1) or token.text == "}" and _single(tokens, index - 1):
            continue
        if before and (before.kind == COMMAND and token.text[0].isalpha() or _apart(before, token)):
            parts.append(" ")
        parts.append(token.text)
        before = token
    return "".join(parts)


def _single(tokens: tuple[Token, ...], at: int) -> bool:
    """Whether a symbol stands alone between braces."""
    if not 0 < at < len(tokens) - 1 or tokens[at - 1].text != "{" or tokens[at + 1].text != "}":
        return False
    token, script = tokens[at], at > 1 and tokens[at - 2].text in ("^", "_")
    return token.kind in (LETTER, COMMAND) or token.kind == NUMBER and (script or len(token.text) == 1)


def _apart(before: Token, token: Token) -> bool:
    words = (RUN, WORD)
    return (
        before.kind == token.kind == NUMBER
        or before.kind in words
        and token.kind in (*words, NUMBER, LETTER)
        or token.kind in words
        and before.kind in (NUMBER, LETTER)
    )
