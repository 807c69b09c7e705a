"""Rows of tables that are kept between look-ups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from flowql.config.load import read_project
from flowql.deploy.settings import settings_of
from flowql.pg.errors import PgError
from flowql.pg.pins import Holder
from flowql.pg.reading import Reading
from flowql.query import kept
from flowql.query.pace import Share
from flowql.runtime.log.base import RawBatch, TopicPartition
from tests.flowql.pg.conftest import Shop


@pytest.fixture
def reading(shop: Shop) -> Iterator[Reading]:
    made = Reading(settings_of(read_project(shop.folder)))
    yield made
    made.close()


def rows(reading: Reading, sql: str, holder: Holder | None = None) -> list[tuple[object, ...]]:
    with closing(reading.ask(sql, holder=holder)) as answer:
        return sorted(tuple(r.values()) for r in answer.table().to_pylist())


def test_only_new_records_are_decoded(shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[int]()
    decode = kept.decode

    def counting(*given: object) -> object:
        found = decode(*given)  # type: ignore[arg-type]
        decoded.append(len(found))
        return found

    monkeypatch.setattr(kept, "decode", counting)
    execute = shop.instance.connection.execute
    execute("INSERT INTO notes VALUES (1000, 'a'), (1001, 'b')")
    question = "SELECT note FROM notes WHERE id = 1000"
    assert rows(reading, question) == [("a",)]
    decoded.clear()
    assert rows(reading, question) == [("a",)]
    assert decoded == []
    execute("UPDATE notes SET note = 'c' WHERE id = 1000")
    assert rows(reading, question) == [("c",)]
    assert sum(decoded) == 1
    execute("DELETE FROM notes WHERE id >= 1000")
    assert rows(reading, question) == []
    assert rows(reading, "SELECT * FROM notes WHERE id >= 1000") == []


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_that_the_instance_has(
    shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(kept, "DEAD_ROWS_MIN", 2)
    rng, connection = Random(seed), shop.instance.connection
    base = 2_000 + 100 * seed
    for _ in range(12):
        ids = rng.sample(range(base, base + 20), 4)
        match rng.randrange(3):
            case 0:
                values = ", ".join(f"({i}, 'n{rng.randrange(100)}')" for i in ids)
                connection.execute(
                    f"INSERT INTO notes VALUES {values} ON CONFLICT (id) DO UPDATE SET note = excluded.note"
                )
            case 1:
                connection.execute(f"UPDATE notes SET note = note || '!' WHERE id IN ({', '.join(map(str, ids))})")
            case _:
                connection.execute(f"DELETE FROM notes WHERE id IN ({ids[0]}, {ids[1]})")
        for condition in (
            f"id = {ids[0]}",
            f"id IN ({ids[2]}, {ids[3]}, 1)",
            f"id BETWEEN {base} AND {base + 99}",
            f"note LIKE '%!' AND id > {base}",
        ):
            sql = f"SELECT id, note FROM notes WHERE {condition}"
            assert rows(reading, sql) == sorted(tuple(r.values()) for r in connection.sql(sql)), sql
    connection.execute(f"DELETE FROM notes WHERE id >= {base}")


NOTES = "SELECT id, note FROM notes WHERE id BETWEEN {} AND {}"


@pytest.mark.parametrize("seed", range(3))
def test_pins_read_what_was_there(shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Transactions that begin at any time, look when they like, and see the same rows each time."""
    monkeypatch.setattr(kept, "DEAD_ROWS_MIN", 2)
    rng, connection, base = Random(seed), shop.instance.connection, 2_500 + 100 * seed
    all_of = NOTES.format(base, base + 99)
    pinned = list[tuple[Holder, list[tuple[object, ...]]]]()
    for _ in range(25):
        ids = rng.sample(range(base, base + 12), 4)
        values = ", ".join(f"({i}, 'n{rng.randrange(100)}')" for i in ids)
        match rng.randrange(6):
            case 0 | 1:
                connection.execute(
                    f"INSERT INTO notes VALUES {values} ON CONFLICT (id) DO UPDATE SET note = excluded.note"
                )
            case 2:
                connection.execute(f"DELETE FROM notes WHERE id IN ({ids[0]}, {ids[1]})")
            case 3:
                rows(reading, all_of)
            case 4:
                holder = Holder()
                holder.pinned(reading.pin, reading.unpin)
                pinned.append((holder, sorted(tuple(r.values()) for r in connection.sql(all_of))))
            case _ if rng.randrange(3) == 0:
                monkeypatch.setattr(reading._kept, "_bytes_max", -1)
                reading._kept.trim()
                monkeypatch.setattr(reading._kept, "_bytes_max", 1 << 30)
        for holder, seen in pinned:
            if rng.randrange(3) == 0:
                wanted = [r for r in seen if r[0] == ids[0]]
                assert rows(reading, f"SELECT id, note FROM notes WHERE id = {ids[0]}", holder) == wanted
            if rng.randrange(3) == 0:
                assert rows(reading, all_of, holder) == seen
    for holder, _ in pinned:
        holder.close()
    connection.execute(f"DELETE FROM notes WHERE id >= {base}")
    assert reading.database.memory.taken == 0


def test_a_pin_whose_records_were_compacted_before_they_were_read_says_so(
    shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, holder = shop.instance.connection.execute, Holder()
    execute("INSERT INTO notes VALUES (2900, 'a')")
    holder.pinned(reading.pin, reading.unpin)
    execute("UPDATE notes SET note = 'b' WHERE id = 2900")
    admin = type(reading._log.admin())
    found = admin.files_of
    monkeypatch.setattr(admin, "files_of", lambda self, tp: frozenset((b, life + 1) for b, life in found(self, tp)))
    with pytest.raises(PgError, match="compacted") as failed:
        rows(reading, NOTES.format(2900, 2900), holder)
    assert failed.value.state == "40001"
    assert rows(reading, NOTES.format(2900, 2900)) == [(2900, "b")]
    holder.close()
    execute("DELETE FROM notes WHERE id = 2900")


def test_a_pin_takes_no_more_memory_than_there_is(
    shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "DEAD_ROWS_MIN", 1 << 20)
    execute, holder = shop.instance.connection.execute, Holder()
    execute("INSERT INTO notes VALUES (2950, 'a')")
    pin = holder.pinned(reading.pin, reading.unpin)
    assert rows(reading, NOTES.format(2950, 2950), holder) == [(2950, "a")]
    reading.database.memory.taken += (taken := reading.database.memory.bytes_max)
    execute("DELETE FROM notes WHERE id = 2950")
    reading.database.memory.taken -= taken
    assert pin.room.taken == 0
    rows(reading, NOTES.format(2950, 2950))
    assert pin.room.taken == kept.KEY_BYTES
    pin.is_over = True
    with pytest.raises(PgError, match="need more memory") as failed:
        rows(reading, NOTES.format(2950, 2950), holder)
    assert failed.value.state == "53200"
    holder.close()
    assert reading.database.memory.taken == 0


def test_a_deletion_that_compaction_has_removed_is_noticed(
    shop: Shop, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, usual = shop.instance.connection.execute, kept.records
    execute("INSERT INTO notes VALUES (5000, 'a')")
    question = "SELECT note FROM notes WHERE id = 5000"
    assert rows(reading, question) == [("a",)]
    execute("DELETE FROM notes WHERE id = 5000")
    execute("INSERT INTO notes VALUES (5001, 'b')")

    def compacted(*given: Any) -> Iterator[RawBatch]:
        for raw in usual(*given):
            left = raw.records.filter(pc.not_equal(raw.records.column("key"), key_5000))
            yield RawBatch(raw.tp, left, raw.next_offset, raw.size_bytes)

    key_5000 = next(
        k.as_py()
        for raw in usual(reading._log, TopicPartition("notes", 0), 0, 1 << 40)
        for k in raw.records.column("key")
        if b"5000" in k.as_py()
    )
    monkeypatch.setattr(kept, "records", compacted)
    assert rows(reading, question) == []
    assert rows(reading, "SELECT note FROM notes WHERE id = 5001") == [("b",)]
    execute("DELETE FROM notes WHERE id >= 5000")


def test_what_is_kept_has_a_limit(shop: Shop) -> None:
    topics = kept.KeptTopics(0, Share())
    source = next(s for s in Reading(settings_of(read_project(shop.folder))).plan().sources if s.name == "orders")
    topics.of(source).size = 1
    topics.trim()
    assert topics.of(source).size == 0
