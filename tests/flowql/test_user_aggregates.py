"""Aggregates and table functions of a project: Python classes and generators that its queries call."""

from __future__ import annotations

import random
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.compiler.functions.registry import AggregateFunction
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import ROWS_MAX
from flowql.compiler.plan.types import DOUBLE
from flowql.config.compile import compile_sources
from flowql.config.functions import load_functions
from flowql.config.load import load_project
from flowql.runtime.functions.workers import FunctionFailed
from flowql.runtime.spark.choose import choose
from flowql.runtime.spark.settings import SparkSettings
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until

pytestmark = pytest.mark.turns("functions")

YAML = "name: sensors\nfunctions: [stats]\nsql: [shop.sql]\n"
STATS = """
from collections.abc import Iterator
from flowql import udaf, udtf

@udaf
class Median:
    '''Changes what it is given, wherever it can.'''

    def init(self) -> list[float]:
        return []

    def add(self, seen: list[float], value: float) -> None:
        seen.append(value)
        if value == 13:
            raise ValueError("13 is not measured")

    def undo(self, seen: list[float], value: float) -> None:
        seen.remove(value)

    def merge(self, seen: list[float], other: list[float]) -> None:
        seen += other
        other.clear()

    def result(self, seen: list[float]) -> float | None:
        seen.sort()
        return seen.pop(len(seen) // 2) if seen else None

@udaf(name="spread")
class Extremes:
    def init(self) -> tuple[float, float] | None:
        return None

    def add(self, seen: tuple[float, float] | None, value: float) -> tuple[float, float]:
        return (value, value) if seen is None else (min(seen[0], value), max(seen[1], value))

    def result(self, seen: tuple[float, float] | None) -> float | None:
        return None if seen is None else seen[1] - seen[0]

@udaf
class Tally:
    def init(self) -> dict[str, list[int]]:
        return {}

    def add(self, seen: dict[str, list[int]], word: str | None, size: int) -> None:
        seen.setdefault(word or "none", []).append(size)

    def result(self, seen: dict[str, list[int]]) -> dict[str, int]:
        return {word: sum(sizes) for word, sizes in seen.items()}

@udtf
def words(line: str) -> Iterator[str]:
    for word in line.split():
        if word == "bad":
            raise ValueError(f"not a word: {word}")
        yield word

@udtf
def sizes(line: str | None) -> list[int]:
    return [len(w) for w in (line or "none").split()]
"""
STREAM = """
CREATE STREAM S (K BIGINT KEY, V DOUBLE, W STRING)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
TABLES = (
    STREAM
    + """
CREATE TABLE MEDIANS AS SELECT K, MEDIAN(V) AS M, spread(V) AS R, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE PER_MINUTE AS SELECT K, MEDIAN(V) AS M FROM S WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY K;
CREATE TABLE PER_VISIT AS SELECT K, MEDIAN(V) AS M FROM S WINDOW SESSION (5 SECONDS) GROUP BY K;
CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(V) AS V, LATEST_BY_OFFSET(W) AS W FROM S GROUP BY K;
CREATE TABLE OF_LATEST AS SELECT W, MEDIAN(V) AS M FROM LATEST GROUP BY W;
CREATE TABLE TALLIES AS SELECT K, TALLY(W, CAST(V AS BIGINT)) AS T FROM S GROUP BY K;
CREATE TABLE HIGH_ONES AS SELECT K, MEDIAN(CASE WHEN V > 50 THEN V END) AS M FROM S GROUP BY K;
"""
)


def records(seed: int, count: int = 400) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "K": rng.randrange(7),
            "V": rng.choice([None, 13.0, *range(20, 90)]),
            "W": rng.choice("abc"),
            "AT": i * 700,
        }
        for i in range(count)
    ]


def median(values: list[float]) -> float | None:
    return statistics.median_high(values) if values else None


def isolated_as(isolation: str) -> str:
    """The module with its aggregates there."""
    return STATS.replace("@udaf\n", "@udaf()\n").replace("@udaf(", f"@udaf(isolation={isolation!r}, ")


def rows(instance: flowql.Connection, sql: str) -> dict[Any, Any]:
    """The last column by the others; times in ms."""
    found = [[in_ms(v) for v in r.values()] for r in instance.sql(sql).arrow().to_pylist()]
    return {tuple(r[:-1]): r[-1] for r in found}


def in_ms(value: Any) -> Any:
    return round(value.replace(tzinfo=UTC).timestamp() * 1000) if isinstance(value, datetime) else value


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_medians_of_streams_windows_sessions_and_tables_are_exact(tmp_path: Path, isolation: str) -> None:
    """Methods that change what they are given, and then fail, leave the state as it was."""
    seed = 20261123
    sent = records(seed)
    print("seed", seed)
    made(tmp_path, YAML, TABLES, stats=isolated_as(isolation))
    with running(tmp_path) as instance:
        instance.produce("S", sent[:150], timestamp="AT")
        until(lambda: instance.sql("SELECT SUM(N) FROM MEDIANS").one(), sum(r["V"] != 13.0 for r in sent[:150]))
    with resumed(tmp_path) as instance:
        instance.produce("S", sent[150:], timestamp="AT")
        until(lambda: instance.sql("SELECT SUM(N) FROM MEDIANS").one(), sum(r["V"] != 13.0 for r in sent))
        until(
            lambda: sum(sum(t.values()) for t in map(dict, rows(instance, "SELECT K, T FROM TALLIES").values())),
            sum(int(r["V"] or 0) for r in sent),
        )
        good = [r for r in sent if r["V"] not in (None, 13.0)]
        of_key = {k: [r["V"] for r in good if r["K"] == k] for k in range(7)}
        assert rows(instance, "SELECT K, M FROM MEDIANS") == {(k,): median(v) for k, v in of_key.items()}
        spreads = {(k,): max(v) - min(v) for k, v in of_key.items()}
        assert rows(instance, "SELECT K, R FROM MEDIANS") == spreads, (
            "a row that one aggregate refuses is in none of them"
        )
        per_minute: dict[Any, list[float]] = {}
        for r in (r for r in sent if r["V"] != 13.0):
            per_minute.setdefault((r["K"], r["AT"] // 60_000 * 60_000), [])
        for r in good:
            per_minute[r["K"], r["AT"] // 60_000 * 60_000].append(r["V"])
        medians = {key: median(v) for key, v in per_minute.items()}
        until(lambda: rows(instance, "SELECT K, WINDOWSTART AS W, M FROM PER_MINUTE"), medians)
        until(lambda: rows(instance, "SELECT K, WINDOWSTART AS W, M FROM PER_VISIT"), visits(sent))
        latest = {r["K"]: r for r in sent if r["V"] is not None}
        of_word = {w: [r["V"] for k, r in latest.items() if last_word(sent, k) == w and r["V"] != 13.0] for w in "abc"}
        of_words = {(w,): median(v) for w, v in of_word.items() if v}
        until(lambda: rows(instance, "SELECT W, M FROM OF_LATEST WHERE M IS NOT NULL"), of_words)
        high = {k: [v for v in values if v > 50] for k, values in of_key.items()}
        until(lambda: rows(instance, "SELECT K, M FROM HIGH_ONES"), {(k,): median(v) for k, v in high.items()})
        letters = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert "13 is not measured" in str(letters[0])


def last_word(sent: list[dict[str, Any]], key: int) -> str:
    return str([r["W"] for r in sent if r["K"] == key][-1])


def visits(sent: list[dict[str, Any]]) -> dict[Any, float | None]:
    """Sessions of records that are at most five seconds apart; one whose value is refused makes none."""
    found: dict[Any, float | None] = {}
    for key in range(7):
        groups: list[list[dict[str, Any]]] = []
        for r in (r for r in sent if r["K"] == key and r["V"] != 13.0):
            if groups and r["AT"] - groups[-1][-1]["AT"] <= 5_000:
                groups[-1].append(r)
            else:
                groups.append([r])
        for group in groups:
            found[key, group[0]["AT"]] = median([r["V"] for r in group if r["V"] is not None])
    return found


def test_words_of_a_line_are_rows(tmp_path: Path) -> None:
    sql = STREAM + "CREATE STREAM W AS SELECT K, words(W) AS WORD, sizes(W) AS SIZE FROM S;"
    made(tmp_path, YAML, sql, stats=STATS)
    with running(tmp_path) as instance:
        lines = ["to be", "", None, "a bad line", "or"]
        instance.produce("S", [{"K": i, "V": 0.0, "W": w} for i, w in enumerate(lines)])
        until(lambda: instance.sql("SELECT COUNT(*) FROM W").one(), 8)
        found = instance.sql("SELECT K, WORD, SIZE FROM W ORDER BY K, WORD").arrow().to_pylist()
        expected = [
            (0, "be", 2),
            (0, "to", 2),
            (1, None, 4),
            (2, None, 4),
            *[(3, None, n) for n in (1, 3, 4)],
            (4, "or", 2),
        ]
        assert sorted(map(str, (tuple(r.values()) for r in found))) == sorted(map(str, expected))
        (letter,) = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert "not a word: bad" in str(letter)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "from itertools import count\n@udtf\ndef f(a: int) -> Iterator[int]:\n    return count()",
            f"more than {ROWS_MAX:,} rows",
        ),
        ("@udtf\ndef f(a: int) -> list[str]:\n    return 'abc'", "returned str, which is not a list of rows"),
        ("@udtf\ndef f(a: int) -> list[str]:\n    return [a]", "it returned int, but STRING is declared"),
        ("@udtf\ndef f(a: int) -> list[int]:\n    return a", "returned int, which is not a list of rows"),
        ("@udtf\ndef f(a: int) -> Iterator[int]:\n    yield 1\n    raise SystemExit", "F raised SystemExit"),
    ],
)
def test_a_table_function_that_gives_no_rows_is_a_failure_of_the_row(tmp_path: Path, body: str, error: str) -> None:
    (tmp_path / "m.py").write_text(f"from collections.abc import Iterator\nfrom flowql import udtf\n{body}\n")
    function = load_functions(tmp_path, ["m"])["F"]
    with pytest.raises(FunctionFailed, match=error):
        function.reference(Resolution((), DOUBLE))(1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sql", "title"),
    [
        ("CREATE TABLE T AS SELECT K, spread(V) AS R FROM S WINDOW SESSION (5 SECONDS) GROUP BY K;", "the aggregation function SPREAD cannot be applied to session windows"),
        ("CREATE TABLE L AS SELECT K, LATEST_BY_OFFSET(V) AS V FROM S GROUP BY K; CREATE TABLE T AS SELECT V, spread(V) AS R FROM L GROUP BY V;", "the aggregation function SPREAD cannot be applied to a table source"),
        ("CREATE TABLE T AS SELECT K, MEDIAN(W) AS R FROM S GROUP BY K;", "MEDIAN"),
        ("CREATE TABLE T AS SELECT K, MEDIAN(V, V) AS R FROM S GROUP BY K;", "MEDIAN"),
        ("CREATE STREAM T AS SELECT K, MEDIAN(V) AS R FROM S;", "aggregate function MEDIAN(V) without a GROUP BY clause"),
        ("CREATE STREAM T AS SELECT K FROM S WHERE MEDIAN(V) > 1;", "WHERE does not support aggregate functions: MEDIAN"),
        ("CREATE TABLE T AS SELECT K, words(W) AS R, COUNT(*) AS N FROM S GROUP BY K;", "table functions cannot be used with aggregations: WORDS"),
    ],
)  # fmt: skip
def test_what_they_cannot_do_is_said_when_it_is_compiled(tmp_path: Path, sql: str, title: str) -> None:
    made(tmp_path, YAML, STREAM + sql, stats=STATS)
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.severity == "error")
    assert title in found.title
    assert "@stats" not in found.title + found.help + found.why


STANDARD = """
CREATE TABLE s (k BIGINT PRIMARY KEY, g BIGINT, v DOUBLE PRECISION, w TEXT);
CREATE VIEW medians AS SELECT g, median(v) AS m, count(*) AS n, median(DISTINCT v) FILTER (WHERE v < 50) AS low FROM s GROUP BY g;
CREATE VIEW tallies AS SELECT g, tally(w, k) AS t FROM s GROUP BY g HAVING median(v) > 30;
CREATE VIEW everything AS SELECT median(v + 1) AS m, median((SELECT 1.0)) AS one FROM s;
"""


def test_views_over_tables_follow_every_change(tmp_path: Path) -> None:
    """Rows that change and go are left out again, without `undo` (SPREAD has none) and in any order."""
    seed = 7
    print("seed", seed)
    rng = random.Random(seed)
    sql = STANDARD + "CREATE VIEW spreads AS SELECT g, spread(v) AS r FROM s GROUP BY g;"
    made(tmp_path, YAML + "dialect: standard\n", sql, stats=STATS)
    table: dict[int, tuple[int, float | None, str]] = {}
    with running(tmp_path) as instance:
        for _ in range(30):
            key = rng.randrange(12)
            value = rng.choice([None, *range(20, 90)])
            if rng.random() < 0.3:
                instance.execute(f"DELETE FROM s WHERE k = {key}")
                table.pop(key, None)
            else:
                group, word = rng.randrange(3), rng.choice("ab")
                row = f"{key}, {group}, {'NULL' if value is None else float(value)}, '{word}'"
                instance.execute(
                    f"INSERT INTO s VALUES ({row}) ON CONFLICT (k) DO UPDATE SET g = {group}, v = excluded.v, w = '{word}'"
                )
                table[key] = (group, value, word)
        groups = {g: [(k, v, w) for k, (h, v, w) in sorted(table.items()) if h == g] for g in range(3)}
        groups = {g: found for g, found in groups.items() if found}
        values = {g: [v for _, v, _ in found if v is not None] for g, found in groups.items()}
        until(
            lambda: rows(instance, "SELECT g, n, m FROM medians"),
            {(g, len(found)): median(values[g]) for g, found in groups.items()},
        )
        low = {(g,): median(sorted({v for v in found if v < 50})) for g, found in values.items()}
        assert rows(instance, "SELECT g, low FROM medians") == low
        spread = {(g,): max(v) - min(v) if v else None for g, v in values.items()}
        assert rows(instance, "SELECT g, r FROM spreads") == spread
        tallies: dict[Any, dict[str, int]] = {}
        for g, found in groups.items():
            for k, _, w in found if (median(values[g]) or 0) > 30 else ():
                tallies.setdefault((g,), {}).setdefault(w, 0)
                tallies[g,][w] += k
        assert {g: dict(t) for g, t in rows(instance, "SELECT g, t FROM tallies").items()} == tallies
        everything = [v for found in values.values() for v in found]
        (one,) = instance.sql("SELECT m, one FROM everything").arrow().to_pylist()
        assert one == {"m": None if not everything else (median(everything) or 0) + 1, "one": 1.0}


@pytest.mark.parametrize(
    ("select", "title"),
    [
        ("median(v) OVER (PARTITION BY g) AS m FROM s", "the aggregate MEDIAN of the project as a window function"),
        ("median(w) AS m FROM s", "MEDIAN"),
        ("median() AS m FROM s", "the aggregate MEDIAN of the project without an argument"),
        ("k FROM s WHERE median(v) > 1", "aggregate"),
        ("median(median(v)) AS m FROM s", "aggregate function calls cannot be nested"),
    ],
)
def test_what_views_cannot_do_is_said(tmp_path: Path, select: str, title: str) -> None:
    sql = f"{STANDARD}CREATE VIEW x AS SELECT {select};"
    made(tmp_path, YAML + "dialect: standard\n", sql, stats=STATS)
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.severity == "error")
    assert title in found.title
    assert "@stats" not in found.title + found.help + found.why


def test_a_group_of_a_view_whose_result_fails_is_not_shown(tmp_path: Path) -> None:
    source = """
import statistics
from flowql import udaf

@udaf
class Deviation:
    def init(self) -> list[float]:
        return []

    def add(self, seen: list[float], value: float) -> None:
        seen.append(value)

    def result(self, seen: list[float]) -> float:
        return statistics.stdev(seen)
"""
    sql = "CREATE TABLE s (k BIGINT PRIMARY KEY, v DOUBLE PRECISION); CREATE VIEW d AS SELECT deviation(v) AS d, count(*) AS n FROM s;"
    made(tmp_path, YAML + "dialect: standard\n", sql, stats=source)
    with running(tmp_path) as instance:
        instance.execute("INSERT INTO s VALUES (1, 1.0)")
        until(lambda: instance.sql("SELECT COUNT(*) AS n FROM DEAD_LETTERS").arrow().to_pylist(), [{"n": 1}])
        assert instance.sql("SELECT d, n FROM d").arrow().to_pylist() == []
        instance.execute("INSERT INTO s VALUES (2, 3.0)")
        expected = [{"d": statistics.stdev([1.0, 3.0]), "n": 2}]
        until(lambda: instance.sql("SELECT d, n FROM d").arrow().to_pylist(), expected)
        letters = str(instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist())
        assert "the result of DEVIATION failed: StatisticsError" in letters


def test_spark_runs_them_in_the_tasks_of_the_runtime(tmp_path: Path) -> None:
    sql = (
        STREAM
        + "CREATE TABLE T AS SELECT K, MEDIAN(V) AS R FROM S GROUP BY K; CREATE STREAM W AS SELECT K, words(W) AS W FROM S;"
    )
    made(tmp_path, YAML, sql, stats=STATS)
    plan = compile_sources(load_project(tmp_path)).plan
    for query, how in (("CTAS_T", "stateful python"), ("CSAS_W", "stateless python")):
        found = plan.by_id.get(query)
        assert found is not None
        assert {c.how for c in choose(plan, found, SparkSettings(), "bounded")} == {how}


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_views_over_topics_do_without_undo_too(tmp_path: Path, kind: str) -> None:
    key = "PRIMARY KEY" if kind == "TABLE" else "KEY"
    sql = f"""CREATE {kind} s (k BIGINT {key}, g BIGINT, v DOUBLE PRECISION)
      WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
    CREATE VIEW m AS SELECT g, spread(v) AS r FROM s GROUP BY g;
    CREATE VIEW f AS SELECT g, spread(v) FILTER (WHERE v > 2) AS r FROM s GROUP BY g;
    CREATE VIEW d AS SELECT g, spread(DISTINCT v) AS r FROM s GROUP BY g;
    CREATE VIEW a AS SELECT spread(v) AS r FROM s;"""
    made(tmp_path, YAML + "dialect: standard\n", sql, stats=STATS)
    with running(tmp_path) as instance:
        sent = [{"k": k, "g": 1, "v": v} for k, v in ((1, 1.0), (2, 4.0), (3, 9.0), (3, 6.0))]
        instance.produce("s", sent)
        wide, narrow = (5.0, 2.0) if kind == "TABLE" else (8.0, 5.0)
        for view, expected in (("m", {(1,): wide}), ("f", {(1,): narrow}), ("d", {(1,): wide})):
            until(lambda view=view: rows(instance, f"SELECT g, r FROM {view}"), expected)
        until(lambda: rows(instance, "SELECT r FROM a"), {(): wide})


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_spark_runs_them_in_views(tmp_path: Path, kind: str) -> None:
    key = "PRIMARY KEY" if kind == "TABLE" else "KEY"
    sql = f"""CREATE {kind} s (k BIGINT {key}, g BIGINT, v DOUBLE PRECISION)
      WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
    CREATE VIEW m AS SELECT g, median(v) AS m FROM s GROUP BY g;"""
    made(tmp_path, YAML + "dialect: standard\n", sql, stats=STATS)
    plan = compile_sources(load_project(tmp_path)).plan
    (query,) = plan.queries
    assert {c.how for c in choose(plan, query, SparkSettings(), "bounded")} == {"stateful python"}


def test_an_edited_aggregate_is_rebuilt_and_a_missing_one_fails_its_query(tmp_path: Path) -> None:
    sql = (
        STREAM
        + "CREATE TABLE T AS SELECT K, spread(V) AS R FROM S GROUP BY K; CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;"
    )
    made(tmp_path, YAML, sql, stats=STATS)
    with running(tmp_path) as instance:
        instance.produce("S", [{"K": 1, "V": float(v)} for v in (3, 8)])
        until(lambda: rows(instance, "SELECT K, R FROM T"), {(1,): 5.0})
        (tmp_path / "stats.py").write_text(STATS.replace("seen[1] - seen[0]", "seen[0] - seen[1]"))
        instance.deploy()
        until(lambda: rows(instance, "SELECT K, R FROM T"), {(1,): -5.0})
        assert state_of(instance, "CTAS_N")["generation"] == 1
    (tmp_path / "stats.py").write_text("")
    with resumed(tmp_path) as instance:
        instance.produce("S", [{"K": 1, "V": 20.0}])
        until(
            lambda: (
                "was deployed in a version that the module stats does not have"
                in str(state_of(instance, "CTAS_T")["last_error"])
            ),
            True,
        )
        until(lambda: rows(instance, "SELECT K, N FROM N"), {(1,): 3})
        assert rows(instance, "SELECT K, R FROM T") == {(1,): -5.0}


def test_an_accumulator_that_cannot_be_kept_costs_its_record_only(tmp_path: Path) -> None:
    source = """
from flowql import udaf

@udaf
class Odd:
    def init(self) -> list[float]:
        return []

    def add(self, seen: list[float], value: float) -> list[float]:
        return "none" if value == 1 else [*seen, object() if value == 2 else value]

    def result(self, seen: list[float]) -> int:
        return len(seen)
"""
    made(tmp_path, YAML, STREAM + "CREATE TABLE T AS SELECT K, ODD(V) AS N FROM S GROUP BY K;", stats=source)
    with running(tmp_path) as instance:
        instance.produce("S", [{"K": k, "V": float(v)} for v in (0, 1, 2, 3, 4) for k in (1, 2)])
        until(lambda: rows(instance, "SELECT K, N FROM T"), {(1,): 3, (2,): 3})
        letters = str(instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist())
        assert letters.count("ODD.add made an accumulator of str, but list is declared") == 2
        assert instance.sql("SELECT COUNT(*) FROM DEAD_LETTERS").one() == 4
        assert "object" in letters


FROZEN = "@dataclass(frozen=True)\nclass P:\n    a: int\n\n"


def source_of(mistake: str) -> str:
    """The module of a mistake: its class is decorated, unless it does that itself."""
    if "@udaf" not in mistake:
        return f"from flowql import udaf\n\n\n@udaf\n{mistake}\n"
    return f"from dataclasses import dataclass\nfrom flowql import udaf\nfrom msgspec import Struct\n\n{mistake}\n"


MISTAKES = {
    "no init": ("class F:\n    def add(self, a: int) -> int: ...", "F has no method init"),
    "no add": ("class F:\n    def init(self) -> int: return 0", "F has no method add"),
    "no kept type": ("class F:\n    def init(self): return 0\n    def add(self, a, v: int) -> int: return a", "F.init does not say the type of its result"),
    "set": ("class F:\n    def init(self) -> set[int]: return set()\n    def add(self, a, v: int): ...", "F.init keeps set[int], which has no form in the state"),
    "other value": ("class F:\n    def init(self) -> int: return ''\n    def add(self, a, v: int) -> int: return a", "F.init made an accumulator of str, but int is declared"),
    "init raises": ("class F:\n    def init(self) -> int: return 1 // 0\n    def add(self, a, v: int) -> int: return a", "F.init failed: ZeroDivisionError"),
    "no type": ("class F:\n    def init(self) -> int: return 0\n    def add(self, a, v) -> int: return a", "F.add does not say the type of its parameter v"),
    "no accumulator": ("class F:\n    def init(self) -> int: return 0\n    def add(self) -> int: return 0", "F.add takes no accumulator"),
    "undo": ("class F:\n    def init(self) -> int: return 0\n    def add(self, a, v: int) -> int: return a\n    def undo(self, a) -> int: return a", "F.undo has other parameters than add"),
    "merge": ("class F:\n    def init(self) -> int: return 0\n    def add(self, a, v: int) -> int: return a\n    def merge(self, a) -> int: return a", "F.merge has other parameters"),
    "returns nothing": ("class F:\n    def init(self) -> int: return 0\n    def add(self, a, v: int) -> None: a += v", "F.add returns nothing, and int cannot be changed"),
    "shows tuple": ("class F:\n    def init(self) -> tuple[int, int]: return (0, 0)\n    def add(self, a, v: int): return a", "has no SQL type"),
    "frozen class changed": (FROZEN + "@udaf\nclass F:\n    def init(self) -> P: return P(0)\n    def add(self, a, v: int) -> None: ...", "F.add returns nothing, and P cannot be changed"),
    "field without a form": ("@dataclass\nclass P:\n    a: set[int]\n\n@udaf\nclass F:\n    def init(self) -> P: return P(set())\n    def add(self, a, v: int): ...", "F.init: P.a keeps set[int], which has no form in the state"),
    "class within itself": ("@dataclass\nclass P:\n    a: 'list[P]'\n\n@udaf\nclass F:\n    def init(self) -> P: return P([])\n    def add(self, a, v: int): ...", "F.init: P.a keeps P, which is within itself"),
    "one of two classes": (FROZEN + "@dataclass\nclass Q:\n    b: int\n\n@udaf\nclass F:\n    def init(self) -> P | Q: return P(0)\n    def add(self, a, v: int): ...", "and the state does not tell which of them"),
    "struct that does more": ("class P(Struct):\n    a: int\n    def __post_init__(self): self.a += 1\n\n@udaf\nclass F:\n    def init(self) -> P: return P(0)\n    def add(self, a, v: int): ...", "F.init keeps P, whose __post_init__ would be called again at every row"),
    "function": ("def f(a: int) -> int: ...", "is not a class"),
    "built-in": ("class Sum:\n    def init(self) -> int: return 0\n    def add(self, a, v: int) -> int: return a", "SUM is a built-in function"),
    "asynchronous": ("class F:\n    def init(self) -> int: return 0\n    async def add(self, a, v: int) -> int: return a", "F.add is asynchronous"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_named(tmp_path: Path, name: str) -> None:
    source, title = MISTAKES[name]
    made(tmp_path, "name: x\nfunctions: m\n", "", m=source_of(source))
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert title in found.title


def test_a_table_function_says_that_it_gives_rows(tmp_path: Path) -> None:
    made(
        tmp_path,
        "name: x\nfunctions: m\n",
        "",
        m="from flowql import udtf\n@udtf\ndef f(a: int) -> int:\n    return a\n",
    )
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert found.title == "F gives int, which is one value, not rows"


def test_dates_come_as_dates_and_nested_accumulators_are_copied(tmp_path: Path) -> None:
    source = """
from datetime import date
from flowql import udaf

@udaf
class Days:
    def init(self) -> tuple[list[int], dict[str, list[str]]]:
        return [], {}

    def add(self, seen, day: date, name: str | None) -> None:
        seen[0].append(day.year)
        seen[1].setdefault("all", []).append(name or "none")

    def result(self, seen) -> list[str]:
        return [f"{y} {n}" for y, n in zip(seen[0], seen[1].get("all", []))]
"""
    (tmp_path / "m.py").write_text(source)
    days = load_functions(tmp_path, ["m"])["DAYS"]
    assert isinstance(days, AggregateFunction)
    bound = Resolution((), DOUBLE)
    first = days.initial(bound, ())
    add, result = days.add(bound, ()), days.result(bound, ())
    one = add(first, 365, "a")
    two = add(one, 800, None)
    assert add(two, None, "no day") is two
    assert (result(first), result(one), result(two)) == ([], ["1971 a"], ["1971 a", "1972 none"])


def test_a_merge_changes_neither_of_the_two(tmp_path: Path) -> None:
    """What it fails after is still there."""
    (tmp_path / "stats.py").write_text(STATS)
    medians = load_functions(tmp_path, ["stats"])["MEDIAN"]
    assert isinstance(medians, AggregateFunction)
    assert medians.merge is not None
    one, other = [1.0], [2.0, 3.0]
    assert medians.merge(Resolution((), DOUBLE), ())(one, other) == [1.0, 2.0, 3.0]
    assert (one, other) == ([1.0], [2.0, 3.0])


def test_a_result_that_fails_is_null_and_its_rows_are_kept(tmp_path: Path) -> None:
    """The deviation of one value does not exist; the second row must find the first one. Windows close all the same."""
    source = """
import statistics
from flowql import udaf

@udaf
class Deviation:
    def init(self) -> list[float]:
        return []

    def add(self, seen: list[float], value: float) -> None:
        seen.append(value)

    def merge(self, seen: list[float], other: list[float]) -> None:
        seen.extend(other)

    def result(self, seen: list[float]) -> float:
        return statistics.stdev(seen)
"""
    sql = (
        STREAM
        + """
CREATE TABLE T AS SELECT K, DEVIATION(V) AS D, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE W AS SELECT K, DEVIATION(V) AS D FROM S WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY K EMIT FINAL;
CREATE TABLE V AS SELECT K, DEVIATION(V) AS D FROM S WINDOW SESSION (1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY K EMIT FINAL;
"""
    )
    made(tmp_path, YAML, sql.replace("PARTITIONS = 2", "PARTITIONS = 1"), stats=source)
    with running(tmp_path) as instance:
        sent = [{"K": 1, "V": v, "AT": at} for at, v in ((0, 1.0), (500, 3.0), (20_000, 4.0), (50_000, 5.0))]
        sent += [{"K": 2, "V": 0.0, "AT": at} for at in range(0, 60_000, 1_000)]  # without them windows are left out
        instance.produce("S", sorted(sent, key=lambda r: r["AT"]), timestamp="AT")
        until(lambda: rows(instance, "SELECT K, N FROM T WHERE K = 1"), {(1,): 4})
        assert rows(instance, "SELECT K, D FROM T WHERE K = 1") == {(1,): statistics.stdev([1.0, 3.0, 4.0, 5.0])}
        two = statistics.stdev([1.0, 3.0])
        until(
            lambda: rows(instance, "SELECT K, WINDOWSTART AS A, D FROM W WHERE K = 1"), {(1, 0): two, (1, 20_000): None}
        )
        until(
            lambda: rows(instance, "SELECT K, WINDOWSTART AS A, D FROM V WHERE K = 1"),
            {(1, 0): two, (1, 20_000): None, (1, 50_000): None},
        )
        letters = str(instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist())
        assert "the result of DEVIATION failed: StatisticsError" in letters
        assert all(q["state"] == "running" for q in instance.status()["queries"])
