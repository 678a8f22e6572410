"""What the challenger may read of a draft: its summary with the final answer withheld.

Each domain has its own rule (`domains`). All prefer to withhold too much: a lost sentence costs the challenger a hint,
while a challenger that can see the answer learns to copy. What a derivation implies cannot be withheld, as the paper
notes; `Domain.leaks` measures it.

Departure from the paper: it says that the answer is withheld, not how.
"""

from agon_verl.game.domains import DOMAINS
from agon_verl.game.domains.domain import WITHHELD as WITHHELD


def withhold_answer(summary: str, domain: str = "math") -> str:
    """The summary with `WITHHELD` in place of its final answer."""
    return DOMAINS[domain].withhold(summary)
