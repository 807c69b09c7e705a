"""PostgreSQL's catalogue: which statements ask it, and their answers. It has no tables yet, so no statement does."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.pg.portals import Rows
from flowql.pg.reading import Reading
from flowql.pg.settings import SessionSettings
from flowql.pg.statements import Statement


class Catalogue:
    """What there is."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def has(self, statement: Statement) -> bool:
        return False

    def rows(self, sql: str, settings: SessionSettings, formats: Sequence[int]) -> Rows:
        raise NotImplementedError
