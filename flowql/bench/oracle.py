"""The expected result of each Nexmark query, computed by DuckDB from the same events; a speed is not printed without it.

Most queries are complete at each moment (windows are given as they grow), so the results are those of all events.
Where several rows tie for the highest the queries name the one they give, and so does the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa

from flowql.bench.nexmark_people import SCHEMAS

OPEN_MS = 1_000  # of the end of the input, in which partitions may have closed different windows
SHOWN = 3  # rows of each kind that a difference prints

# Rows that fit in memory, or a function that reads them again from the start each time it is called.
Rows: TypeAlias = pa.Table | Callable[[], pa.RecordBatchReader]


@dataclass(frozen=True, slots=True)
class Expected:
    """sql: over person, auction and bid, columns as the peers of the benchmark name them and the queries type them.

    table: the result is the last value of each key, not every record.
    closes: the time at which a row is final, for queries that give windows when they close; rows that the last bids leave
    open are not compared, nor those of the last second, in which partitions may differ in what they have closed.
    """

    sql: str
    reads: tuple[str, ...] = ("bid",)
    table: bool = False
    closes: str = ""


_Q5 = (
    'WITH opened AS (SELECT "dateTime" // 2000 * 2000 - back * 2000 AS window_start, auction FROM bid, range(5) r(back)), '
    "counted AS (SELECT window_start, auction, count(*) AS num FROM opened GROUP BY ALL), "
    "best AS (SELECT window_start, max({num: num, auction: auction}) AS b FROM counted GROUP BY ALL) "
    "SELECT window_start, b.auction AS auction, b.num AS num FROM best"
)
_Q7 = (
    'WITH best AS (SELECT "dateTime" // 10000 * 10000 AS window_start, '
    "max({price: price, auction: auction, bidder: bidder}) AS b FROM bid GROUP BY ALL) "
    "SELECT window_start, b.auction AS auction, b.bidder AS bidder, b.price AS price FROM best"
)
_Q8 = (
    'SELECT DISTINCT p.id, p.name, p."dateTime" // 10000 * 10000 AS window_start FROM person p '
    'JOIN auction a ON a.seller = p.id AND a."dateTime" // 10000 = p."dateTime" // 10000'
)
_Q11 = (
    'WITH timed AS (SELECT bidder, "dateTime" AS t, lag("dateTime") OVER w AS last FROM bid '
    'WINDOW w AS (PARTITION BY bidder ORDER BY "dateTime")), '
    "numbered AS (SELECT bidder, t, count(*) FILTER (last IS NULL OR t - last > 10000) OVER w AS session FROM timed "
    "WINDOW w AS (PARTITION BY bidder ORDER BY t)) "
    "SELECT bidder, count(*) AS bid_count, min(t) AS starttime, max(t) + 10000 AS endtime FROM numbered "
    "GROUP BY bidder, session"
)
EXPECTED: Mapping[str, Expected] = {
    "q0": Expected('SELECT auction, bidder, price, channel, url, "dateTime", extra FROM bid'),
    "q1": Expected(
        'SELECT auction, bidder, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS price, "dateTime", extra FROM bid'
    ),
    "q2": Expected("SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q3": Expected(
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        reads=("auction", "person"),
    ),
    "q5": Expected(_Q5, table=True, closes="window_start + 10000"),
    "q7": Expected(_Q7, table=True),
    "q8": Expected(_Q8, reads=("person", "auction"), table=True),
    "q11": Expected(_Q11, table=True),
    "qc": Expected(
        "SELECT bidder, count(*) AS bids, CAST(sum(price) AS BIGINT) AS total, max(price) AS top "
        "FROM bid GROUP BY bidder",
        table=True,
    ),
}


def difference(query: str, inputs: Mapping[str, Rows], result: Rows) -> str:
    """Empty when `result` holds exactly the rows `query` must give, in any order; else a message that shows some.

    inputs: what the query reads, by topic, of `flowql.bench.nexmark_people.SCHEMAS`. result: the appended rows of a
    stream, the final rows of a table, with at least the columns of the query.

    >>> from flowql.bench.nexmark import bids
    >>> table = pa.Table.from_batches(bids(1000))
    >>> difference("q0", {"bid": table}, table)
    ''
    >>> difference("q0", {"bid": table}, table.slice(1)).startswith("q0: 1 rows missing")
    True
    """
    absent = [name for name in columns_of(query) if name not in _names(result)]
    if absent:
        return f"{query}: the result has no column {', '.join(absent)}"
    complete = _complete_rows(query, inputs)
    wanted = _one(_fingerprint(query, EXPECTED[query].sql, complete), inputs)
    if _one(_fingerprint(query, "SELECT * FROM result", complete), {"result": result}) == wanted:
        return ""
    return _explain(query, inputs, result, complete)


def columns_of(query: str) -> dict[str, str]:
    """Names and DuckDB types of the columns a query gives, in order."""
    with duckdb.connect() as connection:
        for name, schema in SCHEMAS.items():
            connection.register(name, schema.empty_table())
        described = connection.execute(f"DESCRIBE {EXPECTED[query].sql}").fetchall()
        return {name: kind for name, kind, *_ in described}


def rows_of_json(query: str, values: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    """The values of a query's output records (JSON as bytes) as rows of `schema_of_json`."""
    shape = _shape(query)
    for array in values:
        yield from _parsed(shape, array).to_batches()


def schema_of_json(query: str) -> pa.Schema:
    """It needs no row: a query may have no result."""
    return _parsed(_shape(query), pa.array([], pa.binary())).schema


def _shape(query: str) -> str:
    return json.dumps(columns_of(query)).replace("'", "''")


def _parsed(shape: str, values: pa.Array) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("records", pa.table({"v": values.cast(pa.string())}))
        return connection.sql(f"SELECT unnest(from_json(v, '{shape}')) FROM records").to_arrow_table()


def _complete_rows(query: str, inputs: Mapping[str, Rows]) -> str:
    """The condition on rows that are compared."""
    closes = EXPECTED[query].closes
    if not closes:
        return "true"
    newest = _one('SELECT max("dateTime") FROM bid', inputs)
    assert newest is not None
    return f"{closes} <= {newest[0]} - {OPEN_MS}"


def _fingerprint(query: str, rows: str, complete: str) -> str:
    """Count and sum of row hashes: equal for equal bags, whatever their order, at the cost of one pass."""
    hashed = ", ".join(f'CAST("{name}" AS {kind})' for name, kind in columns_of(query).items())
    return f"SELECT count(*), sum(CAST(hash({hashed}) AS HUGEINT)) FROM ({rows}) WHERE {complete}"


def _explain(query: str, inputs: Mapping[str, Rows], result: Rows, complete: str) -> str:
    chosen = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns_of(query).items())
    lines = []
    with duckdb.connect() as connection:
        for name, rows in {**inputs, "result": result}.items():
            connection.register(name, _read(rows))
        connection.execute(f"CREATE TABLE expected AS FROM ({EXPECTED[query].sql}) WHERE {complete}")
        connection.execute(f"CREATE TABLE given AS SELECT {chosen} FROM result WHERE {complete}")
        for text, one, other in (("missing", "expected", "given"), ("unexpected", "given", "expected")):
            only = f"(SELECT {chosen} FROM {one} EXCEPT ALL SELECT {chosen} FROM {other})"
            counted = connection.execute(f"SELECT count(*) FROM {only}").fetchone()
            if counted and counted[0]:
                shown = connection.execute(f"SELECT * FROM {only} ORDER BY ALL LIMIT {SHOWN}").fetchall()
                lines.append(f"{counted[0]:,} rows {text}, such as " + "; ".join(map(str, shown)))
    return f"{query}: {' | '.join(lines)}"


def _one(sql: str, relations: Mapping[str, Rows]) -> tuple[object, ...] | None:
    with duckdb.connect() as connection:
        for name, rows in relations.items():
            connection.register(name, _read(rows))
        return connection.execute(sql).fetchone()


def _read(rows: Rows) -> pa.Table | pa.RecordBatchReader:
    return rows() if callable(rows) else rows


def _names(rows: Rows) -> list[str]:
    return list(_read(rows).schema.names)
