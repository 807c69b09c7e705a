"""Every operator with every kind of value at its edges, beside a query that has nothing to do with them.

    python -m tests.nasty_values            # all pairs of queries and columns, by rows and by columns: some minutes
    python -m tests.nasty_values --query sum

A sample is a test (`tests/runtime/app/test_nasty_values.py`); the smaller sweep of `test_values` also compares results.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from typing import Any

import orjson

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.query_state import RUNNING
from tests.runtime.app import test_values
from tests.runtime.app.test_values import TextHarness, done, send

COLUMNS = {
    "L": "BIGINT",
    "D": "DOUBLE",
    "C": "DECIMAL(20, 4)",
    "H": "DECIMAL(38, 10)",
    "T": "STRING",
    "A": "DATE",
    "AT": "TIMESTAMP",
    "TI": "TIME",
    "B": "BYTES",
    "O": "BOOLEAN",
    "I": "INT",
    "N": "STRUCT<X ARRAY<BIGINT>>",
    "M": "MAP<STRING, DOUBLE>",
    "Q": "ARRAY<DOUBLE>",
}
_DECLARED = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
SOURCES = f"""
CREATE STREAM S (K STRING KEY, {_DECLARED}) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE TS (K STRING PRIMARY KEY, {_DECLARED}) WITH (KAFKA_TOPIC='ts', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM U (K STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='u', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE BESIDE AS SELECT K, SUM(V) AS N FROM U GROUP BY K EMIT CHANGES;
"""
GOOD = {
    **{"L": 1, "D": 1.5, "C": 2.25, "H": 3.5, "T": "a", "A": 3, "AT": 4, "TI": 5, "B": "AAEC", "O": True, "I": 3},
    **{"N": {"X": [1]}, "M": {"a": 1.5}, "Q": [1.5]},
}
_NINES = "9" * 28 + ".9999999999"
_DEEP = "[" * 1000 + "]" * 1000
# Raw texts; those of `test_values` come first.
NASTY = {
    "L": ["1.0", "1.5", "1E3", "true", '"12"', '" 12 "'],
    "D": ["-1.7976931348623157e308", "0.0", "-0.0", "NaN", "Infinity", "-Infinity", "4.9e-324"],
    "C": ["1e-400", "-0.0", '"1,5"', "1e400", "-9999999999999999.9999", "9999999999999999.9999"],
    "H": [_NINES, "-" + _NINES, _NINES, _NINES, "1" + _NINES, "1e-30", '"NaN"', "null"],
    "T": [_DEEP, '{"a":' * 1000 + "1" + "}" * 1000, '"\\udc00\\ud800"', '{"a": "\\ud800"}', "[" * 100_000 + "]" * 100_000],
    "A": ["-719162", "-719163", "2932897", '"0000-01-01"', '"10000-01-01"', '"-0001-01-01"', "1.5"],
    "AT": ["-62135596800000", "-62135596800001", "253402300799999", '"9999-12-31T23:59:59.999"', "1.5", "1e300"],
    "TI": ["86399999", "86400000", "-1", '"24:00"', str(2**31), "null"],
    "B": ['""', '"%%%"', '"' + "A" * 400_000 + '"', "3", "null"],
    "O": ['"yes"', "0", "1", "[]", "9" * 40, "null"],
    "I": [str(2**31 - 1), str(-(2**31)), str(2**31), "1.5", "1e400", "null"],
    "N": ['{"X": ' + _DEEP + "}", '{"X": ["1"]}', '{"x": [1], "X": [2]}', '{"X": [9223372036854775808]}'],
    "M": ['{"": null}', '{"\\ud800": 1}', "{}", '{"a": NaN}', '{"a": {"b": 1}}', '{"a": 1, "a": 2}', "null"],
    "Q": ["[null]", "[NaN, -0.0]", "[[1]]", "[1e400]", "[]", "null"],
}  # fmt: skip
_TABLE = "CREATE TABLE R WITH (KEY_FORMAT='JSON') AS SELECT {c} AS G, COUNT(*) AS V FROM S "
_ALL = "CREATE TABLE R AS SELECT 'x' AS X, "
QUERIES = test_values.QUERIES | {
    "extremes": "CREATE TABLE R AS SELECT K, MIN({c}) AS V, MAX({c}) AS W FROM S GROUP BY K EMIT CHANGES;",
    "sum": _ALL + "SUM({c}) AS V, AVG({c}) AS W FROM S GROUP BY 'x' EMIT CHANGES;",
    "sum of a table": _ALL + "SUM({c}) AS V, AVG({c}) AS W FROM TS GROUP BY 'x' EMIT CHANGES;",
    "collect": _ALL + "COLLECT_SET({c}) AS V, HISTOGRAM(CAST({c} AS STRING)) AS W FROM S GROUP BY 'x' EMIT CHANGES;",
    "topk": _ALL + "TOPK({c}, 3) AS V, TOPKDISTINCT({c}, 3) AS W FROM S GROUP BY 'x' EMIT CHANGES;",
    "moments": _ALL + "STDDEV_SAMP({c}) AS V, CORRELATION({c}, {c}) AS W FROM S GROUP BY 'x' EMIT CHANGES;",
    "rekey": "CREATE STREAM R WITH (KEY_FORMAT='JSON') AS SELECT * FROM S PARTITION BY {c} EMIT CHANGES;",
    "join by it": "CREATE TABLE P WITH (KEY_FORMAT='JSON') AS SELECT {c} AS G, COUNT(*) AS N FROM TS GROUP BY {c} EMIT CHANGES; "
    "CREATE STREAM R WITH (KEY_FORMAT='JSON') AS SELECT S.{c} AS G, P.N AS N, S.K AS KK FROM S LEFT JOIN P ON S.{c} = P.G EMIT CHANGES;",
    "streams by it": "CREATE STREAM S2 AS SELECT K, {c} AS X2 FROM S EMIT CHANGES; CREATE STREAM R WITH (KEY_FORMAT='JSON') AS "
    "SELECT S.{c} AS G, S.K AS K1, S2.K AS K2 FROM S JOIN S2 WITHIN 1 DAY ON S.{c} = S2.X2 EMIT CHANGES;",
    "session by it": _TABLE + "WINDOW SESSION (1 DAY) GROUP BY {c} EMIT CHANGES;",
    "hops by it": _TABLE + "WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 12 HOURS) GROUP BY {c} EMIT CHANGES;",
    "two keys": _TABLE.replace("AS G,", "AS G, L,") + "GROUP BY {c}, L EMIT CHANGES;",
    "explode": "CREATE STREAM R AS SELECT K, EXPLODE(ARRAY[{c}, {c}]) AS V FROM S EMIT CHANGES;",
    "expressions": "CREATE STREAM R AS SELECT K, {c} + {c} AS V, CAST({c} AS STRING) AS W FROM S WHERE {c} IS NULL "
    "OR CAST({c} AS STRING) <> 'zz' EMIT CHANGES;",
    "avro": "CREATE STREAM R WITH (VALUE_FORMAT='AVRO') AS SELECT K, {c} AS V FROM S EMIT CHANGES;",
    "delimited": "CREATE STREAM R WITH (VALUE_FORMAT='DELIMITED') AS SELECT K, {c} AS V FROM S EMIT CHANGES;",
    "protobuf": "CREATE STREAM R WITH (VALUE_FORMAT='PROTOBUF_NOSR') AS SELECT K, {c} AS V FROM S EMIT CHANGES;",
}


def fits(query: str, column: str) -> bool:
    return compile_project([SourceText("pair.sql", SOURCES + QUERIES[query].format(c=column))]).ok


def sample(
    queries: Iterable[str], columns: Iterable[str], fits: Callable[[str, str], bool], count: int
) -> list[tuple[str, str]]:
    """Pairs that fit together, others from run to run. Compiles no more pairs than that takes."""
    drawn = list(product(queries, columns))
    random.Random(os.environ.get("TURNS")).shuffle(drawn)
    return list(islice((pair for pair in drawn if fits(*pair)), count))


def record(column: str, text: str) -> bytes:
    """The good record with one column as a raw text."""
    parts = (f'"{c}": {text if c == column else orjson.dumps(v).decode()}' for c, v in GOOD.items())
    return ("{" + ",".join(parts) + "}").encode()


def live(query: str, column: str, *, vector: bool) -> list[str]:
    """What is wrong after all nasty values of a column, between good ones."""
    texts = [*test_values.NASTY.get(column, ()), *NASTY[column]]
    good = orjson.dumps(GOOD)
    rows = [
        ("good", good, 1),
        *((f"bad {n}", record(column, t), 2 + n) for n, t in enumerate(texts)),
        ("later", good, 90),
    ]
    world = TextHarness(SOURCES + QUERIES[query].format(c=column), vector=vector)
    for topic in ("s", "ts"):
        send(world, topic, rows)
    send(world, "u", [(k, b'{"V": 5}', at) for k, _, at in rows])
    done(world)
    return list(_wrong(world, len(rows)))


def _wrong(world: Any, rows: int) -> Iterator[str]:
    if world.instance.commit.blocked:
        yield f"commits are blocked: {world.instance.commit.blocked}"
    if [n for _, n in world.table("BESIDE")] != [5] * rows:
        yield f"the query beside has {world.table('BESIDE')}"
    for name in world.instance.queries:
        record = world.instance.query_states.of(name)
        if record.state is not RUNNING:
            yield f"{name}: {record.reason}"
        letters = [(x["TOPIC"], x["PARTITION"], x["OFFSET"]) for x in world.dead_letters(name)]
        if len(letters) != len(set(letters)):
            yield f"{name}: several letters of a record: {letters}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", choices=QUERIES)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    count = wrong = 0
    for query, column in product(QUERIES, COLUMNS):
        if given.query not in (None, query) or not fits(query, column):
            continue
        for vector in (False, True):
            count += 1
            for what in live(query, column, vector=vector):
                wrong += 1
                print(f"{query}, {column}, {'columns' if vector else 'rows'}: {what[:300]}", flush=True)
    print(f"{count} worlds, {wrong} wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
