"""An average over steps that a resumed run continues exactly: its state is two numbers.

It is the plain mean of the first values, then an exponential average: a new value has the weight 1/count, but at least
`SMOOTHING`. So there is no start-up bias, and the first value has no more weight than the next ones.
"""

from dataclasses import dataclass

# As steady as a mean of nine values, (2 - s) / s. A step has a few dozen pairs and swaps the roles: one value is noise,
# and the next one is the other adapter's. After five values a lasting change shows by two thirds, 1 - (1 - s)^5.
SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Average:
    count: int = 0
    value: float = 0.0

    def add(self, new: float) -> "Average":
        count = self.count + 1
        return Average(count, self.value + max(SMOOTHING, 1 / count) * (new - self.value))
