"""The ways of a value into a column of one type, in memory. Each gives what is stored, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.functions.sql_text_casts import text_writer
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import STRING
from flowql.errors import CompileError, RuntimeFailure
from flowql.query.errors import QueryError
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.codec import row_decoder
from flowql.runtime.topology.row_store import encode_insert
from tests.slt.session import Shape, SqlSession

NOW_MS = 1_700_000_000_000
Stored = str | None


class Refused(Exception):
    """A way that does not take a value, and why."""


class Ways:
    """Tables and a stream with a column `v` of one type."""

    def __init__(self, column: str) -> None:
        tables = [f"CREATE TABLE {n} (id INT PRIMARY KEY, v {column})" for n in ("t", "u")]
        self._column = column
        self._stream = f"CREATE STREAM s (id INT, v {column}) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1)"
        self._world, self._session, self._next = SqlSession(Shape()), Session(dialect="standard"), 0
        assert self._world.define(tables) == [None, None], column
        self.has_stream = self._takes_stream()

    def close(self) -> None:
        self._world.close()

    def _takes_stream(self) -> bool:
        try:
            self._session.execute(SourceText("", self._stream))
        except CompileError:  # JSONB, UUID and INTERVAL are no types of a topic's columns
            return False
        return True

    def all(self) -> Mapping[str, Callable[[str], Stored]]:
        """By the name of the way: from an expression to what is stored. Each raises Refused."""
        ways = {"VALUES": self.values, "UPDATE": self.update, "SELECT": self.select}
        if self._column == "INT":
            ways["CONFLICT"] = self.conflict
        return {**ways, "stream": self.stream} if self.has_stream else ways

    def values(self, e: str) -> Stored:
        return self._returned(f"INSERT INTO t VALUES ({self._number()}, {e})")

    def select(self, e: str) -> Stored:
        return self._returned(f"INSERT INTO t SELECT {self._number()}, {e}")

    def conflict(self, e: str) -> Stored:
        id_ = self._number()
        self._returned(f"INSERT INTO u VALUES ({id_}, NULL)")
        return self._returned(f"INSERT INTO u VALUES ({id_}, NULL) ON CONFLICT (id) DO UPDATE SET v = {e}")

    def update(self, e: str) -> Stored:
        id_ = self._number()
        self._returned(f"INSERT INTO u VALUES ({id_}, NULL)")
        return self._returned(f"UPDATE u SET v = {e} WHERE id = {id_}")

    def stream(self, e: str) -> Stored:
        try:
            (result,) = self._session.execute(SourceText("", f"INSERT INTO s VALUES (1, {e})"))
            (insert,) = result.rows
            (value,) = encode_insert(self.source, insert, NOW_MS).column("value").to_pylist()
        except (CompileError, RuntimeFailure) as error:
            raise Refused(str(error)) from None
        return self.read(value)

    @property
    def source(self) -> SourceDef:
        found = self._session.plan.source("s")
        assert found is not None
        return found

    def read(self, value: bytes) -> Stored:
        """What queries read of the value of a record."""
        fields = self.source.schema.value
        try:
            row: Row | None = row_decoder(fields, self.source.value_format, fields, is_key=False).decode(value)
        except BadRecord as error:
            raise Refused(str(error)) from None
        assert row is not None
        t = fields[1].type
        return row[1] if row[1] is None or t == STRING else text_writer(t)(row[1])

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _returned(self, statement: str) -> Stored:
        try:
            table = self._world.returning(f"{statement} RETURNING CAST(v AS TEXT) AS v")
        except (CompileError, RuntimeFailure, QueryError) as error:
            raise Refused(str(error)) from None
        (row,) = table.to_pylist()
        return str(row["v"]) if row["v"] is not None else None
