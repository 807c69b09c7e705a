"""Aggregates of a project over batches of columns: every row in its order, with arguments of every type that columns have."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.runtime.operators.partials import Partials
from tests.flowql.projects_with_modules import made, running, until

pytestmark = pytest.mark.turns("long")

SEED, ROWS, KEYS, STEP_MS = 20261124, 6_000, 40, 50
YAML = "name: shop\nfunctions: [mine]\nsql: [shop.sql]\n"
MINE = """
from datetime import date, datetime
from decimal import Decimal
from flowql import udaf

@udaf(isolation={isolation!r})
class Digest:
    '''Changes with the order of rows.'''

    def init(self) -> int:
        return 0

    def add(self, seen: int, id: int, text: str | None, flag: bool | None, price: Decimal | None, day: date | None, at: datetime | None,
            data: bytes | None) -> int:
        said = repr((id, text, flag, price, day, at, data))
        return (seen * 31 + sum(said.encode())) % 1_000_003

@udaf(isolation={isolation!r})
class Seen:
    '''Changes its accumulator in place, refuses some rows after that, and cannot show some results.'''

    def init(self) -> list[int]:
        return []

    def add(self, seen: list[int], id: int, weight: float) -> None:
        seen.append(id)
        if weight == 13:
            raise ValueError(f"{{id}} is refused")

    def result(self, seen: list[int]) -> int:
        if len(seen) == 7:
            raise ArithmeticError("seven")
        return sum((n + 1) * i for n, i in enumerate(seen)) % 1_000_003
"""
SQL = """
CREATE STREAM S (K INT KEY, ID BIGINT, TEXT STRING, FLAG BOOLEAN, PRICE DECIMAL(8, 2), DAY DATE, AT TIMESTAMP, DATA BYTES, WEIGHT DOUBLE)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
CREATE TABLE DIGESTS AS SELECT K, DIGEST(ID, TEXT, FLAG, PRICE, DAY, AT, DATA) AS D, SUM(ID) AS T, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE HOPS AS SELECT K, DIGEST(ID, TEXT, FLAG, PRICE, DAY, AT, DATA) AS D
  FROM S WINDOW HOPPING (SIZE 60 SECONDS, ADVANCE BY 20 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY K;
CREATE TABLE SEENS AS SELECT K, SEEN(ID, WEIGHT) AS S, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE ALL_SEEN AS SELECT K, SEEN(ID, WEIGHT) AS S, COUNT(*) AS N
  FROM S WINDOW TUMBLING (SIZE 30 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY K;
"""
START = datetime(2026, 11, 24, tzinfo=UTC)


def records() -> list[dict[str, Any]]:
    print("seed", SEED)
    rng = random.Random(SEED)
    return [
        {
            "K": rng.randrange(KEYS),
            "ID": i,
            "TEXT": rng.choice([None, "", "tea", "grüße"]),
            "FLAG": rng.choice([None, True, False]),
            "PRICE": rng.choice([None, Decimal(rng.randrange(9_999)) / 100]),
            "DAY": rng.choice([None, date(1960, 2, 29), date(2026, 11, 24)]),
            "AT": START + timedelta(milliseconds=i * STEP_MS + rng.randrange(5_000)),
            "DATA": rng.choice([None, b"", b"\x00\xff"]),
            "WEIGHT": rng.choice([None, 1.5, 2.5]) if rng.random() > 0.0005 else 13.0,
        }
        for i in range(ROWS)
    ]


def digest(rows: list[dict[str, Any]]) -> int:
    seen = 0
    for r in rows:
        price = None if r["PRICE"] is None else r["PRICE"].quantize(Decimal("0.01"))
        at = r["AT"].replace(tzinfo=None)
        seen = (
            seen * 31 + sum(repr((r["ID"], r["TEXT"], r["FLAG"], price, r["DAY"], at, r["DATA"])).encode())
        ) % 1_000_003
    return seen


def shown(rows: list[dict[str, Any]]) -> int | None:
    ids = [r["ID"] for r in rows if r["WEIGHT"] is not None]
    return None if len(ids) == 7 else sum((n + 1) * i for n, i in enumerate(ids)) % 1_000_003


def grouped(rows: list[dict[str, Any]], size_s: int = 0, advance_s: int = 0) -> dict[Any, list[dict[str, Any]]]:
    """Rows by their key, and the start of their windows if these have a size."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for r in rows:
        at = int((r["AT"] - START).total_seconds())
        starts = range(at - at % advance_s, at - size_s, -advance_s) if size_s else [0]
        for start in starts:
            found.setdefault((r["K"], START.timestamp() + start) if size_s else r["K"], []).append(r)
    return found


def windows(instance: flowql.Connection, sql: str) -> dict[Any, Any]:
    return {(r["K"], r["W"] / 1000): r["V"] for r in instance.sql(sql).arrow().to_pylist()}


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_every_row_is_added_in_its_order(tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, merged = records(), Partials.merge
    good = [r for r in sent if r["WEIGHT"] != 13.0]
    in_columns: list[int] = []
    monkeypatch.setattr(Partials, "merge", lambda *a: in_columns.append(made_of := merged(*a)) or made_of)
    made(tmp_path, YAML, SQL, mine=MINE.format(isolation=isolation))
    with running(tmp_path) as instance:
        instance.produce("S", sent)
        until(lambda: instance.sql("SELECT SUM(N) FROM DIGESTS").one(), ROWS)
        until(lambda: instance.sql("SELECT SUM(N) FROM SEENS").one(), len(good))
        until(lambda: instance.sql("SELECT SUM(N) FROM ALL_SEEN").one(), len(good))
        of_key = grouped(sent)
        found = {r["K"]: (r["D"], r["T"], r["N"]) for r in instance.sql("SELECT * FROM DIGESTS")}
        assert found == {k: (digest(rows), sum(r["ID"] for r in rows), len(rows)) for k, rows in of_key.items()}
        hops = {k: digest(rows) for k, rows in grouped(sent, 60, 20).items()}
        until(lambda: windows(instance, "SELECT K, WINDOWSTART AS W, D AS V FROM HOPS"), hops)
        seens = {r["K"]: r["S"] for r in instance.sql("SELECT K, S FROM SEENS")}
        assert seens == {k: shown(rows) for k, rows in grouped(good).items()}
        per_window = {k: shown(rows) for k, rows in grouped(good, 30, 30).items()}
        assert windows(instance, "SELECT K, WINDOWSTART AS W, S AS V FROM ALL_SEEN") == per_window
        refused = [r for r in sent if r["WEIGHT"] == 13.0]
        letters = str(instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist())
        assert refused
        assert all(f"{r['ID']} is refused" in letters for r in refused)
        assert "seven" in letters
    assert in_columns
