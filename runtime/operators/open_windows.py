"""Which windows of which keys EMIT FINAL has still to give, kept beside the store so that closing does not search it."""

from __future__ import annotations

from collections.abc import Iterable

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key
from flowql.runtime.state.store import Store


class OpenWindows:
    """Keys by window start. It may name keys that the store does not have (a run failed), and never lacks one it has.

    The store is the truth: when stream time is not where the last run left it (a restart, a failed run) it is read anew.
    """

    __slots__ = ("_codec", "_keys", "_time")

    def __init__(self, spec: StoreSpec) -> None:
        self._codec = store_key_codec(spec)
        self._keys: dict[int, set[Key]] = {}
        self._time: int | None = None

    def begin(self, began: int, closed: int, store: Store) -> None:
        """Before a run: windows that start at or before `closed` have been given."""
        if began != self._time:
            self._keys = {}
            self.add(key for key, _ in store.scan())
        for start in [s for s in self._keys if s <= closed]:
            del self._keys[start]

    def add(self, keys: Iterable[Key]) -> None:
        found = self._keys
        for key in keys:
            start: int = key[-1]  # type: ignore[assignment]
            known = found.get(start)
            if known is None:
                known = found[start] = set()
            known.add(key)

    def due(self, closed: int) -> list[Key]:
        """Keys of the windows that start at or before `closed`, by start, then key."""
        keys: list[Key] = []
        for start in sorted(s for s in self._keys if s <= closed):
            members = list(self._keys[start])
            encoded = self._codec.encode_many(members)
            keys += [members[i] for i in sorted(range(len(members)), key=encoded.__getitem__)]
        return keys

    def end(self, now: int) -> None:
        """After a run that left stream time at `now`."""
        self._time = now
