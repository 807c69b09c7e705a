"""No value and no call takes an instance down (rule R18): a record that asks for it is a dead letter with a code, and others go on."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.query_state import FAILED, RUNNING
from tests.runtime.app.harness import InstanceHarness

SOURCES = """
CREATE STREAM S (N BIGINT, T STRING, L ARRAY<STRING>) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
LARGE = "a" * 300_000
# What a query computes, the value of the good row, the row that asks for too much, and the code.
BOMBS = {
    "LPAD": ("LPAD(T, CAST(N AS INT), 'x')", "xx", {"N": 2**31 - 1, "T": "t"}, "FQ4072"),
    "REPLACE": ("REPLACE(T, 'a', T)", "", {"N": 2, "T": LARGE}, "FQ4072"),
    "CONCAT": ("LEN(CONCAT(" + ", ".join(["T"] * 60) + "))", 0, {"N": 2, "T": LARGE}, "FQ4072"),
    "REDUCE that doubles": ("LEN(REDUCE(L, 'ab', (s, x) => s + s))", 2, {"N": 2, "L": ["x"] * 100}, "FQ4072"),
    "REDUCE that concatenates": ("LEN(REDUCE(L, 'ab', (s, x) => CONCAT(s, s)))", 2, {"N": 2, "L": ["x"] * 100}, "FQ4072"),
    "GENERATE_SERIES": ("ARRAY_LENGTH(GENERATE_SERIES(1, N))", 2, {"N": 2**62}, "FQ4072"),
    "MASK": ("LEN(MASK(T, T, T, T, T))", 0, {"N": 2, "T": LARGE}, "FQ4072"),
    "a format of dates": ("FORMAT_DATE(FROM_DAYS(CAST(N AS INT)), CONCAT('yyyy', T))", "1970", {"N": 2, "T": LARGE}, "FQ4073"),
    "a format with many optional parts": (
        "PARSE_DATE(CONCAT('1970', T), CONCAT('yyyy', CASE WHEN T = '' THEN '' ELSE '[d][d][d][d][d][d][d][d][d][d][d][d][d][d][d][d][d][d]' END))",
        0,
        {"N": 2, "T": "1" * 40},
        "FQ4073",
    ),
    "ARRAY_JOIN": ("LEN(ARRAY_JOIN(L, T))", 0, {"N": 2, "T": LARGE, "L": ["x"] * 100}, "FQ4072"),
    "a long pattern of LIKE": ("CASE WHEN T LIKE T THEN 1 ELSE 2 END", 1, {"N": 2, "T": "%a" * 50_000}, "FQ4073"),
    "deep JSON": ("JSON_ARRAY_LENGTH(T)", None, {"N": 2, "T": "[" * 200_000 + "]" * 200_000}, "FQ4030"),
    "large JSON": ("JSON_ARRAY_LENGTH(T)", None, {"N": 2, "T": "[" + "0," * 400_000 + "0]"}, "FQ4073"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("rows", [1, 600])  # row kernels, and statements of DuckDB where there is one
def test_a_value_without_bound_is_a_dead_letter(name: str, rows: int) -> None:
    expression, good, bomb, code = BOMBS[name]
    with InstanceHarness(SOURCES + f"CREATE STREAM R AS SELECT N, {expression} AS V FROM S EMIT CHANGES;") as world:
        sent = [(None, {"N": 2, "T": "", "L": [], **row}, 0) for row in [{}] * rows + [bomb] + [{}]]
        world.send("s", sent)
        world.settle()
        (letter,) = [x for x in world.dead_letters("CSAS_R") if good is not None or x["CODE"] == code]
        assert letter["CODE"] == code, letter["MESSAGE"]
        values = world.values("R")
        assert len(values) == rows + 2, "a failed expression is NULL in ksqlDB's dialect"
        assert values[-2]["V"] is None
        assert values[0]["V"] == values[-1]["V"] == good
        assert world.instance.query_states.of("CSAS_R").state is RUNNING


def test_a_row_of_large_values_is_computed_alone_and_one_that_is_too_large_is_a_dead_letter() -> None:
    """Each value is within its limit, and the rows of a batch together would take gigabytes."""
    padded = ", ".join(f"LPAD(T, CAST(N AS INT), '{c}') AS V{c}" for c in "abcdef")
    sql = SOURCES + f"CREATE STREAM P AS SELECT {padded} FROM S EMIT CHANGES;"
    sql += "CREATE STREAM R AS SELECT LEN(VA) AS A, LEN(VF) AS F FROM P EMIT CHANGES;"
    with InstanceHarness(sql) as world:
        sizes = [10, *[1 << 20] * 30, 16 << 20, 10]
        world.send("s", [(None, {"N": n, "T": ""}, 0) for n in sizes])
        world.settle()
        (letter,) = world.dead_letters("CSAS_P")
        assert letter["CODE"] == "FQ4072"
        assert "one record" in letter["MESSAGE"]
        assert [v["A"] for v in world.values("R")] == [10, *[1 << 20] * 30, 10]


STREAM = "CREATE STREAM s (n BIGINT, t VARCHAR, l VARCHAR[]) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
OUT = "CREATE STREAM r WITH (kafka_topic='R') AS SELECT n, length(t) AS v"
LISTS = {
    "EXPLODE": f"{SOURCES} CREATE STREAM R AS SELECT N, LEN(T) AS V, EXPLODE(L) AS X FROM S EMIT CHANGES;",
    "EXPLODE of a call": f"{SOURCES} CREATE STREAM R AS SELECT N, LEN(T) AS V, EXPLODE(FILTER(L, x => x <> '')) AS X FROM S EMIT CHANGES;",
    "EXPLODE of constants": f"{SOURCES} CREATE STREAM R AS SELECT N, LEN(T) AS V, EXPLODE(ARRAY[{', '.join(['1'] * 300)}]) AS X FROM S EMIT CHANGES;",
    "UNNEST": f"{STREAM} {OUT}, u.x FROM s, UNNEST(l) AS u (x);",
    "generate_series": f"{STREAM} {OUT}, u.x FROM s, generate_series(1, cardinality(l)) AS u (x);",
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("rows", [1, 64])  # row kernels and columns
def test_a_record_whose_list_gives_too_many_large_rows_is_a_dead_letter(name: str, rows: int) -> None:
    """Each row of the list would have the long string beside it."""
    compiled = compile_project(
        [SourceText("s.sql", LISTS[name])], dialect="ksql" if name.startswith("E") else "standard"
    )
    assert compiled.ok, compiled.diagnostics
    with InstanceHarness("") as world:
        world.instance.deploy(compiled.plan)
        small, bomb = {"N": 1, "T": "t", "L": ["a", "b"]}, {"N": 2, "T": LARGE, "L": ["a"] * 500}
        world.send("s", [(None, row, 0) for row in [small] * rows + [bomb, small]])
        world.settle()
        (letter,) = world.dead_letters(compiled.plan.queries[0].id)
        assert letter["CODE"] == "FQ4077", letter["MESSAGE"]
        values = [{k.upper(): v for k, v in value.items()}["V"] for value in world.values("R")]
        assert values == [1] * (rows + 1) * (300 if "constants" in name else 2)


COLLECTING = {
    "COLLECT_LIST": "GROUP BY N EMIT CHANGES",
    "COLLECT_SET": "GROUP BY N EMIT CHANGES",
    "HISTOGRAM": "WINDOW TUMBLING (SIZE 1 DAY) GROUP BY N EMIT CHANGES",
    "COUNT_DISTINCT": "WINDOW SESSION (1 DAY) GROUP BY N EMIT CHANGES",
}


@pytest.mark.parametrize("aggregate", COLLECTING)
def test_a_query_that_keeps_too_much_of_a_group_fails_and_others_go_on(aggregate: str) -> None:
    sql = (
        SOURCES
        + f"CREATE TABLE R AS SELECT N, LEN(CAST({aggregate}(T) AS STRING)) AS V FROM S {COLLECTING[aggregate]};"
    )
    sql += "CREATE TABLE BESIDE AS SELECT N, COUNT(*) AS V FROM S GROUP BY N EMIT CHANGES;"
    with InstanceHarness(sql) as world:
        world.send("s", [(None, {"N": 7, "T": f"{i}{LARGE}"}, 0) for i in range(60)])
        world.rest()
        record = world.instance.query_states.of("CTAS_R")
        assert record.state is FAILED
        assert all(part in record.reason for part in (aggregate, "7", "16 MiB"))
        assert world.instance.query_states.of("CTAS_BESIDE").state is RUNNING
        assert world.table("BESIDE")[-1][:2] == (7, 60)
