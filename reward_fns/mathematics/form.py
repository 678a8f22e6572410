r"""Whether an answer is worked out as far as the reference is.

Equal is not enough. "Compute 17 · 23" has the equal answer `17 \cdot 23`, and so has every problem that holds the
formula it asks to evaluate; a policy that is paid for handing back the sum, the integral, the factorial or the last
line of its arithmetic learns to do that, and makes fewer mistakes for it. So an answer may leave an operation undone
only where the reference does. For a reference that is a number, the answer is a number: an integer, a decimal, a mixed
number, scientific notation, or, if the reference is no integer, a fraction (in lowest terms or not).

What this cannot see is a rearrangement by the same operations: a root that is not simplified, a product that was to be
factored or expanded. Those are accepted.
"""

from fractions import Fraction

from reward_fns.mathematics.expression import Node
from reward_fns.mathematics.tokens import Token

# Notation for an operation that is still to be done; what the formulas of `expression` hold is looked at as a tree.
_UNDONE = frozenset(
    r"""\sum \prod \int \iint \oint \lim \max \min \gcd \lcm \det \binom \choose ! \pmod \bmod \mod \lfloor \lceil
    \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \log \ln \Re \Im \arg \deg \sup \inf
    |""".split()
)


def done(gold: Node | None, answer: Node | None, gold_tokens: tuple[Token, ...], tokens: tuple[Token, ...]) -> bool:
    """Whether `answer` leaves undone only what `gold` does. Without a tree a formula is judged by its symbols."""
    if gold is not None and is_number(gold):
        if answer is None or not is_number(answer):
            return False
        return not _is_integer(gold) or not _has_fraction(answer)
    if gold is not None and answer is not None:
        return _undone(answer) <= _undone(gold)
    return {token.text for token in tokens} & _UNDONE <= {token.text for token in gold_tokens} & _UNDONE


def is_number(node: Node) -> bool:
    """A number as one writes it down: 5, -0.5, 3/4, 1 3/4, 6.7 x 10^-5."""
    node = _unsigned(node)
    if node.kind in ("number", "decimal"):
        return True
    if node.kind == "div":
        return all(_unsigned(child).kind == "number" for child in node.children)
    return is_scientific(node)


def is_decimal(node: Node) -> bool:
    """Written with a decimal point, and so perhaps rounded."""
    node = _unsigned(node)
    return node.kind == "decimal" or node.kind == "mul" and is_scientific(node)


def is_scientific(node: Node) -> bool:
    if node.kind == "mul" and len(node.children) == 2 and _unsigned(node.children[0]).kind in ("number", "decimal"):
        node = node.children[1]
    return (
        node.kind == "pow"
        and node.children[0] == Node("number", value=Fraction(10))
        and _unsigned(node.children[1]).kind == "number"
    )


def _unsigned(node: Node) -> Node:
    return node.children[0] if node.kind == "neg" else node


def _is_integer(node: Node) -> bool:
    node = _unsigned(node)
    return node.kind == "number" and node.value.denominator == 1


def _has_fraction(node: Node) -> bool:
    return _unsigned(node).kind == "div"


def _undone(node: Node) -> set[str]:
    """The operations of a formula that could be carried further."""
    found = set().union(*(_undone(child) for child in node.children))
    kind, children = node.kind, [_unsigned(child) for child in node.children]
    numbers = [child for child in children if is_number(child)]
    if kind in ("factorial", "binomial") and all(map(_constant, children)):
        found.add(kind)
    elif kind in ("add", "mul") and len(numbers) > 1:
        found.add(f"numbers {kind}")
    elif kind == "pow" and len(numbers) == 2 and _is_integer(children[1]):
        found.add("number pow")
    elif kind in _FUNCTION_KINDS:
        found.add(_FUNCTION_KINDS[kind])
    sums = [child for child in children if child.kind == "add" and _constant(child)]
    if kind == "mul" and len(sums) > 1 or kind == "pow" and children[0] in sums:
        found.add("product of sums")
    if kind == "div" and children[1] in sums:
        found.add("division by a sum")
    return found


def _constant(node: Node) -> bool:
    return node.kind != "variable" and all(map(_constant, node.children))


_FUNCTION_KINDS = {name: "trigonometry" for name in "sin cos tan cot sec csc degrees".split()}
_FUNCTION_KINDS |= {name: "inverse trigonometry" for name in ("arcsin", "arccos", "arctan")}
_FUNCTION_KINDS |= {name: "hyperbolic" for name in ("sinh", "cosh", "tanh")} | {"ln": "log", "log": "log", "abs": "abs"}
