"""Statements broken at random: each is accepted or refused with a diagnostic, and nothing else happens.

Statements are those of the examples and of the error pages. `python -m tests.property.test_mutated_statements N SEED` runs more.
"""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path

from compiler.diagnostics.codes import CODES
from compiler.diagnostics.diagnostic import CompileError
from compiler.diagnostics.render import render
from compiler.diagnostics.source import SourceText
from compiler.driver import DialectName, Session
from compiler.functions.registry import all_aggregates, all_functions

COUNT, SEED = 2_000, 20130101
CPU_S_MAX = 10  # of one statement; it takes a millisecond, and machines may be busy
TOKEN = re.compile(
    r"\s+|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|:=|->|=>|<>|<=|>=|!=|\|\||.", re.S
)
SOURCES = """
CREATE TYPE point AS STRUCT<x INT, y DOUBLE>;
CREATE STREAM s (k INT KEY, v BIGINT, d DECIMAL(9, 2), t STRING, ts TIMESTAMP, l ARRAY<INT>, m MAP<STRING, DOUBLE>, p point)
  WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', TIMESTAMP='ts');
CREATE STREAM r (k INT KEY, w STRING) WITH (KAFKA_TOPIC='r', FORMAT='AVRO');
CREATE TABLE c (k INT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='c', VALUE_FORMAT='PROTOBUF');
CREATE TABLE w (k INT PRIMARY KEY, n BIGINT) WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');
"""
QUERIES = [
    "CREATE STREAM a AS SELECT k, v + d * 2 AS x, p->x AS px, m['a'] AS ma, l[1] AS l1 FROM s WHERE v BETWEEN 1 AND 5;",
    "CREATE TABLE a WITH (VALUE_FORMAT='AVRO') AS SELECT t, COUNT(*) AS n, TOPK(v, 3) AS top FROM s WINDOW HOPPING (SIZE 1 HOUR, "
    "ADVANCE BY 5 MINUTES, GRACE PERIOD 1 MINUTE) GROUP BY t HAVING COUNT(*) > 1 EMIT FINAL;",
    "CREATE STREAM a AS SELECT s.k, w, v FROM s LEFT JOIN r WITHIN (1 HOUR, 5 MINUTES) GRACE PERIOD 1 DAY ON s.k = r.k AND v > 1;",
    "CREATE STREAM a AS SELECT s.k, name FROM s JOIN c ON s.k = c.k PARTITION BY name;",
    "CREATE STREAM a AS SELECT k, TRANSFORM(m, (a, b) => UCASE(a), (a, b) => b + 1) AS f, EXPLODE(l) AS e FROM s;",
    "CREATE TABLE a AS SELECT k, window_start, SUM(v) AS n FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, "
    "INTERVAL '1' DAY)) GROUP BY k, window_start, window_end;",
    "CREATE STREAM a AS SELECT k, CASE WHEN v IN (1, 2) THEN 'x' WHEN t LIKE 'a%' THEN t ELSE NULL END AS c FROM s;",
    "INSERT INTO s (k, v, ROWTIME) VALUES (1, 2, 3);",
    "INSERT INTO r SELECT k, CAST(v AS STRING) AS w FROM s EMIT CHANGES;",
    "DROP STREAM IF EXISTS s DELETE TOPIC;",
    "SET 'ksql.functions.collect_list.limit' = '3';",
]  # fmt: skip


def seeds() -> list[str]:
    """Statements that are right, and some that are wrong already."""
    examples = [p.read_text() for p in Path(__file__).parents[2].glob("pipelines/**/*.sql")]
    single = [s + ";" for text in examples for s in text.split(";") if s.strip()]
    pages = [e for page in CODES.values() for e in (page.wrong, page.right) if e]
    return [*QUERIES, *single, *pages]


def words(statements: list[str]) -> list[str]:
    """What may take the place of something else."""
    known = {t for s in statements for t in TOKEN.findall(s) if not t.isspace()}
    return sorted(known | set(all_functions()) | set(all_aggregates()) | {"", "9" * 40, "'", "(" * 60, "\x00", "😀"})


def mutated(statement: str, pool: list[str], rng: random.Random) -> str:
    tokens = TOKEN.findall(statement)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                tokens[at] = " "
            case 1:
                tokens[at] = f" {rng.choice(pool)} "
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens.insert(at, f" {rng.choice(pool)} ")
            case _:
                tokens[at:at] = tokens[min(at, other) : max(at, other)][:20]
    return "".join(tokens)


def run(count: int, seed: int) -> dict[str, int]:
    """How many were accepted and refused. Raises what should not happen, with the statement."""
    rng = random.Random(seed)
    statements = seeds()
    pool = words(statements)
    outcomes = {"accepted": 0, "refused": 0}
    for _ in range(count):
        text = mutated(rng.choice(rng.choice((QUERIES, statements))), pool, rng)
        dialect: DialectName = rng.choice(("ksql", "standard"))
        session = Session(dialect=dialect)
        session.execute(SourceText("sources.sql", SOURCES))
        began = time.process_time()
        try:
            session.execute(SourceText("mutated.sql", text))
            outcomes["accepted"] += 1
        except CompileError as refused:
            outcomes["refused"] += bool(render(refused.diagnostics))
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} in {dialect}: {text}") from error
        assert time.process_time() - began < CPU_S_MAX, text
    return outcomes


def test_a_broken_statement_is_refused_and_nothing_else() -> None:
    print(f"{COUNT} statements of seed {SEED}")
    outcomes = run(COUNT, SEED)
    assert sum(outcomes.values()) == COUNT
    assert min(outcomes.values()) > COUNT // 50, outcomes


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2])))
