r"""The draft's own final value, withheld wherever a mathematical text states it as a result.

`agon.withhold=announced` hides what is marked or announced as the answer. A worked solution states the same value
before that: "5 + 5 = 10. Therefore f = 10." This module finds the places where a text can state a result, and asks the
verifier's comparison whether the value there equals the draft's answer, in any notation:

- a side of an equation or approximation, what follows an arrow, a bound, a value alone on a line or in bold;
- what follows "is", "equals", "we get", "gives", "a total of" and the like, to the end of the clause;
- in a sentence that concludes ("Therefore …", "… because 12 - 8 = 4"), every formula or number that stands by itself;
- in any sentence, a number of two or more digits that stands by itself and that the problem does not contain.

A number that merely occurs stays: an operand, a number in a pair, an index, a value that the problem states for the
same quantity (`a_1 = 1`), and a small number in an equation that is still to be solved (`3x - x = 2`), unless the
problem asks for its other side (`m + n = 7`). What cannot be distinguished is withheld, such as an intermediate result
that is by chance the same number ("the floor is 5").

A draft is written by a policy that may be stuck in a loop, or gain from being read. So every place reads a bounded
number of characters, the comparisons of a draft are counted, and a line whose places would read it again and again
("{={={=") is withheld, at least from there on: time and memory are linear in the length of the draft.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from agon_verl.game.domains.domain import WITHHELD, Same, Span, replaced, squash

REACH = 240  # characters that are read on either side of a place
_MOST_PARTS = 12  # words and commas of a value
MOST = 2_000  # different values that are compared per draft; after that only equal texts are withheld
READINGS = 8  # times that the places of a line may read it; real completions on one line need 2
PASSES = 8  # over a line; if the last one still finds the value, the whole line is withheld

_RELATION = r"=|≈|≃|\\(?:approx|simeq|cong|equiv)(?![A-Za-z])"
_EQUATION = re.compile(_RELATION)
_ARROW = r"\\(?:implies|(?:R|r|Longr|longr)ightarrow|to|therefore)(?![A-Za-z])|[⇒→⟹∴]"
_VERB = (
    r"\b(?:is|are|was|were|be|equals?|becomes?|gives?|giving|gets?|getting|got|obtain(?:s|ing|ed)?|yield(?:s|ing)?|have|"
    r"has|makes?|making|leaves?|leaving|finds?|found|result(?:s|ing)? in|total(?:s|l?ing)?|comes? (?:out )?to|"
    r"(?:amount|sum|add|adds up|add up|simplify|evaluate|reduce)s? to|simplifies to|"
    r"(?:total|average|profit|value|result|sum|remainder|probability|minimum|maximum|length|area|volume|radius) of|"
    r"conclude that|as|only|namely)\b|:"
)
_FILLER = (
    r"(?:\s|\b(?:approximately|about|exactly|equal to|equals|simply|just|only|therefore|thus|then|also|indeed|now|"
    r"a total of|the value|the number|in fact)\b|\\[,;:! ]|\\q?quad\b|[&~])*+"
)
_OPENING = r"(?:\\\(|\\\[|\$|\*\*|__|\*|`|\\(?:displaystyle|mathbf|bf)\b|\s)*+"
_BOUND = r"\\[gl]eq?(?:slant)?(?![A-Za-z])|[≤≥]"
_PLACE = re.compile(
    rf"(?:(?P<relation>{_RELATION})|(?P<arrow>{_ARROW})|(?P<bound>{_BOUND})|(?P<verb>{_VERB})){_FILLER}{_OPENING}", re.I
)

# What ends a value: at `hard` it always ends, at `soft` it may.
_END = re.compile(
    rf"(?P<hard>\\\\|\\[()\[\]]|\$|{_RELATION}|{_ARROW}|\\q?quad\b|[&<>≤≥;]|\*\*|__|`|[.!?:](?!\d)|{re.escape(WITHHELD)})"
    r"|(?P<soft>\\(?:text|mathrm|mbox)\b|/(?=[A-Za-z])|,(?!\d{3}(?!\d)|\\!|\})|(?<=\s)(?:[A-Za-z]{2,}|a(?=\s)))"
    r"|(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|\\(?:[A-Za-z]+|.)"
)
_DELIMITER = re.compile(r"\\[()\[\]]")
_EDGES = ' \t$*_`~.,;:!?"'
_NAME = re.compile(
    r"(?:m?\\angle|\\(?:overline|triangle|vec|mathbf|mathrm|text))?\s*\{?(?:[A-Za-z]{1,3}|\\[a-z]+|[A-Za-z ]+)\}?'*"
    r"(?:_(?:\w|\{[^{}]*\}))?(?:\^(?:\w|\{[^{}]*\}))?\s*(?:(?:\\left)?[(\[].*[)\]])?|\[[A-Z]+\]|\([a-z](?:\s*,\s*[a-z])+\)"
)
_VARIABLE = re.compile(r"\\(?:alpha|beta|gamma|delta|theta|lambda|phi|omega|mu)\b|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_APPLIED = re.compile(r"\\(?!frac|dfrac|tfrac|sqrt|left\b)[A-Za-z]+")  # \sin A, \gcd(a, b), \binom{n}{2}
_BEFORE_SIDE = re.compile(  # prose, arrows and inequalities: what precedes a side of an equation
    rf"(?<![\\A-Za-z{{])(?:[A-Za-z][a-z]+(?:['-][a-z]+)*(?![A-Za-z(_^{{])|[Aa](?=\s+\d))|[,;:]|{_ARROW}"
    r"|\\(?:[gl]eq?|[gl]eqslant|quad|qquad)(?![A-Za-z])|[<>≤≥]"
)
_TIMES = re.compile(r"(?:(?<=[\d)])|^)\s*[xX]\s*(?=[\d.($])")  # 6.4 x 5
_CHAINED = re.compile(r"(?:[=≈<>≤≥]|\\[gl]eq?(?:slant)?)[\s&]*$")
_CONNECTIVE = re.compile(
    r"\s*(?:and|or|but|because|since|which|when|where|for|if|so|as|in|at|with|by|after|that|then|while|this)\b", re.I
)
_CONCLUDES = re.compile(
    r"(?:\b(?:therefore|thus|hence|finally|consequently|altogether|overall|conclude|concluding|conclusion|"
    r"in (?:total|summary|all)|as a result|it follows|this (?:means|gives|shows|implies)|summari[sz]\w+)\b"
    r"|(?:^\W*|, |(?<=[.!?])\s+)so\b|\\therefore|∴)",
    re.I,
)
_BECAUSE = re.compile(r"\bbecause\b(?=.{0,120}?(?:=|\bequals?\b))", re.I)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_FORMULA = re.compile(
    r"\\\((?:(?!\\[()]).){1,240}\\\)|\\\[(?:(?!\\[\[\]]).){1,240}\\\]|\$[^$]{1,240}\$|\*\*[^*]{1,240}\*\*"
)
_NUMBER = re.compile(r"(?<![\w.\\])-?\\?\$?\d[\d,]*+(?:\.\d+)?(?:/\d+)?\s?%?")
_OPERATORS = tuple("+-*/×÷·^_<>(,[{=≤≥|")
_NOT_BEFORE = re.compile(
    r"(?:\b(?:by|than|step|case|equation|base|mod|modulo|between|from|at|and|part|option|over|first)|\\[A-Za-z]+)\s*$",
    re.I,
)
_NOT_AFTER = re.compile(
    r"\s*(?:[+*/×÷·^_<>)\]}=≤≥|\\-]|(?:times|more|less|fewer|is|are|and|to|or|divides|consecutive)\b)", re.I
)
_SMALL = re.compile(r"-?\d{1,2}", re.ASCII)


def withhold_value(text: str, answer: str, same: Same, problem: str = "") -> str:
    """`text` with `WITHHELD` in place of every statement of `answer` as a result; `problem` is what was asked."""
    last = _EQUATION.split(answer)[-1].strip() or answer  # of 7 + 3 = 10 the value is 10
    value = _DELIMITER.sub(" ", last).rstrip(_EDGES + "\\").lstrip(_EDGES)
    if len(value) > REACH:  # no place is as long: only copies are withheld
        return text.replace(value, WITHHELD)
    search = _Search(value, same, problem)
    return "\n".join(search.withheld(line) if line else "" for line in text.split("\n"))


class _Search:
    """The statements of one value, line by line."""

    def __init__(self, answer: str, same: Same, problem: str) -> None:
        self._answer, self._same = answer, same
        self._problem, self._squashed = squash(problem), squash(answer)
        self._longest = max(REACH // 2, 4 * len(answer))
        self._small = _SMALL.fullmatch(answer) is not None  # so small that it also occurs by chance
        self._rare = len(re.sub(r"\D", "", answer)) > 1 and not re.search(rf"(?<!\d){re.escape(answer)}(?!\d)", problem)
        self._compared: dict[str, bool] = {}

    def withheld(self, line: str) -> str:
        """Until nothing is left to withhold: a value can hide the one before it ("= 5 5")."""
        for _ in range(PASSES):
            spans = self._statements(line)
            if not spans:
                return line
            line = replaced(line, spans, WITHHELD)
        return WITHHELD

    def _statements(self, line: str) -> list[Span]:
        conclusions = list(_conclusions(line))
        return sorted({*self._alone(line), *self._placed(line, conclusions), *self._free(line, conclusions)})

    # -- the places

    def _alone(self, line: str) -> Iterator[Span]:
        if len(line) <= REACH and (inner := _DELIMITER.sub("", line).strip(_EDGES + ">")):
            start = line.find(inner)
            if start >= 0 and (span := self._equal(line, start, start + len(inner))):
                yield span

    def _placed(self, line: str, conclusions: Sequence[Span]) -> Iterator[Span]:
        to_read = 8 * REACH + READINGS * len(line)
        for place in _PLACE.finditer(line):
            if place["bound"] and self._small:
                continue
            start, left, is_equation = place.end(), "", place["relation"] is not None
            ends = _ends(line, start)
            side = _side(line, place.start()) if is_equation else place.start()
            to_read -= ends[0] - side
            if to_read < 0:
                yield start, len(line)
                return
            if is_equation:
                left, chained = _left(line, side, place.start())
                right = line[start : ends[0]].strip(_EDGES)
                if left and (_NAME.fullmatch(right) or self._is_asked(right)):  # 10 = x
                    begin = line.rfind(left, max(0, place.start() - REACH), place.start())
                    if begin >= 0 and (span := self._equal(line, begin, begin + len(left))):
                        yield span
                latest = bisect_right(conclusions, (start, len(line))) - 1
                concluded = latest >= 0 and start <= conclusions[latest][1]
                if not (chained or concluded or self._is_result(left)):
                    continue
            spans = [self._equal(line, start, end) for end in ends]
            if any(
                span and (is_equation or _states(place, line, end, ends[0]))
                for span, end in zip(spans, ends, strict=True)
            ):
                shortest = [span for span in spans if span][-1]  # "5" of "5 integers"
                if not (left and squash(f"{left}={line[slice(*shortest)]}") in self._problem):
                    yield shortest

    def _free(self, line: str, conclusions: Sequence[Span]) -> Iterator[Span]:
        """Formulas in conclusions, and numbers in prose: those of conclusions, and any that is rare by itself."""
        for start, end in conclusions:
            for formula in _FORMULA.finditer(line, start, end):
                mark = 1 if formula[0][0] == "$" else 2
                if span := self._equal(line, formula.start() + mark, formula.end() - mark):
                    yield span
        prose = _FORMULA.sub(lambda formula: "|" * len(formula[0]), line)
        for start, end in [(0, len(line))] if self._rare else conclusions:
            for number in _NUMBER.finditer(prose, start, end):
                before = prose[max(0, number.start() - 20) : number.start()].rstrip()
                if before.endswith(_OPERATORS) or _NOT_BEFORE.search(before) or _NOT_AFTER.match(prose, number.end()):
                    continue
                if span := self._equal(line, *number.span()):
                    yield span

    # -- what stands there

    def _equal(self, line: str, start: int, end: int) -> Span | None:
        """The span without the marks around it, if the value stands there."""
        text = line[start:end]
        value = text.strip(_EDGES)
        if not value or len(value) > self._longest or WITHHELD in value or _EQUATION.search(value):
            return None
        if value not in self._compared and len(self._compared) < MOST:
            self._compared[value] = self._same(self._answer, value)
        if not self._compared.get(value) and squash(value) != self._squashed:
            return None
        start += text.index(value)
        return start, start + len(value)

    def _is_result(self, left: str) -> bool:
        """Whether an equation with this left side states a result, and is not one that is to be solved."""
        named = _NAME.fullmatch(left) or _APPLIED.match(left)
        return not self._small or not _VARIABLE.search(left) or bool(named) or self._is_asked(left)

    def _is_asked(self, side: str) -> bool:
        return len(squash(side)) > 2 and squash(side) in self._problem


def _states(place: re.Match[str], line: str, end: int, clause: int) -> bool:
    """Whether the words before a value that ends at `end` state it; `clause` is the end of their clause."""
    if _EQUATION.match(line, end) or place["verb"] == ":" and line[end : end + REACH].strip(_EDGES + "\\])"):
        return False
    return end == clause or not place["verb"] or line[end] in ",(\\" or _CONNECTIVE.match(line, end) is not None


def _ends(line: str, start: int) -> list[int]:
    """Where a value that begins at `start` may end, the farthest first."""
    depth, near, last = 0, [], min(len(line), start + REACH)
    for mark in _END.finditer(line, start, last):
        kind, at = mark.lastgroup, mark.start()
        depth += (kind == "open") - (kind == "close")
        if depth < 0 or kind == "hard" and (not depth or mark[0][0] in "\\$"):
            last = at
            break
        if depth == (kind == "open") and kind in ("soft", "open") and line[start:at].strip():
            near.append(at)
            if len(near) > _MOST_PARTS:  # a sentence, not a value
                last = at
                break
    return [last, *reversed(near[:3])]


def _side(line: str, end: int) -> int:
    """Where the side of an equation that ends at `end` may begin: after a mark outside its brackets."""
    depth, start = 0, end
    while start > max(0, end - REACH):
        char = line[start - 1]
        depth += (char in ")]}") - (char in "([{")
        if depth < 0 or not depth and char in "=≈$&;<>⇒→":
            break
        start -= 1
    return start


def _left(line: str, start: int, end: int) -> tuple[str, bool]:
    """The side of an equation from `start` to `end`, and whether it continues a chain. Blank if named by words."""
    for mark in _BEFORE_SIDE.finditer(line, start, end):
        start = mark.end()
    side = _TIMES.sub("*", _DELIMITER.sub(" ", line[start:end])).strip(_EDGES)
    return side, _CHAINED.search(line, max(0, start - 12), start) is not None


def _conclusions(line: str) -> Iterator[Span]:
    """The sentences of a line that conclude, from the word that says so, or to the "because"."""
    start = 0
    for end in [*(mark.end() for mark in _SENTENCE_END.finditer(line)), len(line)]:
        if concludes := _CONCLUDES.search(line, start, end):
            yield concludes.end(), end
        elif because := _BECAUSE.search(line, start, end):
            yield start, because.start()
        start = end
