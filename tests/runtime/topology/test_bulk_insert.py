"""INSERT by columns against INSERT row by row: the same rows, the same refusals; several writers; gaps that compaction leaves."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.tables import OnDuplicate, TableChange
from flowql.compiler.plan.types import arrow_type
from flowql.runtime.batch import Row, to_arrow
from flowql.runtime.errors import RowFailed, StatementFailed
from flowql.runtime.topology import bulk_insert
from flowql.runtime.topology.bulk_insert import takes_columns
from tests.runtime.topology.test_table_writer import NOW, Tables, between, rows_in

CREATE = {
    "plain": "CREATE TABLE plain (k INT PRIMARY KEY, s TEXT NOT NULL, n INT) WITH (PARTITIONS=3);",
    "pair": "CREATE TABLE pair (k DOUBLE, s TEXT, n INT DEFAULT 7, PRIMARY KEY (k, s));",
    "made": "CREATE TABLE made (k INT PRIMARY KEY, s TEXT, n INT CHECK (n < 3), g INT GENERATED ALWAYS AS (k * 2 + n));",
    "bag": "CREATE TABLE bag (k INT, s TEXT, n INT) WITH (PARTITIONS=2);",
    "counted": "CREATE TABLE counted (k BIGINT GENERATED ALWAYS AS IDENTITY, s TEXT, n INT);",
    "timed": "CREATE TABLE timed (k INT, s TEXT, n TIMESTAMP, WATERMARK FOR n AS n) APPEND ONLY;",
    "nested": "CREATE TABLE nested (k INT PRIMARY KEY, s TEXT, n INT[]);",
}
_TEXTS = st.sampled_from(["", "a", 'q"u\\o', "ünï\n", "\x00", "日本"])
_KEYS = {"pair": st.sampled_from([0.0, -0.0, 1.5, 2.0, 1e300])}
_NUMBERS = {
    "timed": st.none() | st.integers(0, 5).map(lambda n: 1_700_000_000_000 + n),
    "nested": st.none() | st.lists(st.none() | st.integers(0, 3), max_size=2),
}


@st.composite
def tries(draw: st.DrawFn) -> tuple[str, OnDuplicate, list[list[Row]]]:
    """A table, what is done with keys that exist, and the rows of a few statements."""
    table = draw(st.sampled_from([*CREATE]))
    keys = _KEYS.get(table, st.integers(0, 6))
    row = st.tuples(
        keys, _TEXTS if draw(st.booleans()) else st.none() | _TEXTS, _NUMBERS.get(table, st.none() | st.integers(0, 3))
    )
    kind: OnDuplicate = draw(st.sampled_from(["error", "nothing", "replace"]))
    return table, kind, draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))


def insert(tables: Tables, change: TableChange, rows: list[Row]) -> int:
    source = tables.source(change.target)
    types = [source.schema.get(n).type for n in change.columns]  # type: ignore[union-attr]
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    arrays = [to_arrow(list(c), t) for c, t in zip(columns, types, strict=True)]
    fields = [pa.field(n, arrow_type(t)) for n, t in zip(change.columns, types, strict=True)]
    given = [pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))]
    return tables.writers.insert(source, change, NOW, given).count


def written(tables: Tables, name: str) -> list[str]:
    return sorted(map(repr, rows_in(tables.log, tables.source(name)).items()))


@settings(max_examples=60)
@given(tries())
def test_columns_mean_what_rows_mean(tried: tuple[str, OnDuplicate, list[list[Row]]]) -> None:
    name, kind, statements = tried
    by_rows, by_columns = Tables(CREATE[name]), Tables(CREATE[name])
    columns = ("s", "n") if name == "counted" else ("k", "s", "n")
    change = TableChange(name, "insert", columns, select="...", on_duplicate=kind)
    assert takes_columns(by_rows.source(name), change)
    for given_rows in statements:
        rows = [row[-len(columns) :] for row in given_rows]
        outcomes: list[object] = []
        for act in (
            lambda rows=rows: by_rows.writers.change(by_rows.source(name), change, NOW, rows).count,
            lambda rows=rows: insert(by_columns, change, rows),
        ):
            try:
                outcomes.append(act())
            except StatementFailed as error:
                outcomes.append(error)
        if any(
            isinstance(o, StatementFailed) for o in outcomes
        ):  # of several wrong rows the other way may tell another one
            assert all(isinstance(o, StatementFailed) for o in outcomes), outcomes
        else:
            assert outcomes[0] == outcomes[1]
        assert written(by_rows, name) == written(by_columns, name)


def test_a_failure_names_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_insert, "PIECE_ROWS", 2)
    tables = Tables("".join(CREATE.values()))
    change = TableChange("plain", "insert", ("k", "s", "n"), select="...")
    for rows, at, why in (
        ([(1, "a", 1), (2, "b", 1), (3, "c", 1), (1, "d", 1)], 3, "has a row with the key k = 1 already"),
        ([(1, "a", 1), (2, "b", 1), (3, None, 1)], 2, "s of plain is NOT NULL"),
    ):
        with pytest.raises(RowFailed, match=why) as failed:
            insert(tables, change, rows)
        assert failed.value.row == at
    with pytest.raises(RowFailed, match=r"CHECK.*n = 5") as failed:
        insert(tables, replace(change, target="made"), [(1, "a", 1), (2, "b", 1), (3, "c", 5)])
    assert failed.value.row == 2
    assert tables.rows("plain") == tables.rows("made") == []


def test_rows_that_others_write_meanwhile_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(CREATE["plain"])
    other = tables.elsewhere()
    change = TableChange("plain", "insert", ("k", "s", "n"), select="...", on_duplicate="nothing")
    between(monkeypatch, lambda: other.change("INSERT INTO plain VALUES (1, 'theirs', 0)"))
    assert insert(tables, change, [(1, "mine", 0), (2, "mine", 0)]) == 1
    assert tables.rows("plain") == [(1, "theirs", 0), (2, "mine", 0)]
    tables.change("DELETE FROM plain WHERE k = 1")
    assert insert(tables, change, [(1, "mine", 0), (2, "again", 0)]) == 1
    assert tables.change("UPDATE plain SET n = n + 1") == 2
    assert tables.rows("plain") == [(1, "mine", 1), (2, "mine", 1)]
