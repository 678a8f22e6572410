r"""A sentence that states one value: "Anna has 40 apples." is 40 apples, "Its length is \( \sqrt{10} \)." is \sqrt{10}.

Only the subject and the verb are removed. The rest is parsed like any other answer: "it is 5 or 6" is a list, and so is
"40 apples and 3 pears". An alternative could only be in the subject, which therefore has neither digits nor numerals,
no negation, condition, doubt or operation ("half of it is 5"), no full stop, and formulas only where they name
something ("the side \(AB\)").
"""

import re

from reward_fns.mathematics.shape import is_label
from reward_fns.mathematics.tokens import tokenize
from reward_fns.mathematics.units import NOT_UNITS

# The verb, directly before something that begins like a value.
_VERB = re.compile(
    r"\b(?:is|are|was|were|equals?|has|have|had|gets?|got|makes?|made|needs?|takes?|took|earns?|earned|pays?|paid|spends?"
    r"|spent|sells?|sold|costs?|saves?|saved|uses?|used|buys?|bought|eats?|ate)(?: equal to| exactly)?:?\s+"
    r"(?=[-+.]?[\\$\d(|])",
    re.I,
)
_PIECE = re.compile(r"\s*+(?:([A-Za-z]++(?:['’-][A-Za-z]++)*+)|\$([^$]*+)\$|\\\(([^\\]*(?:\\(?!\))[^\\]*)*+)\\\)),?")
_VARIABLE = re.compile(r"[A-Za-z]|\$[A-Za-z]\$|\\\( ?[A-Za-z] ?\\\)")
_HARMLESS = "and base between fewer least less more most over remainder than through up".split()
_SUSPECT = (NOT_UNITS - set(_HARMLESS)).union(
    """another alternatively cannot could cube inverse may might multiple negative never opposite otherwise possibly
    probably reciprocal square whether without would""".split()
)


def stated(answer: str) -> str:
    """The part of an answer that states its value; all of it unless it is such a sentence."""
    verbs = list(_VERB.finditer(answer)) if " " in answer else []  # most answers have none
    if not verbs:
        return answer
    subject, end = answer[: verbs[-1].start()].strip(), 0
    while end < len(subject):
        piece = _PIECE.match(subject, end)
        if piece is None or not _names_something(*piece.groups()):
            return answer
        end = piece.end()
    rest = answer[verbs[-1].end() :]
    if _VARIABLE.fullmatch(subject):  # "y is 5" is an equation: it is not x = 5
        return f"{subject} = {rest}"
    return rest if subject else answer


def _names_something(word: str | None, *formulas: str | None) -> bool:
    if word is not None:
        return word.lower() not in _SUSPECT and not word.lower().replace("’", "'").endswith("n't")
    return all(is_label(tokenize(formula)) for formula in formulas if formula is not None)
