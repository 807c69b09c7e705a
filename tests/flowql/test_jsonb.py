"""JSONB and UUID in tables, views and interactive queries of standard SQL: values and texts are PostgreSQL's, whose answers these are.

Numbers have no zeros at the end of a fraction, which PostgreSQL keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.query.errors import QueryError
from tests.slt.rows import difference, rendered
from tests.slt.session import Shape, SqlSession

TABLE = """CREATE TABLE t (id INT PRIMARY KEY, j JSONB, k VARCHAR, a INT[], n NUMERIC(6, 2), f BOOLEAN, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID)"""
ROWS = """INSERT INTO t VALUES
(1, '{"b": 1, "a": {"x": [10, 20, {"y": null}], "s": "te\\"xt"}, "aa": true, "n": -1.25e2}', 'b', ARRAY[1, NULL], 12.25, true,
 '2024-02-29 12:00:00.5', '2024-02-29 12:00:00+02', '550E8400-e29b-41d4-a716-446655440000'),
(2, ' [1,"two",null,[3],{"k":"v"}, 2.5]', 'two', '{}', NULL, false, NULL, NULL, '{00000000-0000-0000-0000-000000000002}'),
(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""
# An expression, and its values in the three rows.
VALUES = r"""
j => {"a": {"s": "te\"xt", "x": [10, 20, {"y": null}]}, "b": 1, "n": -125, "aa": true} => [1, "two", null, [3], {"k": "v"}, 2.5] => NULL
j -> 'a' -> 'x' -> 0 => 10 => NULL => NULL
j -> 'a' ->> 's' => te"xt => NULL => NULL
j ->> 1 => NULL => two => NULL
j ->> 2 => NULL => NULL => NULL
j -> -1 => NULL => 2.5 => NULL
j -> k => 1 => NULL => NULL
j['a']['x'][1] => 20 => NULL => NULL
(j ->> 'b')::int + 1 => 2 => NULL => NULL
(j -> 'n')::numeric(6, 1) => -125.0 => NULL => NULL
(j -> 'aa')::boolean => t => NULL => NULL
j #> '{a,x,1}' => 20 => NULL => NULL
j #>> ARRAY['3', '0'] => NULL => 3 => NULL
jsonb_extract_path_text(j, 'a', 'x', '0') => 10 => NULL => NULL
j @> '{"a": {"x": [20]}}' => t => f => NULL
j @> '[[3]]' => f => t => NULL
'"two"' <@ j => f => t => NULL
j ? 'b' => t => f => NULL
j ?| '{zz,two}' => f => t => NULL
j ?& ARRAY['b', 'aa'] => t => f => NULL
j = '[1, "two", null, [3.0], {"k":"v"}, 2.50]' => f => t => NULL
j || '{"b": 9}' -> 'b' => 9 => NULL => NULL
(j - 'a')::text => {"b": 1, "n": -125, "aa": true} => [1, "two", null, [3], {"k": "v"}, 2.5] => NULL
jsonb_typeof(j -> 'b') => number => NULL => NULL
jsonb_typeof('null'::jsonb) => null => null => null
'{"b":1, "aa":2,"a":[1 ,{}], "b": 1e2}'::jsonb => {"a": [1, {}], "b": 100, "aa": 2} => {"a": [1, {}], "b": 100, "aa": 2} => {"a": [1, {}], "b": 100, "aa": 2}
jsonb_array_length('[1, [2]]') => 2 => 2 => 2
jsonb_strip_nulls('{"a": null, "b": [null]}') => {"b": [null]} => {"b": [null]} => {"b": [null]}
jsonb_set('{"a": [1, 2]}', '{a,0}', '"x"') => {"a": ["x", 2]} => {"a": ["x", 2]} => {"a": ["x", 2]}
jsonb_set('{}'::jsonb, '{c}', '5', false) => {} => {} => {}
length(jsonb_pretty('{"a": [1]}')) => 30 => 30 => 30
to_jsonb(a) => [1, null] => [] => NULL
to_jsonb(ts) => "2024-02-29T12:00:00.5" => NULL => NULL
to_jsonb(tz) => "2024-02-29T10:00:00+00:00" => NULL => NULL
to_jsonb(ROW(id, k)) => {"f1": 1, "f2": "b"} => {"f1": 2, "f2": "two"} => {"f1": 3, "f2": null}
jsonb_build_object('a', id, 'n', n, 'f', f, 'j', j -> 'b') => {"a": 1, "f": true, "j": 1, "n": 12.25} => {"a": 2, "f": false, "j": null, "n": null} => {"a": 3, "f": null, "j": null, "n": null}
jsonb_build_array(1, 'a', NULL, k) => [1, "a", null, "b"] => [1, "a", null, "two"] => [1, "a", null, null]
jsonb_object('{a,1,b,2}'::text[]) => {"a": "1", "b": "2"} => {"a": "1", "b": "2"} => {"a": "1", "b": "2"}
coalesce(j -> 'b', '{"z" : 0}') => 1 => {"z": 0} => {"z": 0}
CASE WHEN f THEN j -> 'b' ELSE '[ ]' END => 1 => [] => []
'v=' || (j ->> 'b') || n || f => v=112.25true => NULL => NULL
u => 550e8400-e29b-41d4-a716-446655440000 => 00000000-0000-0000-0000-000000000002 => NULL
u = '550E8400-E29B-41D4-A716-446655440000' => t => f => NULL
u::text || '' => 550e8400-e29b-41d4-a716-446655440000 => 00000000-0000-0000-0000-000000000002 => NULL
"""  # fmt: skip
QUERIES = {
    "SELECT t.id, e FROM t, jsonb_array_elements(t.j -> 'a' -> 'x') AS e": ["1 10", "1 20", '1 {"y": null}'],
    "SELECT t.id, e.value ->> 0 AS v FROM t, jsonb_array_elements(t.j #> '{3}') AS e": ["2 3"],
    "SELECT t.id, key, value FROM t, jsonb_each(t.j -> 'a') WHERE key = 's'": [r'1 s "te\"xt"'],
    "SELECT t.id, k.o, k.x FROM t, jsonb_array_elements_text('[7, null]') WITH ORDINALITY AS k (x, o) WHERE t.id = 1": ["1 1 7", "1 2 NULL"],
    "SELECT id, jsonb_object_keys(j -> 'a') AS x FROM t": ["1 s", "1 x"],
    "SELECT jsonb_populate_record(NULL::struct<a INT[], d DATE, n struct<x TEXT>>, '{\"a\": [1, null], \"d\": \"2024-02-29\", \"n\": {\"x\": 1.50}}') AS r": ['("{1,NULL}",2024-02-29,"(1.50)")'],
    "SELECT jsonb_populate_recordset(ROW(1, 'k')::struct<a INT, b TEXT>, '[{\"a\": \"2\"}, {\"b\": null}]') AS r": ["(2,k)", "(1,)"],
    "SELECT '{}' IS JSON AS a, 'x' IS NOT JSON AS b, '[1]' IS JSON ARRAY AS c, '1' IS JSON OBJECT AS d, NULL IS JSON AS e": ["t t t f NULL"],
    "SELECT jsonb_agg(k ORDER BY id DESC) AS x FROM t": ['[null, "two", "b"]'],
    "SELECT f, jsonb_object_agg(id, k) AS x FROM t GROUP BY f": ['NULL {"3": null}', 'f {"2": "two"}', 't {"1": "b"}'],
    "SELECT jsonb_agg(id) AS x FROM t WHERE false": ["NULL"],
    "SELECT DISTINCT x FROM (VALUES ('1.0'::jsonb), ('1'), ('\"1\"')) AS v (x)": ["1", '"1"'],
    "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.j -> 'b' = b.j -> 0": ["1 2"],
    "SELECT u, COUNT(*) AS n FROM t WHERE u IS NOT NULL GROUP BY u": ["550e8400-e29b-41d4-a716-446655440000 1", "00000000-0000-0000-0000-000000000002 1"],
}  # fmt: skip


LINES = [line.split(" => ") for line in VALUES.strip().splitlines()]
SELECT = f"SELECT id, {', '.join(f'{text} AS x{i}' for i, (text, *_) in enumerate(LINES))} FROM t"


@pytest.fixture(scope="module", params=[True, False], ids=["vector", "row"])
def world(request: pytest.FixtureRequest) -> Iterator[SqlSession]:
    made = SqlSession(Shape(vector=request.param))
    made.execute(TABLE)
    made.execute(ROWS)
    views = [f"CREATE VIEW e AS {SELECT}"] + [f"CREATE VIEW q{i} AS {sql}" for i, sql in enumerate(QUERIES)]
    assert made.define(views) == [None] * len(views)
    yield made
    made.close()


def test_values_are_postgresqls(world: SqlSession) -> None:
    wrong = []
    for asked in ("SELECT * FROM e ORDER BY id", f"{SELECT} ORDER BY id"):
        found = world.ask(asked)
        for i, (text, *wanted) in enumerate(LINES):
            if apart := difference(wanted, rendered(found.select([i + 1])), ordered=True):
                wrong.append(f"{text} in {asked[:20]}: {apart}")
    assert not wrong, "\n".join(wrong)


def test_queries_are_postgresqls(world: SqlSession) -> None:
    wrong = []
    for i, (sql, wanted) in enumerate(QUERIES.items()):
        for asked in (f"SELECT * FROM q{i}", sql):
            if apart := difference(wanted, rendered(world.ask(asked)), ordered=False):
                wrong.append(f"{asked}: {apart}")
    assert not wrong, "\n".join(wrong)


def test_views_follow_changes_of_it(world: SqlSession) -> None:
    world.execute("CREATE TABLE d (id INT PRIMARY KEY, j JSONB)")
    world.execute(
        "CREATE VIEW kinds AS SELECT j ->> 'kind' AS kind, jsonb_agg(j -> 'n' ORDER BY id) AS ns FROM d GROUP BY 1"
    )
    world.execute(
        """INSERT INTO d VALUES (1, '{"kind": "a", "n": 1}'), (2, '{"kind": "b", "n": 2}'), (3, '{"kind": "a"}')"""
    )
    assert sorted(rendered(world.ask("SELECT * FROM kinds"))) == ["a [1, null]", "b [2]"]
    world.execute("""UPDATE d SET j = j || '{"kind": "b", "n" : 1.0}' WHERE j @> '{"n": 1}'""")
    world.execute("""UPDATE d SET j = jsonb_set(j, '{n}', to_jsonb(id)) WHERE NOT j ? 'n'""")
    world.execute("DELETE FROM d WHERE (j -> 'n')::int = 2")
    assert sorted(rendered(world.ask("SELECT * FROM kinds"))) == ["a [3]", "b [1.0]"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE s (j JSONB) WITH (kafka_topic = 's', value_format = 'JSON')", "JSONB as the type of column j of a topic"),
        ("CREATE VIEW v AS SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY j) AS x FROM t", "PERCENTILE_DISC of JSONB"),
        ("CREATE VIEW v AS SELECT MAX(j) AS m FROM t", "max(JSONB) does not exist"),
        ("CREATE VIEW v AS SELECT k -> 'a' AS x FROM t", "takes JSONB"),
        ("CREATE VIEW v AS SELECT UPPER(j) AS x FROM t", "does not accept parameters (JSONB)"),
        ("CREATE VIEW v AS SELECT CAST('{' AS JSONB) AS x FROM t", "invalid input syntax for type json"),
        ("CREATE VIEW v AS SELECT j = k AS x FROM t", "cannot compare j (JSONB) to k (TEXT)"),
        ("CREATE VIEW v AS SELECT ts = j AS x FROM t", "cannot compare ts (TIMESTAMP) to j (JSONB)"),
        ("CREATE TABLE s (j JSON)", "the type JSON"),
        ("INSERT INTO t (id, j) VALUES (9, 'x')", "invalid input syntax for type json"),
        ("INSERT INTO t (id, u) VALUES (9, 'x')", "invalid input syntax for type uuid"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(world: SqlSession, statement: str, said: str) -> None:
    with pytest.raises((CompileError, QueryError)) as caught:
        world.execute(statement)
    assert said in str(caught.value)


# In PostgreSQL's order.
ORDERED = (
    "[]", "null", '""', '"a"', '"ab"', '"b"', "-100000", "-1.25", "-1", "0", "0.001", "1", "1.5", "100", "false", "true", "[null]", '["a"]', "[1]", "[true]", "[[]]", "[{}]",
    "[1, 2]", "[1, 3]", "{}", '{"a": 1}', '{"a": 2}', '{"aa": 0}', '{"b": 1}', '{"a": 1, "b": 2}',
)  # fmt: skip


def test_values_are_ordered_as_in_postgresql() -> None:
    made = SqlSession(Shape(partitions=3))
    made.execute("CREATE TABLE o (id INT PRIMARY KEY, j JSONB)")
    made.execute("CREATE VIEW places AS SELECT id, ROW_NUMBER() OVER (ORDER BY j) AS n FROM o")
    made.execute("CREATE VIEW largest AS SELECT j FROM o WHERE j >= '[1, 2]' ORDER BY j DESC LIMIT 3")
    rows = ", ".join(f"({n}, '{j}')" for n, j in enumerate(ORDERED, 1))
    made.execute(f"INSERT INTO o VALUES (0, NULL), {rows}")
    made.execute("UPDATE o SET j = '{}' WHERE id = 30")
    made.execute("DELETE FROM o WHERE id IN (0, 25)")
    assert rendered(made.ask("SELECT id FROM places ORDER BY n")) == [
        *map(str, range(1, 25)),
        "30",
        *map(str, range(26, 30)),
    ]
    assert rendered(made.ask("SELECT id FROM o ORDER BY j")) == rendered(made.ask("SELECT id FROM places ORDER BY n"))
    for sql in ("SELECT j FROM largest", "SELECT j FROM o WHERE j >= '[1, 2]' ORDER BY j DESC LIMIT 3"):
        assert sorted(rendered(made.ask(sql))) == ['{"a": 2}', '{"aa": 0}', '{"b": 1}']
    assert rendered(made.ask("SELECT id FROM o WHERE j BETWEEN '1' AND '100' AND NOT j < '[]' ORDER BY id")) == [
        "12",
        "13",
        "14",
    ]
    made.close()
