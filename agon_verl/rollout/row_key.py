"""The key of a row in TransferQueue. verl writes it as `{uid}_{session}_{index}`; a session is a pair, so the index is
the stream: 0 for the draft, 1 for the challenge."""

from typing import NamedTuple

DRAFT, CHALLENGE = 0, 1


class RowKey(NamedTuple):
    uid: str  # of the problem, which is the group
    session: str
    stream: int

    @classmethod
    def parse(cls, key: str) -> "RowKey":
        uid, session, stream = key.rsplit("_", 2)
        return cls(uid, session, int(stream))

    def __str__(self) -> str:
        return f"{self.uid}_{self.session}_{self.stream}"

    @property
    def draft(self) -> "RowKey":
        """The key of the draft in the same pair."""
        return self._replace(stream=DRAFT)


def challenge_keys(keys: list[str]) -> list[str]:
    """The keys of all challenges, sorted, so that the order does not depend on which pair finished first."""
    return sorted(key for key in keys if RowKey.parse(key).stream == CHALLENGE)
