"""Rules for values at a path of JSON."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.building import call, cast
from flowql.compiler.dialect.foreign.translation import Translation
from flowql.compiler.dialect.foreign.untranslated import Node, refuse


def json_value(tr: Translation, node: Node) -> Node:
    """A value at a path, as JSON or as a text."""
    if tr.as_postgres:
        return _stepped(tr, node)
    if tr.dialect == "snowflake" and isinstance(node, exp.JSONExtract):
        return json_path(tr, node, text=False)
    if tr.dialect in ("trino", "bigquery") and isinstance(node, exp.JSONExtractScalar):
        return _scalar(tr, node)
    return refuse(
        node,
        tr.name_of(node),
        f"its result for objects and arrays differs from {tr.dialect}'s",
        "cast the string to JSONB, and write  j -> 'a' ->> 'b'",
    )


def _scalar(tr: Translation, node: Node) -> Node:
    """JSON_EXTRACT_SCALAR and JSON_VALUE: NULL for an object and an array."""
    kind = call("JSONB_TYPEOF", json_path(tr, node, text=False))
    nested = exp.In(this=kind, expressions=[exp.Literal.string("object"), exp.Literal.string("array")])
    return exp.Case(ifs=[exp.If(this=exp.Not(this=nested), true=json_path(tr, node, text=True))])


def json_path(tr: Translation, node: Node, *, text: bool) -> Node:
    """JSONB_EXTRACT_PATH of the keys and places of a path. Raises Untranslated for other steps."""
    steps = node.expression.expressions if isinstance(node.expression, exp.JSONPath) else [None]
    keys = []
    for step in steps:
        if isinstance(step, exp.JSONPathRoot):
            continue
        value = step.this if isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript) else None
        if not isinstance(value, str | int) or (isinstance(value, int) and value < 0):
            refuse(
                node,
                "a path of JSON with more than keys and places",
                f"no translation from {tr.dialect} is known",
                "write JSONB_ARRAY_ELEMENTS in FROM",
            )
        keys.append(exp.Literal.string(str(value)))
    kind = tr.kinds.of(node.this)
    value = tr(node.this) if kind == "json" or tr.dialect == "snowflake" else cast(tr(node.this), "JSONB")
    return call("JSONB_EXTRACT_PATH_TEXT" if text else "JSONB_EXTRACT_PATH", value, *keys)


def _stepped(tr: Translation, node: Node) -> Node:
    """`j -> 'a'` and `j ->> 0` of PostgreSQL, one step each."""
    path = node.expression
    step = path.expressions[-1] if isinstance(path, exp.JSONPath) else None
    if step is None or len(path.expressions) != 2 or not isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript):
        key = (
            tr(path)
            if not isinstance(path, exp.JSONPath)
            else refuse(node, tr.name_of(node), "it is not a step of JSONB")
        )
    else:
        key = exp.Literal(this=str(step.this), is_string=isinstance(step, exp.JSONPathKey))
    return call("JSONB_FIELD_TEXT" if isinstance(node, exp.JSONExtractScalar) else "JSONB_FIELD", tr(node.this), key)
