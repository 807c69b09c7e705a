"""DEAD_LETTERS as interactive queries see it: a row per record."""

from __future__ import annotations

import random
import time
from typing import Any

import orjson
import pyarrow as pa
import pytest

from flowql.query.database import QueryDatabase
from flowql.query.dead_letters import LISTED, WITH_VALUES
from flowql.query.errors import TOO_LARGE, QueryError
from flowql.query.interactive import InteractiveQuery
from flowql.query.letters import SCHEMA, folded
from flowql.query.relations import arrow_schema
from flowql.query.room import QueryMemory, Room
from flowql.query.statement import parse
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.dead_letters import SCHEMA as WRITTEN
from flowql.runtime.task.dead_letters import topic_name
from tests.flowql.query.harness import QueryHarness
from tests.runtime.log.records import produce

SQL = """
CREATE STREAM S (K STRING KEY, V INT, W INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE COUNTS AS SELECT K, SUM(V) AS N FROM S GROUP BY K;
CREATE STREAM TWICE AS SELECT K, V * 2 AS V FROM S;
CREATE STREAM OTHERS AS SELECT K, W FROM S;
"""


@pytest.fixture
def world() -> QueryHarness:
    return QueryHarness(SQL)


def test_a_record_is_one_row_with_the_queries_that_it_failed(world: QueryHarness) -> None:
    world.feed("s", [("a", {"V": "x", "W": 1}, 5), ("a", {"V": 1, "W": "y"}, 6), ("a", {"V": "z", "W": "z"}, 7)])
    found = world.ask('SELECT QUERIES, "OFFSET", CODE, MESSAGE, len(FAILURES) AS N FROM DEAD_LETTERS ORDER BY "OFFSET"')
    assert [row["QUERIES"] for row in found] == [
        ["CSAS_TWICE", "CTAS_COUNTS"],
        ["CSAS_OTHERS"],
        ["CSAS_OTHERS", "CSAS_TWICE", "CTAS_COUNTS"],
    ]
    assert [row["N"] for row in found] == [2, 1, 3]
    assert [row["MESSAGE"][0] for row in found] == ["V", "W", "W"]
    reasons = world.ask("SELECT unnest(FAILURES, recursive := true) FROM DEAD_LETTERS WHERE len(QUERIES) = 3")
    assert [(r["QUERY"], r["GENERATION"], r["MESSAGE"][0]) for r in reasons] == [
        ("CSAS_OTHERS", 1, "W"),
        ("CSAS_TWICE", 1, "V"),
        ("CTAS_COUNTS", 1, "V"),
    ]


@pytest.mark.parametrize("sql", [LISTED, "SELECT QUERIES, CODE, MESSAGE FROM DEAD_LETTERS", WITH_VALUES])
def test_records_of_letters_are_read_if_they_are_asked_for(world: QueryHarness, sql: str) -> None:
    world.feed("s", [("a", {"V": "x", "W": 1, "LONG": "x" * 1_000}, n) for n in range(50)])
    query = InteractiveQuery(sql, QueryDatabase())
    relation = world.commit().relations()["DEAD_LETTERS"]()
    statement = parse(sql, query.connection)
    rows = [row for batch in relation.batches((), statement.columns, query.room) for row in batch.to_pylist()]
    taken = query.room.taken
    query.end()
    assert [len(row["FAILURES"]) for row in rows] == [2] * 50
    assert {row["VALUE"] is None for row in rows} == {row["KEY"] is None for row in rows} == {sql != WITH_VALUES}
    assert (taken > 100_000) is (sql == WITH_VALUES)


def test_letters_without_a_record_stay_single_and_records_without_a_value_are_none(world: QueryHarness) -> None:
    tp = TopicPartition(topic_name("flowql"), 0)
    letter = orjson.dumps({"QUERY": "Q", "CODE": "FQ4020", "MESSAGE": "m", "GENERATION": 1})
    produce(world.log, "test", (tp, [(1, None, letter), (2, None, None), (3, None, letter)]))
    assert world.ask("SELECT QUERIES, TOPIC FROM DEAD_LETTERS") == [{"QUERIES": ["Q"], "TOPIC": None}] * 2


def test_more_letters_than_there_is_room_for_are_read_in_parts(world: QueryHarness) -> None:
    """Nobody could list or replay the letters of a month in a target of 512 MB."""
    world.feed("s", [("a", {"V": "x", "W": n % 3 or "y", "LONG": "x" * 100}, n) for n in range(2_000)])
    letter = {"QUERY": "Q", "CODE": "FQ4020", "GENERATION": 1}
    alone = [(n, None, orjson.dumps({**letter, "MESSAGE": f"line {n}"})) for n in range(500)]
    produce(world.log, "test", (TopicPartition(topic_name("flowql"), 0), alone))
    relation = world.commit().relations()["DEAD_LETTERS"]()
    whole = QueryMemory(1 << 30)
    wanted = read(relation, Room(whole))
    assert len(wanted) == 2_500
    for share in (3, 11, 40):
        memory = QueryMemory(whole.taken // share)
        assert sorted(read(relation, Room(memory)), key=str) == sorted(wanted, key=str)
        assert memory.taken <= memory.bytes_max
    with pytest.raises(QueryError) as error:
        read(relation, Room(QueryMemory(1_000)))
    assert error.value.code == TOO_LARGE


def read(relation: Any, room: Room) -> list[Any]:
    return [row for batch in relation.batches((), None, room) for row in batch.to_pylist()]


def expected(letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `folded` means, a letter at a time."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for n, letter in enumerate(letters):
        place = (letter["TOPIC"], letter["PARTITION"], letter["OFFSET"])
        groups.setdefault(n if letter["OFFSET"] is None else place, []).append(letter)
    rows = []
    for group in groups.values():
        reasons = sorted({tuple(x[c] for c in ("QUERY", "GENERATION", "CODE", "MESSAGE")) for x in group})
        rows.append(
            {c: group[0][c] for c in ("TOPIC", "PARTITION", "OFFSET")}
            | {c: group[-1][c] for c in ("ROWTIME", "KEY", "VALUE")}
            | {"QUERIES": sorted({r[0] for r in reasons}), "CODE": reasons[0][2], "MESSAGE": reasons[0][3]}
            | {"FAILURES": [dict(zip(("QUERY", "GENERATION", "CODE", "MESSAGE"), r, strict=True)) for r in reasons]}
        )
    return [{f.name: row[f.name] for f in SCHEMA} for row in rows]


def letters_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    found = []
    for n in range(count):
        offset = rng.choice([None, *range(6)])
        found.append(
            {
                "QUERY": rng.choice("ABC"),
                "TOPIC": rng.choice(["s", "t"]),
                "PARTITION": None if offset is None else rng.randrange(2),
                "OFFSET": offset,
                "ROWTIME": None,
                "CODE": rng.choice(["FQ4020", "FQ4021"]),
                "MESSAGE": rng.choice(["m", "n"]),
                "KEY": None,
                "VALUE": b"%d" % n,
                "GENERATION": rng.choice([1, 2]),
            }
        )
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 10, 100, 1_000])
def test_folding_is_by_record(count: int) -> None:
    letters = letters_of(random.Random(count), count)
    assert folded(pa.Table.from_pylist(letters, arrow_schema(WRITTEN))).to_pylist() == expected(letters)


def test_many_letters_fold_quickly() -> None:
    rng = random.Random(1)
    letters = letters_of(rng, 50_000)
    table = pa.concat_tables([pa.Table.from_pylist(letters, arrow_schema(WRITTEN))] * 5)
    offsets = pa.array([n % 50_000 for n in range(table.num_rows)], pa.int64())
    table = table.set_column(table.schema.get_field_index("OFFSET"), table.schema.field("OFFSET"), offsets)
    began = time.monotonic()
    assert folded(table).num_rows == 50_000
    assert time.monotonic() - began < 5
