"""An average over steps that a resumed run continues exactly: it is two numbers.

The plain mean of the first values, then an exponential average: a new value weighs 1/count, but never less than
`SMOOTHING`. So there is no start-up bias, and the first value weighs no more than the next ones.
"""

from dataclasses import dataclass

# As steady as a mean of nine values, (2 - s) / s. A step has a few dozen pairs and swaps the roles: one value is noise
# and the next one is another adapter's. A lasting change shows by two thirds after five values, 1 - (1 - s)^5.
SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Average:
    count: int = 0
    value: float = 0.0

    def add(self, new: float) -> "Average":
        count = self.count + 1
        return Average(count, self.value + max(SMOOTHING, 1 / count) * (new - self.value))
