"""Rows of tables that are kept between look-ups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from flowql.config.load import read_project
from flowql.deploy.settings import settings_of
from flowql.pg import kept
from flowql.pg.reading import Reading
from tests.flowql.pg.conftest import Shop


@pytest.fixture
def reading(shop: Shop) -> Iterator[Reading]:
    made = Reading(settings_of(read_project(shop.folder)))
    yield made
    made.close()


def rows(reading: Reading, sql: str) -> list[tuple[object, ...]]:
    with closing(reading.ask(sql)) as answer:
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


def test_what_is_kept_has_a_limit(shop: Shop) -> None:
    topics = kept.KeptTopics(0)
    source = next(s for s in Reading(settings_of(read_project(shop.folder))).plan().sources if s.name == "orders")
    topics.of(source).size = 1
    topics.trim()
    assert topics.of(source).size == 0
