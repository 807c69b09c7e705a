"""Which producers have committed under a transactional id that several processes use, as text for the metadata of the position that counts the commits.

Each process numbers its transaction by the last committed one. If the answer to a commit is lost and another process commits next, the number alone does
not tell whose transaction has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

WRITERS_MAX = 16  # about 300 characters


@dataclass(frozen=True, slots=True)
class CommitWriters:
    """The last commits, by producer. since: producers whose last commit has a number above this are all listed. last: by name, that number."""

    since: int = 0
    last: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, name: str, sequence: int) -> CommitWriters:
        """With one more commit. The oldest ones are left out where there are too many."""
        kept = sorted({**self.last, name: sequence}.items(), key=lambda entry: entry[1])
        dropped, kept = kept[:-WRITERS_MAX], kept[-WRITERS_MAX:]
        return CommitWriters(max([self.since, *(number for _, number in dropped)]), dict(kept))

    def has_committed(self, name: str, sequence: int) -> bool | None:
        """Whether a producer has committed its transaction of this number. None: it is not known any more.

        >>> found = CommitWriters().after("a", 1).after("b", 2)
        >>> found.has_committed("a", 1), found.has_committed("a", 3), found.has_committed("c", 2)
        (True, False, False)
        >>> CommitWriters(since=2).has_committed("a", 2) is None
        True
        """
        if name in self.last:
            return self.last[name] >= sequence
        return False if sequence > self.since else None

    def encode(self) -> str:
        """Without a space.

        >>> decode(CommitWriters().after("a", 1).encode(), 1)
        CommitWriters(since=0, last={'a': 1})
        """
        return ",".join([str(self.since), *(f"{name}:{number}" for name, number in self.last.items())])


def decode(text: str, sequence: int) -> CommitWriters:
    """From `encode`. sequence: of the commit that it was read with; if it does not name the producer of that commit, the producers before it are not known."""
    since, *entries = text.split(",")
    last = {name: int(number) for name, _, number in (entry.partition(":") for entry in entries)}
    if sequence not in (0, *last.values()):
        return CommitWriters(sequence)
    return CommitWriters(int(since or 0), last)
