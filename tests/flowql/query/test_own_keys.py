"""A look-up in a large local table searches the keys of its topic, with the same rows as an index has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from flowql.query import kept, own_keys
from flowql.query.errors import TOO_LARGE, QueryError
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.decode import Decoder
from tests.slt.session import DATABASE, Shape, SqlSession

KEYS = {
    "i": ("k INT PRIMARY KEY", ["-3", "0", "7", "2147483647"]),
    "b": ("k BIGINT PRIMARY KEY", ["-9223372036854775807", "0", "12"]),
    "s": ("k TEXT PRIMARY KEY", ["''", "'it''s'", "'Ünï €'", "'1'", """'"q"'"""]),
    "u": ("k UUID PRIMARY KEY", ["'00000000-0000-0000-0000-00000000000A'", "'00000000-0000-0000-0000-00000000000b'"]),
    "two": ("j TEXT, k INT, PRIMARY KEY (k, j)", ["1", "2", "3"]),
}


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    found = SqlSession(Shape(partitions=3))
    with closing(found):
        for name, (columns, keys) in KEYS.items():
            j, of_j = ("j, ", "'ä', ") if name == "two" else ("", "")
            found.execute(f"CREATE TABLE {name} ({columns}, v INT, note TEXT)")
            for n, key in enumerate(keys):
                found.execute(f"INSERT INTO {name} ({j}k, v, note) VALUES ({of_j}{key}, {n}, 'é')")
            found.execute(f"UPDATE {name} SET v = v + 10 WHERE k IN ({', '.join(keys[1:])})")
            found.execute(f"DELETE FROM {name} WHERE k = {keys[-1]}")
        yield found


@pytest.mark.parametrize("name", KEYS)
def test_the_rows_are_those_of_an_index(name: str, world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, and_j = KEYS[name][1], " AND j = 'ä'" if name == "two" else ""
    queries = [f"SELECT * FROM {name} WHERE k = {key}{and_j}" for key in keys]
    queries.append(f"SELECT v, note FROM {name} WHERE k IN ({', '.join(keys)}){and_j}")
    expected = [world.ask(q) for q in queries]
    monkeypatch.setattr(DATABASE.kept, "_bytes_max", -1)
    monkeypatch.delattr(kept.Kept, "advance")  # nothing is kept
    for q, rows in zip(queries, expected, strict=True):
        found = world.ask(q)
        assert found.schema == rows.schema
        assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, rows.to_pylist())), q
    assert sum(rows.num_rows for rows in expected) == 2 * (len(keys) - 1)


def test_other_records_are_not_decoded(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = own_keys.decode

    def counted(decoder: Decoder, raw: RawBatch) -> object:
        decoded.append(raw.rows)
        return decode(decoder, raw)

    monkeypatch.setattr(DATABASE.kept, "_bytes_max", -1)
    monkeypatch.setattr(own_keys, "decode", counted)
    assert world.ask("SELECT v FROM i WHERE k = 0").to_pylist() == [{"v": 11}]
    assert decoded == [1]


def test_a_table_that_was_compacted_meanwhile_is_searched_again(
    world: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([True])
    monkeypatch.setattr(DATABASE.kept, "_bytes_max", -1)
    monkeypatch.setattr(own_keys, "is_passed", lambda *_: next(told, False))
    assert world.ask("SELECT v FROM i WHERE k = 0").to_pylist() == [{"v": 11}]
    assert next(told, None) is None


def test_found_rows_are_within_the_memory_of_queries(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATABASE.kept, "_bytes_max", -1)
    monkeypatch.setattr(DATABASE.memory, "bytes_max", 10)
    with pytest.raises(QueryError, match="of memory for interactive queries") as refused:
        world.ask("SELECT v, note FROM i WHERE k IN (0, 7)")
    assert refused.value.code == TOO_LARGE
