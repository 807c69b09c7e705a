"""Types of other dialects as types of FlowQL's standard dialect."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.dialects import AS_POSTGRES, identifier, written
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

_PLAIN = {
    "BOOLEAN": "BOOLEAN", "SMALLINT": "SMALLINT", "INT": "INT", "BIGINT": "BIGINT", "DOUBLE": "DOUBLE PRECISION", "TEXT": "TEXT", "DATE": "DATE", "TIME": "TIME",
    "BINARY": "BYTEA", "VARBINARY": "BYTEA", "JSONB": "JSONB", "VARIANT": "JSONB", "UUID": "UUID", "INTERVAL": "INTERVAL",
    "SERIAL": "SERIAL", "BIGSERIAL": "BIGSERIAL",
}  # fmt: skip
_MOMENTS = {
    "TIMESTAMP": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP", "DATETIME": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMPTZ", "TIMESTAMPLTZ": "TIMESTAMPTZ",
}  # fmt: skip
# DECIMAL without digits.
_BARE_DECIMAL = {
    "bigquery": "NUMERIC(38, 9)", "spark": "DECIMAL(10, 0)", "flink": "DECIMAL(10, 0)", "trino": "DECIMAL(38, 0)",
    "duckdb": "DECIMAL(18, 3)", "snowflake": "NUMERIC(38, 0)",
}  # fmt: skip
_WHOLE_IN_SNOWFLAKE = ("INT", "BIGINT", "SMALLINT", "TINYINT")


def type_of(node: Node, dialect: str, *, in_cast: bool) -> Node:
    """The type in FlowQL. in_cast: of CAST, which cuts and pads in other ways than a column does. Raises Untranslated."""
    return exp.DataType(this=exp.DType.USERDEFINED, kind=_text(node, dialect, in_cast))


def _text(node: Node, dialect: str, in_cast: bool) -> str:
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    params = [p.name for p in node.expressions if isinstance(p, exp.DataTypeParam)]
    if dialect == "snowflake" and name in _WHOLE_IN_SNOWFLAKE:
        return "NUMERIC(38, 0)"
    if name in _MOMENTS:
        return _moment(node, _MOMENTS[name], params, dialect)
    if name == "DECIMAL":
        return f"NUMERIC({', '.join(params)})" if params else _BARE_DECIMAL.get(dialect, "NUMERIC")
    if name in ("ARRAY", "LIST") and node.expressions:
        return _text(node.expressions[0], dialect, in_cast) + "[]"
    if name == "MAP" and len(node.expressions) == 2:
        return f"MAP<{', '.join(_text(t, dialect, in_cast) for t in node.expressions)}>"
    if name == "STRUCT" and node.expressions and all(isinstance(f, exp.ColumnDef) for f in node.expressions):
        fields = (
            f"{written(identifier(f.name.lower()))} {_text(f.args['kind'], dialect, in_cast)}" for f in node.expressions
        )
        return f"STRUCT<{', '.join(fields)}>"
    if name in ("VARCHAR", "TEXT") and params:
        return _bounded(node, params, dialect, in_cast)
    if name == "TINYINT" and not in_cast:
        return "SMALLINT"
    if name == "JSON" and dialect in ("bigquery",):
        return "JSONB"
    if name == "VARCHAR":
        return "TEXT"
    if name in _PLAIN and not params:
        return _PLAIN[name]
    return refuse(node, f"the type {node.sql(dialect if dialect != 'flink' else 'risingwave')}", *_reason(name))


def _reason(name: str) -> tuple[str, str]:
    if name == "FLOAT":
        return "FlowQL has no numbers of 32 bits, and a DOUBLE has other values", "declare it DOUBLE PRECISION"
    if name == "JSON":
        return "its text is kept as it was written, which no type of FlowQL does", "declare it JSONB, or TEXT"
    if name in ("CHAR", "NCHAR", "BPCHAR"):
        return "it is padded with blanks", "declare it VARCHAR or TEXT"
    if name == "TINYINT":
        return "its range is checked by the cast", "cast to SMALLINT"
    return "FlowQL has no type of this meaning", "declare it with a type of docs/reference/types.md"


def _moment(node: Node, name: str, params: list[str], dialect: str) -> str:
    if not params or params == ["3"]:
        return name
    if params == ["6"]:
        return f"{name}(6)"
    return refuse(
        node, f"{name}({params[0]})", "moments have 3 or 6 digits of a second", f"declare it {name}(3) or {name}(6)"
    )


def _bounded(node: Node, params: list[str], dialect: str, in_cast: bool) -> str:
    if in_cast and dialect not in AS_POSTGRES:
        refuse(
            node,
            f"CAST to VARCHAR({params[0]})",
            "one system truncates a string that is too long, another refuses it",
            "cast to TEXT",
        )
    return f"VARCHAR({params[0]})"
