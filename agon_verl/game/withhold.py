r"""What the challenger may read of a draft: its summary with the final answer withheld.

math. Withheld are: `<answer>` blocks (one that never closes, to the end of the text; a closing tag that was never
opened, with its line); every box, whether it closes or not (one that does not, to the end of its line); what follows
"the answer is", "Answer:", "final result =" and the like, to the end of the sentence or, where nothing follows on
that line, the whole next paragraph; a sentence that ends on "… is the answer"; and GSM8K's `#### 72`. The
announcements are English.

code. The final program *is* the answer: withheld are `<answer>` blocks and the last fenced block, closed or cut off,
as well as every other block that holds the same program, white space aside. Prose and other snippets stay: they are
the derivation. The marker keeps its fence, so that a second pass does not take the last snippet for the program.

Both err on the side of withholding: a lost sentence costs the challenger a hint, a shown answer makes the game one of
copying. What a derivation implies cannot be withheld, as the paper notes; `leaks` measures it.

Departures from the paper: it says that the answer is withheld, not how.
"""

import re

from agon_verl.game.boxes import boxes
from agon_verl.game.fences import fences

DOMAINS = ("math", "code")
WITHHELD = "[answer withheld]"
_PROGRAM_WITHHELD = f"```\n{WITHHELD}\n```"

_ANSWER_BLOCK = re.compile(r"<answer.*?(?:</answer\s*+>|\Z)", re.I | re.S)
_ANSWER_END = re.compile(r"^.*</answer\s*+>?", re.I | re.M)
_UNCLOSED_BOX = re.compile(r"\\(?:boxed|fbox).*")
_GSM8K = re.compile(r"^[ \t]*+####(?!#)(?:(?=[^A-Za-z\n]*\d)[^A-Za-z\n]*+$|.*\Z)", re.M)

# Runs of markers. A merge may not join lines or sentences that a second pass would then read as one.
_MARK, _PROGRAM_MARK = re.escape(WITHHELD), re.escape(_PROGRAM_WITHHELD)
_RUN = re.compile(rf"{_MARK}(?:[ \t$*,;]*+{_MARK})+")
_LINES = re.compile(rf"^{_MARK}(?:\n{_MARK}$)+", re.M)
_PARAGRAPHS = re.compile(rf"^{_MARK}(?:\n\s*\n{_MARK}(?=\n\s*\n|\Z))+", re.M)
_PROGRAM_RUN = re.compile(rf"{_PROGRAM_MARK}(?:\s*+{_PROGRAM_MARK})+")

_NOUN = r"\b(?:ans(?:wers?)?|final (?:result|value|solution))\b"
_ANNOUNCEMENT = re.compile(
    rf"(?:{_NOUN}(?:,? (?:to|for|of|in|we|you|here|then|thus|therefore)\b[^.!?:=]{{0,80}}?)?[\s*_]*+"
    r"(?:[:=]|\b(?:is|are|equals|becomes|(?:will|would|must|should) be)\b)"
    r"|\b(?:the|our|my|an|final|correct) answer (?:of )?(?=[-+*$\\(]{0,4}\d))[\s*_:=]*+",
    re.I,
)
_CONCLUSION = re.compile(rf"\b(?:is|are|be|as)\s+(?:the|our|my)\s+(?:\w+\s+)?{_NOUN}", re.I)
_HEADING = re.compile(rf"[\W\d_]*+(?:step \d+\W*)?(?:(?:the|our|my)\s+)?(?:final\s+)?{_NOUN}[\W_]*", re.I)
_SENTENCE = re.compile(r"(?P<lead>\s*)(?P<text>.+?)(?P<end>[.!?][)\"'*_$\]]*(?=\s+(?:[A-Z]|" + _MARK + r")|\s*$)|$)")
_MARKUP = " \t*_:=$\\[("


def withhold_answer(summary: str, domain: str = "math") -> str:
    """The summary with `WITHHELD` in place of its final answer; a run of markers becomes one. Idempotent."""
    return _withhold_program(summary) if _known(domain) == "code" else _withhold_math(summary)


def leaks(shown: str | None, answer: str | None, domain: str = "math") -> bool:
    """Whether the text shown still holds the draft's final answer.

    math: as a whole token, white space, `$` and thousands commas aside: 5 is in "= 5" and "$5$", not in "15", "5.2" or
    "-5". A small number is often there for other reasons ("x^2" holds 2), so this overcounts. code: the same program,
    white space aside.
    """
    if _known(domain) == "code":
        block = fences(answer or "")
        program = _squash(block[-1].body if block else answer or "")
        return bool(program) and program in _squash(shown or "")
    if _squash(_plain(answer or "")) not in _squash(_plain(shown or "")):
        return False  # before a pattern is built: a degenerate answer is as long as its completion
    tokens = re.findall(r"\d+(?:\.\d+)?|\\?[^\W\d_]+|[^\w\s]|_", _plain(answer or ""))
    if not tokens:
        return False
    left = r"(?<![\w.\-])" if tokens[0][0].isalnum() else ""
    right = r"(?!\w|\.\d)" if tokens[-1][-1].isalnum() else ""
    pattern = left + r"\s*".join(re.escape(token) for token in tokens) + right
    return re.search(pattern, _plain((shown or "").replace(WITHHELD, " ; "))) is not None


def _withhold_math(summary: str) -> str:
    text = _withhold_tags(summary.strip(), WITHHELD)
    shown, cursor = "", 0
    for box in boxes(text):
        if box.start >= cursor:  # else it lies inside the one before
            shown, cursor = shown + text[cursor : box.start] + WITHHELD, box.end
    text = _UNCLOSED_BOX.sub(WITHHELD, shown + text[cursor:])
    text = _withhold_statements(_GSM8K.sub(WITHHELD, text))
    for run in (_RUN, _LINES, _PARAGRAPHS):
        text = run.sub(WITHHELD, text)
    return text.strip()


def _withhold_program(summary: str) -> str:
    blocks = fences(summary)[-1:] + [block for tag in _ANSWER_BLOCK.findall(summary) for block in fences(tag)]
    programs = {_squash(block.body) for block in blocks} - {"", _squash(WITHHELD)}
    text = _withhold_tags(summary.strip(), f"\n{_PROGRAM_WITHHELD}\n")
    shown, cursor = "", 0
    for block in (found := fences(text)):
        body = _squash(block.body)
        if block is found[-1] or any(program in body for program in programs):
            shown, cursor = shown + text[cursor : block.start] + _PROGRAM_WITHHELD, block.end
    return _PROGRAM_RUN.sub(_PROGRAM_WITHHELD, shown + text[cursor:]).strip()


def _withhold_tags(text: str, marker: str) -> str:
    return _ANSWER_END.sub(marker, _ANSWER_BLOCK.sub(marker, text))


def _withhold_statements(text: str) -> str:
    """Withhold what the text announces as its answer, on the line of the announcement or in the paragraph after it."""
    shown = []
    awaited = begun = False  # a value is announced and not there yet; its paragraph has begun
    for line in text.split("\n"):
        if not line.strip():
            awaited = awaited and not begun
            shown.append(line)
            continue
        rest, announces = _withhold_line(line)
        shown.append(WITHHELD if awaited else rest)
        awaited, begun = awaited or announces, awaited and not announces
    return "\n".join(shown)


def _withhold_line(line: str) -> tuple[str, bool]:
    """The line with announced values withheld, and whether it ends on an announcement whose value is still to come."""
    if _HEADING.fullmatch(line):
        return line, True
    shown, announces = "", False
    for sentence in _SENTENCE.finditer(line):
        said, end = sentence["text"], sentence["end"]
        announcement = _ANNOUNCEMENT.search(said)
        announces = announcement is not None and not said[announcement.end() :].strip(_MARKUP)
        if _CONCLUSION.search(said):
            said = WITHHELD
        elif announcement and not announces:
            said = said[: announcement.end()] + WITHHELD
        shown += sentence["lead"] + said + end
    return shown, announces


def _plain(text: str) -> str:
    """Lower case, without `$`, LaTeX thin spaces, thousands commas and the `\\text{}` around words."""
    text = re.sub(r"\\?\$|\\[!,;]|\{,\}", "", text.casefold())
    text = re.sub(r"\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)


def _squash(text: str) -> str:
    return "".join(text.split())


def _known(domain: str) -> str:
    if domain not in DOMAINS:
        raise ValueError(f"domain {domain!r} is unknown: use one of {', '.join(DOMAINS)}")
    return domain
