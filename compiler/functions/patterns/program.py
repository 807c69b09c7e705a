"""Patterns as RE2 runs them: the texts of each kind of string, and what is known of the pattern."""

from __future__ import annotations

from collections.abc import Iterable

from flowql.compiler.functions.lazy_arrow import pa, pc
from flowql.compiler.functions.patterns import shape
from flowql.compiler.functions.patterns.re2 import Ending, Writer
from flowql.compiler.functions.patterns.tree import (
    Alternation,
    Group,
    Pattern,
    PatternNotSupported,
    PatternTooLarge,
    walk,
)

# Bytes of a string times instructions of a program: RE2 takes 5 to 10 ns each at worst, with groups, which is a quarter of a second.
STEPS_MAX = 50_000_000
# Bytes of a string all of whose matches may take the square of its length.
SQUARE_MAX = 20_000
GROUPS_MAX, SIZE_MAX = 100, 20_000
WHOLE = 0  # the group of the whole match


class Program:
    """A pattern for the engine. Immutable but for texts, which are written when they are asked for.

    nullable: it may match an empty string. placed: it has positions such as `$`, so that a match depends on what is around it.
    """

    __slots__ = ("_texts", "final", "groups", "nullable", "pattern", "placed", "reads_ahead", "size")

    def __init__(self, pattern: Pattern) -> None:
        """Raises PatternTooLarge."""
        self.pattern = pattern
        self.groups = pattern.groups
        self.nullable = shape.is_nullable(pattern.root)
        places = shape.positions(pattern.root)
        self.placed = bool(places)
        self.final = bool(places & set(shape.FINAL))
        self.size = shape.size(pattern.root)
        self.reads_ahead = shape.reads_ahead(pattern.root)
        self._texts: dict[tuple[str, frozenset[int], str | None, Ending], str] = {}
        if self.groups > GROUPS_MAX:
            raise PatternTooLarge(pattern.text, f"it has more than {GROUPS_MAX} groups")
        if self.size > SIZE_MAX:
            raise PatternTooLarge(pattern.text, f"its program has more than {SIZE_MAX:,} instructions")
        self._compile()

    def _compile(self) -> None:
        try:
            pc.match_substring_regex(pa.array([""]), self.text("{}", frozenset(), alphabet=None))
        except pa.ArrowInvalid as error:
            if "too large" in str(error) or "repetition" in str(error):
                raise PatternTooLarge(self.pattern.text, "RE2 needs more memory for it than 8 MiB") from None
            raise PatternTooLarge(self.pattern.text, f"RE2 does not compile it ({error})") from None

    def text(self, frame: str, groups: frozenset[int], *, alphabet: str | None, ending: Ending = Ending.PLAIN) -> str:
        """For RE2. frame: {} stands for the pattern. groups, alphabet: as of `Writer`; WHOLE is the pattern."""
        at = (frame, groups, alphabet, ending)
        found = self._texts.get(at)
        if found is None:
            found = self._written(frame, groups, alphabet, ending)
            if not alphabet:
                self._texts[at] = found
        return found

    def _written(self, frame: str, groups: frozenset[int], alphabet: str | None, ending: Ending) -> str:
        root = self.pattern.root
        written = Writer(groups, alphabet, ending).write(Group(root, WHOLE) if WHOLE in groups else root)
        bare = isinstance(root, Alternation) and WHOLE not in groups and frame != "{}"
        return frame.replace("{}", f"(?:{written})" if bare else written)

    def take(self, groups: Iterable[int]) -> None:
        """Checks that what groups match can be told. Raises PatternNotSupported."""
        stale = self.pattern.stale.intersection(groups)
        if stale:
            what = f"a group within a repetition (group {min(stale)}), which Java may leave filled by a round that it gave up"
            raise PatternNotSupported(
                self.pattern.text, what, "take the group of the whole repetition, and then a part of that"
            )

    def order(self, groups: frozenset[int]) -> list[int]:
        """Groups in the order of their opening brackets."""
        nodes = walk(self.pattern.root)
        return [*([WHOLE] if WHOLE in groups else []), *(n.number for n in nodes if isinstance(n, Group) and n.number in groups)]  # fmt: skip

    def bytes_max(self, *, every: bool) -> int:
        """The longest string that may be compared. every: all matches are asked for."""
        most = STEPS_MAX // self.size
        return min(most, SQUARE_MAX) if every and self.reads_ahead else most
