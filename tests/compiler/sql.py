"""What tests of the compiler share: compile a text, or expect one mistake in it."""

from collections.abc import Mapping

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.logical import Node, walk_nodes
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import QueryPlan

ORDERS = "CREATE STREAM orders (id INT KEY, customer STRING, amount DOUBLE, items ARRAY<INT>) WITH (kafka_topic='orders', value_format='JSON');\n"
CLICKS = "CREATE STREAM clicks (id INT KEY, customer STRING, page STRING) WITH (kafka_topic='clicks', value_format='JSON');\n"
CUSTOMERS = "CREATE TABLE customers (name STRING PRIMARY KEY, city STRING, age INT) WITH (kafka_topic='customers', value_format='JSON');\n"
CITIES = (
    "CREATE TABLE cities (name STRING PRIMARY KEY, country STRING) WITH (kafka_topic='cities', value_format='JSON');\n"
)
ALL = ORDERS + CLICKS + CUSTOMERS + CITIES


def compiled(sql: str, *, prelude: str = ALL, **options: Mapping[str, object]) -> Compiled:
    """Compile a text that is right."""
    result = compile_project([SourceText("test.sql", prelude + sql)], **options)  # type: ignore[arg-type]
    assert result.ok, [f"{d.code} {d.title}" for d in result.diagnostics]
    return result


def query(sql: str, *, prelude: str = ALL) -> QueryPlan:
    """The last query of a text that is right."""
    return compiled(sql, prelude=prelude).plan.queries[-1]


def unoptimised(sql: str) -> Node:
    result = compiled(sql)
    return result.trace[result.plan.queries[-1].id].unoptimised


def mistakes(sql: str, *, prelude: str = ALL) -> tuple[Diagnostic, ...]:
    return compile_project([SourceText("test.sql", prelude + sql)]).diagnostics


def refused(sql: str, code: str, *names: str, prelude: str = ALL) -> Diagnostic:
    """The one mistake in a text: it has the code, names the things and points somewhere."""
    found = mistakes(sql, prelude=prelude)
    assert len(found) == 1, [f"{d.code} {d.title}" for d in found]
    (only,) = found
    told = f"{only.title} {only.label} {only.why} {only.help}".upper()
    assert only.code == code, f"{only.code}: {only.title}"
    assert all(n.upper() in told for n in names), told
    assert only.span.line > 0, f"{only.code} points nowhere"
    return only


def columns(schema: Schema) -> str:
    """`ID INT KEY, N BIGINT`."""
    return ", ".join(f"{f.name} {f.type}{' KEY' if f.role == 'key' else ''}" for f in schema)


def kinds(node: Node) -> list[str]:
    """Names of the operators of a plan, inputs first."""
    return [type(n.spec).__name__ for n in walk_nodes(node)]
