"""Rules for operators, casts, numbers and texts whose meaning differs between dialects."""

from __future__ import annotations

import re

from sqlglot import exp

from flowql.compiler.dialect.foreign.building import DOUBLE, call, cast, constant, quotient
from flowql.compiler.dialect.foreign.dialects import identifier
from flowql.compiler.dialect.foreign.json_values import json_path
from flowql.compiler.dialect.foreign.kinds import NUMBERS
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.types import type_of
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

_UNKNOWN = "the kind of its operands is not known"
_TELL = "cast the operands, or put the CREATE TABLE of its columns into the files"
# Digits of Snowflake's quotients and means of whole numbers.
_SNOWFLAKE_DIGITS = 6
# TRIM without characters takes off all white space of Unicode in these dialects, blanks elsewhere.
_WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACES = " \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def column(tr: Translation, node: Node) -> Node:
    """A project is one name space: of database.schema.table.column the last two parts count."""
    table = node.args.get("table")
    if table is not None and tr.kinds.is_struct(node):
        inner = exp.Column(
            this=tr.name(table), table=tr.name(node.args["db"]) if node.args.get("db") is not None else None
        )
        return exp.Dot(this=exp.Paren(this=inner), expression=tr.name(node.this))
    if isinstance(node.this, exp.Star):
        return exp.Column(this=exp.Star(), table=tr.name(table) if table is not None else None)
    return exp.Column(this=tr.name(node.this), table=tr.name(table) if table is not None else None)


def literal(tr: Translation, node: Node) -> Node:
    text = str(node.this)
    if not node.is_string and "e" in text.lower() and tr.dialect in ("postgres", "materialize"):
        return cast(exp.Literal.string(text), "NUMERIC")  # 1e10 is NUMERIC there, and a DOUBLE here
    if not node.is_string and "." in text and "e" not in text.lower() and tr.dialect == "bigquery":
        return exp.Literal(this=f"{text}e0", is_string=False)
    return constant(str(node.this)) if node.is_string else exp.Literal(this=node.this, is_string=False)


def raw_text(tr: Translation, node: Node) -> Node:
    """A text whose escapes are read already. Bytes are refused."""
    if node.args.get("is_bytes"):
        refuse(
            node, "a constant of bytes", f"no translation from {tr.dialect} is known", "write  DECODE('00ff', 'hex')"
        )
    return constant(str(node.this))


def division(tr: Translation, node: Node) -> Node:
    left, right = tr.kinds.of(node.this), tr.kinds.of(node.expression)
    one, other = tr(node.this), tr(node.expression)
    if tr.as_postgres or "double" in (left, right):
        return quotient(one, other)
    if tr.dialect == "duckdb":
        return quotient(cast(one, DOUBLE), other)
    if not left or not right:
        refuse(
            node,
            "a division",
            f"it depends on the kind of its operands, which is not known: {tr.dialect} divides integers otherwise than decimals",
            _TELL,
        )
    if "decimal" in (left, right):
        refuse(
            node,
            "a division of decimals",
            f"{tr.dialect} keeps another number of digits",
            f"cast one operand to {DOUBLE}",
        )
    if tr.dialect in ("trino", "flink"):
        return quotient(one, other)
    if tr.dialect == "snowflake":
        return call("ROUND", quotient(cast(one, "NUMERIC"), other), exp.Literal.number(_SNOWFLAKE_DIGITS))
    return quotient(cast(one, DOUBLE), other)


def whole_division(tr: Translation, node: Node) -> Node:
    if tr.as_postgres:
        return tr.copied(node, ("this", "expression"))
    if (tr.kinds.of(node.this), tr.kinds.of(node.expression)) != ("int", "int"):
        refuse(
            node,
            "a division to a whole number",
            "it depends on the kind of its operands: only integers are divided alike",
            _TELL,
        )
    return exp.Paren(this=quotient(tr(node.this), tr(node.expression)))


def modulo(tr: Translation, node: Node) -> Node:
    return exp.Mod(this=tr(node.this), expression=tr(node.expression))


def safe_divide(tr: Translation, node: Node) -> Node:
    below = exp.Nullif(this=tr(node.expression), expression=exp.Literal.number(0))
    return quotient(cast(tr(node.this), DOUBLE), below)


def average(tr: Translation, node: Node) -> Node:
    inner = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    kind = tr.kinds.of(inner)
    made = exp.Avg(this=tr(node.this))
    if tr.as_postgres or kind == "double":
        return made
    if kind != "int":
        refuse(
            node,
            "the function AVG",
            _UNKNOWN if not kind else f"{tr.dialect} gives another number of digits for a {kind}",
            f"write AVG(CAST(x AS {DOUBLE}))",
        )
    if tr.dialect == "snowflake":
        return call("ROUND", made, exp.Literal.number(_SNOWFLAKE_DIGITS))
    if tr.dialect == "flink":  # the mean of integers is an integer there
        return cast(call("TRUNC", made), "BIGINT")
    doubled = cast(tr(inner), DOUBLE)
    return exp.Avg(this=exp.Distinct(expressions=[doubled]) if isinstance(node.this, exp.Distinct) else doubled)


def casting(tr: Translation, node: Node) -> Node:
    for name in ("format", "action", "default"):
        if node.args.get(name):
            refuse(
                node,
                f"CAST with {name.upper()}",
                f"no translation from {tr.dialect} is known",
                "write TO_CHAR, TO_DATE or TO_TIMESTAMP",
            )
    if tr.dialect == "trino" and isinstance(node.this, exp.Literal) and tr.kinds.of_type(node.to) == "timestamp":
        # The digits of such a literal are its type's there.
        to = "TIMESTAMP(6)" if re.search(r"\.\d{4}", str(node.this.this)) else "TIMESTAMP"
        return cast(tr(node.this), to)
    made = _json_value(tr, node)
    if made is None:
        made = _converted(tr, node)
    kind = exp.TryCast if isinstance(node, exp.TryCast) else exp.Cast
    return kind(this=made, to=type_of(node.to, tr.dialect, in_cast=True))


def _json_value(tr: Translation, node: Node) -> Node | None:
    """Snowflake's `v:a::type` reads the value as a text and casts it."""
    if isinstance(node.this, exp.JSONExtract) and tr.dialect == "snowflake" and tr.kinds.of_type(node.to) != "json":
        return json_path(tr, node.this, text=True)
    return None


def _converted(tr: Translation, node: Node) -> Node:
    kind, to = tr.kinds.of(node.this), tr.kinds.of_type(node.to)
    value = tr(node.this)
    if tr.as_postgres or kind == to or isinstance(node.this, exp.Null):
        return value
    if to == "int" and kind not in ("text", "bool"):
        return _to_whole(tr, node, kind, value)
    if to == "text" and kind not in ("int", "date") and not (kind == "bool" and tr.dialect != "flink"):
        refuse(
            node,
            f"a cast of {f'a {kind}' if kind else 'this value'} to a string",
            "systems write it in different ways" if kind else _UNKNOWN,
            "write TO_CHAR(x, pattern)",
        )
    if kind == "int" and to in ("timestamp", "date", "time"):
        refuse(
            node, f"a cast of an integer to a {to}", "systems count in different units", "write TO_TIMESTAMP(seconds)"
        )
    return value


def _to_whole(tr: Translation, node: Node, kind: str, value: Node) -> Node:
    if kind not in NUMBERS:
        refuse(node, "a cast to an integer", _UNKNOWN, _TELL)
    if tr.dialect in ("spark", "flink"):
        return call("TRUNC", value)  # these cut, where FlowQL rounds
    if kind == "double" and tr.dialect != "duckdb":
        refuse(
            node,
            "a cast of a DOUBLE to an integer",
            f"{tr.dialect} rounds halves away from zero, and FlowQL to the even number",
            "write CAST(CAST(x AS NUMERIC) AS BIGINT)",
        )
    return value


def rounding(tr: Translation, node: Node) -> Node:
    digits = [tr(node.args["decimals"])] if node.args.get("decimals") is not None else []
    if node.args.get("truncate") is not None:
        refuse(node, "ROUND with a mode", f"no translation from {tr.dialect} is known", "write ROUND or TRUNC")
    if not tr.as_postgres and tr.kinds.of(node.this) not in ("int", "decimal"):
        refuse(
            node,
            "ROUND of a DOUBLE" if tr.kinds.of(node.this) else "the function ROUND",
            f"{tr.dialect} rounds halves away from zero, and FlowQL to the even number",
            "write ROUND(CAST(x AS NUMERIC), digits)",
        )
    return call("ROUND", tr(node.this), *digits)


def plus_minus(tr: Translation, node: Node) -> Node:
    left, right = tr.kinds.of(node.this), tr.kinds.of(node.expression)
    made = type(node)(this=tr(node.this), expression=tr(node.expression))
    if tr.as_postgres or {left, right} <= {*NUMBERS, ""}:
        return made
    if right == "interval" and left == "date":
        return (
            cast(made, "DATE")
            if tr.dialect in ("spark", "trino", "snowflake", "flink") and _in_days(node.expression)
            else made
        )
    if right == "interval" or (left == "date" and right == "int" and tr.dialect in ("snowflake", "duckdb")):
        return made
    if isinstance(node, exp.Sub) and left == right == "date" and tr.dialect in ("snowflake", "duckdb"):
        return made
    return refuse(
        node,
        "arithmetic with times",
        f"{tr.dialect} gives a value of another type",
        "write TIMESTAMPDIFF(unit, a, b), or add an INTERVAL",
    )


def _in_days(node: Node) -> bool:
    return isinstance(node, exp.Interval) and node.text("unit").upper().rstrip("S") in (
        "DAY",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
    )


def concatenation(tr: Translation, node: Node) -> Node:
    """CONCAT and ||. Where one NULL makes all NULL, CONCAT becomes ||."""
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    parts = list(node.flatten()) if isinstance(node, exp.DPipe) else node.expressions
    values = [_as_text(tr, p) for p in parts]
    if isinstance(node, exp.Concat) and tr.dialect == "duckdb":
        return call("CONCAT", *values)
    made = values[0]
    for value in values[1:]:
        made = exp.DPipe(this=made, expression=value, safe=True)
    return exp.Paren(this=made) if isinstance(node, exp.Concat) and len(values) > 1 else made


def _as_text(tr: Translation, node: Node) -> Node:
    kind = tr.kinds.of(node)
    if kind == "text" or isinstance(node, exp.Null):
        return tr(node)
    if kind in ("int", "date"):
        return cast(tr(node), "TEXT")
    return refuse(
        node,
        f"{f'a {kind}' if kind else 'a value'} in a concatenation",
        "systems write it in different ways" if kind else _UNKNOWN,
        "cast it to TEXT, or write TO_CHAR(x, pattern)",
    )


def conditional(tr: Translation, node: Node) -> Node:
    """IFF(a, b, c) and IF(a, b, c); a branch of CASE stays one."""
    false = node.args.get("false")
    branch = exp.If(this=tr(node.this), true=tr(node.args["true"]))
    if isinstance(node.parent, exp.Case) and node.arg_key == "ifs":
        return branch
    return exp.Case(ifs=[branch], default=tr(false) if false is not None else None)


def if_given(tr: Translation, node: Node) -> Node:
    """NVL2(a, b, c)."""
    given = exp.Not(this=exp.Is(this=tr(node.this), expression=exp.Null()))
    false = node.args.get("false")
    return exp.Case(
        ifs=[exp.If(this=given, true=tr(node.args["true"]))], default=tr(false) if false is not None else None
    )


def coalesce(tr: Translation, node: Node) -> Node:
    return exp.Coalesce(this=tr(node.this), expressions=tr.argument(node.expressions))


def extreme(tr: Translation, node: Node) -> Node:
    """GREATEST and LEAST: one NULL makes them NULL in some dialects."""
    values = [node.this, *node.expressions]
    made = type(node)(this=tr(node.this), expressions=tr.argument(node.expressions), ignore_nulls=True)
    if tr.as_postgres or tr.dialect in ("spark", "duckdb"):
        return made
    missing = [exp.Is(this=tr(v), expression=exp.Null()) for v in values if not isinstance(v, exp.Literal)]
    return exp.Case(ifs=[exp.If(this=exp.or_(*missing), true=exp.Null())], default=made) if missing else made


def trim(tr: Translation, node: Node) -> Node:
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    characters = node.args.get("expression")
    given = tr(characters) if characters is not None else constant(_trimmed_by(tr.dialect))
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(node.args.get("position") or "").upper(), "BTRIM")
    return call(name, tr(node.this), given)


def _trimmed_by(dialect: str) -> str:
    return _WHITE_SPACE if dialect in ("bigquery", "trino") else _SPACES if dialect == "duckdb" else " "


def like(tr: Translation, node: Node) -> Node:
    """Where no character escapes without ESCAPE, the backslashes of a pattern are doubled."""
    made = type(node)(this=tr(node.this), expression=tr(node.expression), negate=node.args.get("negate"))
    if tr.as_postgres or tr.dialect in ("spark", "bigquery") or isinstance(node.parent, exp.Escape):
        return made
    if not isinstance(node.expression, exp.Literal):
        refuse(
            node,
            "LIKE with a pattern that is not a constant",
            f"a backslash escapes here, and not in {tr.dialect}",
            "write the pattern as a constant",
        )
    made.set("expression", exp.Literal.string(str(node.expression.this).replace("\\", "\\\\")))
    return made


def bracket(tr: Translation, node: Node) -> Node:
    """An element of an array, whose place sqlglot counts from 0, or of a map."""
    if tr.as_postgres:
        return tr.copied(node, ("this", "expressions"))
    (index,) = node.expressions if len(node.expressions) == 1 else (None,)
    if isinstance(index, exp.Literal) and not index.is_string and tr.kinds.of(node.this) != "array":
        refuse(
            node,
            "an index of a value that may be a map",
            _UNKNOWN,
            "put the CREATE TABLE of its columns into the files",
        )
    if isinstance(index, exp.Literal):
        if not index.is_string and node.args.get("offset"):  # an index that is given as it counts
            return exp.Bracket(this=tr(node.this), expressions=[exp.Literal.number(int(str(index.this)) - 1)])
        return exp.Bracket(this=tr(node.this), expressions=[tr(index)])
    return refuse(
        node,
        "an index that is not a constant",
        "places count from 0 or 1, and from the end, in different dialects",
        "write a constant, or ELEMENT of UNNEST ... WITH ORDINALITY",
    )


def interval(tr: Translation, node: Node) -> Node:
    if isinstance(node.this, exp.Literal):
        return exp.Interval(
            this=exp.Literal.string(str(node.this.this)),
            unit=node.args["unit"].copy() if node.args.get("unit") else None,
        )
    return refuse(
        node,
        "an INTERVAL of an expression",
        f"no translation from {tr.dialect} is known",
        "write  n * INTERVAL '1' DAY",
    )


def field(tr: Translation, node: Node) -> Node:
    """A field of a struct."""
    if not isinstance(node.expression, exp.Identifier):
        refuse(node, tr.name_of(node), f"no translation from {tr.dialect} is known")
    return exp.Dot(this=exp.Paren(this=tr(node.this)), expression=identifier(node.expression.name.lower()))


def zoned(tr: Translation, node: Node) -> Node:
    """AT TIME ZONE, which changes what is shown in some dialects, and the type in PostgreSQL's and DuckDB's."""
    if not tr.as_postgres and tr.dialect != "duckdb":
        refuse(
            node,
            "AT TIME ZONE",
            f"it gives a value of another type in {tr.dialect}",
            "write  t AT TIME ZONE zone  as PostgreSQL has it",
        )
    return exp.AtTimeZone(this=tr(node.this), zone=tr(node.args["zone"]))


def attempt(tr: Translation, node: Node) -> Node:
    return call("TRY", tr(node.this))


EXPRESSIONS: dict[type, Rule] = {
    exp.Column: column, exp.Identifier: Translation.name, exp.Literal: literal, exp.RawString: raw_text, exp.ByteString: raw_text, exp.Div: division, exp.IntDiv: whole_division, exp.Mod: modulo, exp.SafeDivide: safe_divide,
    exp.Avg: average, exp.Cast: casting, exp.TryCast: casting, exp.Round: rounding, exp.Add: plus_minus, exp.Sub: plus_minus, exp.Concat: concatenation, exp.DPipe: concatenation,
    exp.If: conditional, exp.Nvl2: if_given, exp.Coalesce: coalesce, exp.Greatest: extreme, exp.Least: extreme, exp.Trim: trim, exp.Like: like, exp.ILike: like, exp.Bracket: bracket,
    exp.Interval: interval, exp.Dot: field, exp.AtTimeZone: zoned, exp.Try: attempt,
}  # fmt: skip
