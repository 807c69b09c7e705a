"""Asynchronous calls are taken out of expressions into operators: which, in what order, and that the plan computes the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.functions.user import MARK, entry_of, udf
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.plan.explain import spec_text
from flowql.compiler.plan.logical import Node, walk_nodes
from tests.registries import forget_projects

SOURCES = """
CREATE STREAM S (K STRING KEY, A BIGINT, B BIGINT, L ARRAY<BIGINT>) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T (K STRING PRIMARY KEY, A BIGINT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE U (K STRING PRIMARY KEY, A BIGINT) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""


@udf(asynchronous=True, version="1")
async def ask(a: int | None) -> int:
    raise AssertionError("it is not called here")


@udf(asynchronous=True, version="1", order="none")
async def loose(a: int) -> int:
    raise AssertionError("it is not called here")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_projects()


def compiled(query: str) -> Compiled:
    functions = {f.__name__.upper(): entry_of(getattr(f, MARK), "m", "1") for f in (ask, loose)}
    return compile_project([SourceText("q.sql", SOURCES + query)], functions=functions)


def logical(query: str) -> Node:
    made = compiled(query)
    assert made.ok, made.diagnostics
    assert loads(dumps(made.plan)) == made.plan
    return made.plan.queries[0].logical


def lines(query: str) -> list[str]:
    """The operators but source and sink, the last one first."""
    nodes = [spec_text(n.spec) for n in walk_nodes(logical(query))]
    return [line.replace("@m:1", "") for line in reversed(nodes[1:-1])]


def maps(query: str) -> list[AsyncMap]:
    return [n.spec for n in walk_nodes(logical(query)) if isinstance(n.spec, AsyncMap)]


def test_a_call_becomes_an_operator_and_its_arguments_columns() -> None:
    assert lines("CREATE STREAM O AS SELECT K, ASK(A + 1) * 2 AS X FROM S;") == [
        "Project K, X := (__async_0 * 2)",
        "AsyncMap __async_0 := ASK(__arg_0), in order per key",
        "Project K, __arg_0 := (A + 1)",
    ]


def test_equal_calls_are_made_once_and_calls_of_a_row_together() -> None:
    (found,) = maps("CREATE STREAM O AS SELECT K, ASK(A) AS X, ASK(A) + 1 AS Y, ASK(B) AS Z FROM S;")
    assert [(c.args, c.type.kind.value) for c in found.calls] == [(("A",), "BIGINT"), (("B",), "BIGINT")]


def test_a_call_with_a_call_as_argument_comes_after_it() -> None:
    first, second = maps("CREATE STREAM O AS SELECT K, ASK(ASK(A)) AS X FROM S;")
    assert (first.calls[0].args, second.calls[0].args) == (("A",), (first.calls[0].name,))


def test_conditions_without_calls_come_first() -> None:
    found = lines("CREATE STREAM O AS SELECT K, A FROM S WHERE ASK(A) > 2 AND B > 1;")
    assert [line.split()[0] for line in found] == ["Project", "Filter", "AsyncMap", "Filter"]
    assert found[-1] == "Filter (B > 1)"


ORDERS = {
    "CREATE STREAM O AS SELECT K, LOOSE(A) AS X FROM S;": "none",
    "CREATE STREAM O AS SELECT K, LOOSE(A) AS X, ASK(A) AS Y FROM S;": "key",
    "CREATE STREAM O AS SELECT K, EXPLODE(L) AS E, LOOSE(A) AS X FROM S;": "none",
    "CREATE STREAM O AS SELECT ASK(A) AS X, B FROM S PARTITION BY ASK(A);": "input",
    "CREATE TABLE O AS SELECT K, SUM(LOOSE(A)) AS X FROM S GROUP BY K;": "input",
    "CREATE TABLE O AS SELECT LOOSE(A) AS X, COUNT(*) AS N FROM S GROUP BY LOOSE(A);": "input",
    "CREATE TABLE O AS SELECT K, LOOSE(A) AS X FROM T;": "key",
    "CREATE STREAM O AS SELECT S.K AS K, LOOSE(S.A) AS X FROM S JOIN T ON S.K = T.K;": "none",
}


@pytest.mark.parametrize("query", list(ORDERS))
def test_rows_keep_the_order_that_is_needed_behind_the_call(query: str) -> None:
    assert {m.order for m in maps(query)} == {ORDERS[query]}


REFUSED = {
    "CREATE STREAM O AS SELECT K, A FROM S WHERE A = 1 OR ASK(A) = 2;": "in an argument of OR, which need not be computed",
    "CREATE STREAM O AS SELECT K, COALESCE(A, ASK(B)) AS X FROM S;": "in an argument of COALESCE, which need not be computed",
    "CREATE TABLE O AS SELECT T.K AS K, U.A AS A FROM T JOIN U ON CAST(ASK(T.A) AS STRING) = U.K;": "in the condition of a join",
}


@pytest.mark.parametrize("query", list(REFUSED))
def test_calls_that_cannot_wait_are_refused_by_name(query: str) -> None:
    (found,) = compiled(query).diagnostics
    assert (found.code, found.unsupported) == ("FQ2090", True)
    assert found.title == f"a call of the asynchronous function ASK {REFUSED[query]}"
