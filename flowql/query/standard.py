"""Interactive queries of the standard dialect as DuckDB reads them: what DuckDB understands otherwise, or has by another name, is written as what is meant.

The statement is read by the grammar of the dialect; one that this grammar does not know goes to DuckDB as it is. What depends on the types of
columns stays as it is: `ROUND` of halves of doubles, and the texts of doubles and truth values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from flowql.compiler.analyze.relations.json_aggregates import of_arrays
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import read_interval
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.statement_tree import QueryStatement
from flowql.compiler.dialect.standard.words import BY_CODE_POINT
from flowql.compiler.dialect.standard.write_expressions import quoted, write_type
from flowql.compiler.dialect.standard.write_queries import query_sql
from flowql.compiler.functions.forms import uuid_text
from flowql.compiler.functions.sql_bytes import bytes_of_text
from flowql.compiler.functions.sql_date_patterns import NAMES, parts_of
from flowql.compiler.functions.sql_times import part_name, part_type
from flowql.query import standard_arrays, standard_json, standard_relations, standard_times
from flowql.query.catalogue import (
    ANY_CHAR,
    EXTRACTED,
    EXTRACTED_ALL,
    FORMATTED,
    MATCHES,
    ONCE,
    PART,
    READ_DATE,
    READ_MOMENT,
    REPEATING,
    REPLACED,
    SHOWN,
    SIMILAR,
    SPLIT,
    TEXT,
)
from flowql.query.errors import INVALID, QueryError
from flowql.query.names import names_of, with_names
from flowql.query.standard_arrays import call as _call
from flowql.query.standard_arrays import constant as _constant
from flowql.query.standard_arrays import number as _number
from flowql.query.standard_names import in_quotes, with_words_as_names
from flowql.query.standard_relations import named_values
from flowql.query.standard_types import NOTHING_KNOWN, ColumnTypes, by_types
from flowql.query.standard_using import with_common_types

_MATCHES = ("~", "~*", "!~", "!~*")
_NUMERIC = ("decimal", "numeric", "dec")
# Patterns of TO_CHAR -> those of strftime.
_STRFTIME = {
    "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f",
    "DDD": "%j", "Mon": "%b", "Dy": "%a", "AM": "%p", "PM": "%p", "IYYY": "%G", "IW": "%V", "ID": "%u",
}  # fmt: skip
_DIGITS = re.compile(r'^(?:[^"]|"[^"]*")*?[09]')  # in the pattern of a number
_SAME = {
    "truncate": "trunc",
    "to_bin": "bin",
    "char_length": "length",
    "btrim": "trim",
    "regexp_like": MATCHES,
}
_MOMENTS = ("date", "timestamp", "timestamptz")
_TYPE_NAMES = {
    "DECIMAL": "numeric", "DOUBLE": "double precision", "FLOAT": "real", "VARCHAR": "character varying", "BLOB": "bytea",
    "TIMESTAMP": "timestamp without time zone", "TIMESTAMP_MS": "timestamp without time zone", "TIME": "time without time zone",
}  # fmt: skip
_MARK = "flowql_type_"  # a type that DuckDB writes otherwise, until the statement is written: its text in hexadecimal digits follows
N = TypeVar("N", bound=t.Node)


def in_duckdb(sql: str) -> str:
    """The statement for DuckDB. Raises QueryError for statements that DuckDB has no words for."""
    return meant_by(sql)[0]


def meant_by(sql: str, columns: ColumnTypes = NOTHING_KNOWN) -> tuple[str, tuple[str | None, ...]]:
    """As `in_duckdb`, with the names of the columns of the answer (`names_of`). columns: of its relations, where they are known."""
    try:
        found, mistakes = parse_trees(SourceText("", sql))
    except CompileError:
        return sql, ()
    if mistakes or len(found) != 1 or not isinstance(found[0], QueryStatement):
        return sql, ()
    asked = found[0].query
    typed = by_types(with_common_types(with_names(asked), columns.relations), columns)
    made, _ = _named_once(with_words_as_names(named_values(_meant(of_arrays(standard_json.of_columns(typed))))))
    if made == asked:
        return sql, names_of(asked)
    written = re.sub(f"{_MARK}([0-9a-f]+)", lambda m: bytes.fromhex(m[1]).decode(), query_sql(made))
    return in_quotes(written), names_of(asked)


def misread(sql: str) -> QueryError | None:
    """What the grammar says of a statement that it cannot read; None if it can."""
    try:
        _, mistakes = parse_trees(SourceText("", sql))
    except CompileError as error:
        mistakes = [*error.diagnostics]
    if not mistakes:
        return None
    return QueryError(mistakes[0].title, code=INVALID, help=mistakes[0].help, span=mistakes[0].span)


def _meant(node: N) -> N:
    """A tree with every node as it is meant, innermost first."""
    of_uuid = _uuid(node)
    if of_uuid is not None:
        return cast(N, of_uuid)
    made = t.with_children(node, _meant)
    rule = _RULES.get(type(made))
    return rule(made) if rule is not None else made


def _named_once(node: N) -> tuple[N, bool]:
    """A tree whose macros are planned once where they are nested; whether there are any in it."""
    found = False

    def child(node: t.Node) -> t.Node:
        nonlocal found
        made, inside = _named_once(node)
        found = found or inside
        return made

    made = t.with_children(node, child)
    if not (isinstance(made, t.Call) and made.name[-1] in REPEATING):
        return made, found
    return (replace(made, name=(f"{made.name[-1]}{ONCE}",)) if found else made), True


def _text(value: str) -> t.Constant:
    return t.Constant("string", value)


def _refuse(what: str, help_: str) -> QueryError:
    return QueryError(f"an interactive query cannot have {what}", code=INVALID, help=help_)


def _rows_equal(left: t.Row, right: t.Expr) -> t.Expr:
    """In three-valued logic, value by value; DuckDB takes NULL for a value here."""
    if not isinstance(right, t.Row) or len(left.items) != len(right.items):
        raise QueryError("rows of different length are compared", code=INVALID, help="compare as many values")
    pairs = [t.Binary("=", *pair) for pair in zip(left.items, right.items, strict=True)]
    return t.Logical("and", tuple(pairs)) if len(pairs) > 1 else pairs[0]


def _rows_ordered(node: t.Binary, left: t.Row) -> t.Expr:
    """`a < c OR (a = c AND b < d)`, in three-valued logic."""
    if not isinstance(node.right, t.Row) or len(left.items) != len(node.right.items):
        raise QueryError("rows of different length are compared", code=INVALID, help="compare as many values")
    pairs = list(zip(left.items, node.right.items, strict=True))
    made: t.Expr = t.Binary(node.op, *pairs[-1])
    for pair in reversed(pairs[:-1]):
        made = t.Logical("or", (t.Binary(node.op[0], *pair), t.Logical("and", (t.Binary("=", *pair), made))))
    return made


def _in_list(node: t.InList) -> t.Expr:
    if not isinstance(node.operand, t.Row):
        return standard_json.in_list(node)
    tests = tuple(_rows_equal(node.operand, item) for item in node.items)
    made = t.Logical("or", tests) if len(tests) > 1 else tests[0]
    return t.Not(made) if node.negated else made


def _binary(node: t.Binary) -> t.Expr:
    if isinstance(node.left, t.Row):
        if node.op in ("<", "<=", ">", ">="):
            return _rows_ordered(node, node.left)
        if node.op not in ("=", "<>"):
            raise _refuse(f"the operator {node.op} of rows", "compare the values one by one")
        equal = _rows_equal(node.left, node.right)
        return equal if node.op == "=" else t.Not(equal)
    made_json = standard_json.of_operator(node)
    if made_json is not None:
        return made_json
    if node.op in ("@>", "<@"):
        return standard_arrays.holds(node)
    if node.op == "#":
        return _call("xor", node.left, node.right)
    if node.op not in _MATCHES:
        return node
    made = _call(MATCHES, node.left, node.right, *([_text("i")] if node.op.endswith("*") else []))
    return t.Not(made) if node.op.startswith("!") else made


def _as_compiled(name: str, *counts: int) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    """A function of patterns that DuckDB has as well, in another syntax. counts: of its arguments."""
    return lambda args: _call(name, *args) if len(args) in counts else None


def _like(node: t.Like) -> t.Expr:
    if node.kind != "similar":
        plain = isinstance(node.pattern, t.Constant) and "\\" not in node.pattern.value
        return node if plain or node.escape is not None else replace(node, escape=_text("\\"))
    made = _call(SIMILAR, node.operand, node.pattern, *([node.escape] if node.escape is not None else []))
    return t.Not(made) if node.negated else made


def _between(node: t.Between) -> t.Expr:
    if not node.symmetric:
        return node
    one = t.Between(node.operand, node.low, node.high, node.negated)
    other = t.Between(node.operand, node.high, node.low, node.negated)
    return t.Logical("and" if node.negated else "or", (one, other))


def _extract(node: t.Extract) -> t.Expr:
    """A DECIMAL, with all its places."""
    made: t.Expr = replace(node, part=part_name(node.part))
    if part_name(node.part) in ("SECOND", "MILLISECONDS"):
        made = _of_micros(node.source, 6 if part_name(node.part) == "SECOND" else 3)
    to = part_type(node.part)
    return t.Cast(made, t.TypeName("decimal", (to.precision, to.scale)))


def _of_micros(source: t.Expr, places: int) -> t.Expr:
    micros = t.Cast(t.Extract("MICROSECONDS", source), t.TypeName("decimal", (14, 0)))
    return t.Binary("*", micros, t.Constant("number", f"0.{'1'.rjust(places, '0')}"))


def _cast(node: t.Cast) -> t.Expr:
    constant = node.operand if isinstance(node.operand, t.Constant) and node.operand.kind == "string" else None
    if node.type.name == "jsonb":
        return standard_json.from_text(node.operand)
    if node.type.name == "bytea" and constant is not None:
        try:
            return _call("unhex", _text(bytes_of_text(constant.value).hex()))
        except ValueError as error:
            raise QueryError(str(error), code=INVALID) from error
    if node.type.name == "char" and node.type.parameters:
        raise _refuse("a CAST to CHAR(n), which adds blanks", "write  VARCHAR(n)")
    if constant is not None:
        _check_constant(constant.value, node.type.name)
        if node.type.name == "interval":
            return _interval(t.Interval(constant.value))
    if node.type.name == "array" and constant is not None:
        return standard_arrays.from_text(constant.value, node)
    if node.type.name in standard_times.ROUNDED and node.type.parameters:
        return standard_times.rounded(_plain_cast(replace(node, type=standard_times.plain(node.type))), node.type)
    if node.type.name == "timestamptz":
        return _plain_cast(node)
    if node.type.name not in ("varchar", "text", "string") or node.safe:
        return node
    made = t.Cast(node.operand, t.TypeName("varchar")) if _as_it_is(node.operand) else _call(TEXT, node.operand)
    return _call("left", made, _number(node.type.parameters[0])) if node.type.parameters else made


def _plain_cast(node: t.Cast) -> t.Expr:
    """A CAST to a moment; zones in texts are PostgreSQL's."""
    if node.type.name != "timestamptz":
        return node
    made = standard_times.as_moment(node.operand)
    return _call("try", made) if node.safe else made


def _as_it_is(node: t.Expr) -> bool:
    """Whether DuckDB is to write its text: of a constant, and of what it would compute several times."""
    return isinstance(node, t.Constant) or any(isinstance(n, t.Query) for n in t.walk(node))


def _is_bytes(node: t.Expr) -> bool:
    """Whether it can be seen that an expression is of bytes."""
    return (isinstance(node, t.Call) and node.name == ("unhex",)) or (
        isinstance(node, t.Cast) and node.type.name == "bytea"
    )


def _type(node: t.TypeName) -> t.TypeName:
    """As columns of such a type are kept: NUMERIC alone has 18 places, REAL is DOUBLE."""
    if node.name == "uuid":
        return replace(node, name="varchar")
    if node.name in _NUMERIC and not node.parameters:
        return replace(node, parameters=(38, 18))
    if node.name in ("real", "float4"):
        return replace(node, name="double")
    if node.parameters == (6,):  # of a moment, which DuckDB has
        node = standard_times.plain(node)
    if node.name in ("struct", "map") and (node.fields or node.args):
        return t.TypeName(_MARK + _written(node).encode().hex())
    return node


def _written(node: t.TypeName) -> str:
    """STRUCT(a INTEGER), MAP(VARCHAR, INTEGER): a type as DuckDB writes it."""
    if node.name.startswith(_MARK):
        return bytes.fromhex(node.name.removeprefix(_MARK)).decode()
    if node.name == "array" and node.args:
        return f"{_written(node.args[0])}[]"
    if node.name in ("struct", "map"):
        inner = [f"{quoted(n)} {_written(of)}" for n, of in node.fields] or list(map(_written, node.args))
        return f"{node.name}({', '.join(inner)})"
    return write_type(node)


def _function(node: t.Call) -> t.Expr:
    if len(node.name) != 1 or node.over is not None:
        return node
    (name,) = node.name
    rule = _CALLS.get(name)
    if rule is not None and (made := rule(node.args)) is not None:
        return made
    if name == "percentile_cont" and node.within_group:
        return _percentile(node)
    if (
        name == "string_agg"
        and len(node.args) == 2
        and isinstance(node.args[1], t.Constant)
        and node.args[1].kind == "null"
    ):
        node = replace(node, args=(node.args[0], _text("")))
    if node.distinct and not node.order_by and name in ("array_agg", "string_agg") and node.args:
        return replace(node, order_by=(t.OrderItem(node.args[0]),))  # different values are in their order
    return replace(node, name=(_SAME[name],)) if name in _SAME else node


def _moment(node: t.SpecialValue) -> t.Expr:
    return _in_ms(node) if node.name in ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP") else node


def _in_ms(moment: t.Expr) -> t.Expr:
    """The present moment as views, tables and INSERT ... VALUES have it."""
    return t.Call(("date_trunc",), (_text("milliseconds"), moment))


def _interval(node: t.Interval) -> t.Expr:
    """In units that DuckDB knows."""
    found = read_interval(node.text, node.units)
    if found is None:
        raise QueryError(f"{node.text!r} is not an interval", code=INVALID, help="INTERVAL '1 day 02:00:00'")
    return t.Interval(f"{found.months} months {found.days} days {found.micros} microseconds")


def _typed_text(node: t.TypedText) -> t.Expr:
    _check_constant(node.text, node.type.name)
    if node.type.name in ("b", "x"):
        raise _refuse("a bit string", "write a number, or bytes:  '\\x1f'::bytea")
    if node.type.name == "jsonb":
        return standard_json.from_text(_text(node.text))
    if node.type.name in standard_times.ROUNDED and node.type.parameters:
        plain = t.Cast(_text(node.text), standard_times.plain(node.type))
        return standard_times.rounded(_plain_cast(plain), node.type)
    if node.type.name == "timestamptz":
        return standard_times.as_moment(_text(node.text))
    return _interval(t.Interval(node.text)) if node.type.name == "interval" else node


def _uuid(node: t.Node) -> t.Expr | None:
    """A constant of type UUID as a column has it; None for other nodes."""
    text = node.text if isinstance(node, t.TypedText) else None
    if isinstance(node, t.Cast) and _is_text(node.operand) and isinstance(node.operand, t.Constant):
        text = node.operand.value
    if text is None or not isinstance(node, t.Cast | t.TypedText) or node.type.name != "uuid":
        return None
    try:
        return _text(uuid_text(text))
    except ValueError as error:
        raise QueryError(str(error), code=INVALID) from error


def _check_constant(text: str, type_name: str) -> None:
    if type_name == "time" and text.strip().startswith("24"):
        raise QueryError(f"date/time field value out of range: {text!r}", code=INVALID)
    if type_name in _MOMENTS and text.strip().lower().lstrip("+-") in ("infinity", "inf"):
        raise QueryError(f"{text!r} is no {type_name}: infinite ones are not supported", code=INVALID)


def _percentile(node: t.Call) -> t.Call:
    """A DOUBLE: DuckDB's is of the type of its values, to whose digits it is cut."""
    return replace(
        node, within_group=tuple(replace(o, expr=t.Cast(o.expr, t.TypeName("double"))) for o in node.within_group)
    )


def _part_of(args: Sequence[t.Expr]) -> t.Expr | None:
    """Without a delimiter the text is its first and last part."""
    if len(args) != 3 or not isinstance(args[1], t.Constant) or args[1].value or args[1].kind != "string":
        return None
    whole = t.InList(args[2], (_number(1), t.Unary("-", _number(1))))
    return t.Case(None, ((whole, args[0]),), _call("left", args[0], _number(0)))


def _all_matches(_args: Sequence[t.Expr]) -> t.Expr | None:
    raise _refuse(
        "REGEXP_MATCHES", "REGEXP_LIKE(text, pattern) tells whether it matches, REGEXP_MATCH gives its groups"
    )


def _not_nan(name: str) -> Callable[[Sequence[t.Expr]], t.Expr]:
    """Where DuckDB divides zero by zero there is no value."""
    nan = t.Cast(_text("NaN"), t.TypeName("double"))
    return lambda args: _call("nullif", t.Call((name,), tuple(args)), nan)


def _substring(args: Sequence[t.Expr]) -> t.Expr | None:
    """Places before the first one count, and hold nothing."""
    if len(args) not in (2, 3) or (_constant(args[1]) or 0) > 0:
        return None
    if isinstance(args[1], t.Constant) and args[1].kind == "string":
        return _call(PART, *args) if len(args) == 2 else None
    first: t.Expr = _call("greatest", args[1], _number(1))
    if len(args) == 2:
        return _unless_null(_call("substring", args[0], first), args[1])
    end = t.Binary("+", args[1], args[2])
    count = _call("greatest", t.Binary("-", end, first), _number(0))
    return _unless_null(_call("substring", args[0], first, count), end)


def _unless_null(made: t.Expr, of: t.Expr) -> t.Expr:
    """GREATEST passes over NULL, so it is asked for before."""
    if not any(isinstance(n, t.ColumnRef | t.Call) for n in t.walk(of)):
        return made
    return t.Case(None, ((t.IsTest(of, "null"), t.Constant("null", "null")),), made)


def _overlay(args: Sequence[t.Expr]) -> t.Expr | None:
    if len(args) not in (3, 4):
        return None
    text, part, start = args[:3]
    count = args[3] if len(args) == 4 else _call("length", part)
    before = _call("substring", text, _number(1), t.Binary("-", start, _number(1)))
    after = _call("substring", text, t.Binary("+", start, count))
    return t.Binary("||", t.Binary("||", before, part), after)


def _to_char(args: Sequence[t.Expr]) -> t.Expr | None:
    if len(args) != 2:
        return None
    try:
        if isinstance(args[1], t.Constant) and _DIGITS.search(args[1].value):
            return _call(ANY_CHAR, *args)
        return _call("strftime", args[0], _strftime(args[1]))
    except QueryError:  # of numbers, say
        return _call(ANY_CHAR, *args)


def _strftime(pattern: t.Expr) -> t.Expr:
    """A constant pattern of TO_CHAR as one of strftime. Raises QueryError where it has none."""
    if not isinstance(pattern, t.Constant) or pattern.kind != "string":
        raise _refuse("TO_CHAR without a constant pattern", "write the pattern as a text")
    out = []
    try:
        parts = parts_of(pattern.value)
    except ValueError as error:
        raise QueryError(str(error), code=INVALID) from error
    for part in parts:
        known = _STRFTIME.get(part.field if part.name in NAMES else part.name, "")
        if part.field and (not known or part.ordinal or not part.fill):
            raise _refuse(f"{part.field} in a pattern", "a view takes all patterns")
        out.append(known or part.text.replace("%", "%%"))
    return _text("".join(out))


def _read(by: str) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    """TO_DATE and TO_TIMESTAMP of a text."""
    return lambda args: _call(by, *args) if len(args) == 2 else None


def _trunc(args: Sequence[t.Expr]) -> t.Expr | None:
    unit = part_name(args[0].value) if args and isinstance(args[0], t.Constant) else ""
    if unit in ("CENTURY", "MILLENNIUM"):
        raise _refuse(f"DATE_TRUNC to a {unit.lower()}", "a view knows it")
    return _call(standard_times.TRUNCATED_IN, *args) if len(args) == 3 else None


def _date_part(args: Sequence[t.Expr]) -> t.Expr | None:
    """A DOUBLE, with all its places."""
    if len(args) != 2 or not isinstance(args[0], t.Constant):
        return None
    return t.Cast(_extract(t.Extract(args[0].value.upper(), args[1])), t.TypeName("double"))


def _padded(name: str) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    return lambda args: _call(name, *args, _text(" ")) if len(args) == 2 else None


def _encode(args: Sequence[t.Expr]) -> t.Expr | None:
    return _by_format(args, {"hex": lambda x: _call("lower", _call("hex", x)), "base64": lambda x: _call("to_base64", x)})  # fmt: skip


def _decode(args: Sequence[t.Expr]) -> t.Expr | None:
    return _by_format(args, {"hex": lambda x: _call("unhex", x), "base64": lambda x: _call("from_base64", x)})


def _by_format(args: Sequence[t.Expr], known: dict[str, Callable[[t.Expr], t.Expr]]) -> t.Expr | None:
    """ENCODE and DECODE; DuckDB's own take one argument."""
    if len(args) != 2:
        return None
    name = args[1].value.lower() if isinstance(args[1], t.Constant) else ""
    if name not in known:
        raise _refuse("this format of ENCODE or DECODE", f"write one of {', '.join(known)}")
    return known[name](args[0])


def _hashed(name: str) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    return lambda args: _call("unhex", _call(name, *args))


def _octets(args: Sequence[t.Expr]) -> t.Expr | None:
    return None if any(map(_is_bytes, args)) else _call("strlen", *args)


def _type_name(args: Sequence[t.Expr]) -> t.Expr | None:
    """PostgreSQL's name of a type."""
    found = _call("typeof", *args)
    head = _call("regexp_replace", found, _text("[(].*"), _text(""))
    names = tuple((_text(duckdb), _text(name)) for duckdb, name in _TYPE_NAMES.items())
    return t.Case(head, names, _call("lower", found))


def _format(args: Sequence[t.Expr]) -> t.Expr | None:
    """DuckDB's takes other signs."""
    if not args:
        return None
    shown = t.ArrayItems(tuple(_call(SHOWN, a) for a in args[1:]))
    return _call(FORMATTED, args[0], t.Cast(shown, t.TypeName("array", args=(t.TypeName("varchar"),))))


def _concat(name: str, first: int) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    """Truth values are letters in it. first: of the arguments whose texts are joined."""
    return lambda args: _call(name, *args[:first], *(a if _is_text(a) else _call(SHOWN, a) for a in args[first:]))


def _is_text(node: t.Expr) -> bool:
    return isinstance(node, t.Constant) and node.kind == "string"


_CALLS: dict[str, Callable[[Sequence[t.Expr]], t.Expr | None]] = {
    "now": lambda _args: _in_ms(t.Call(("now",))),
    "transaction_timestamp": lambda _args: _in_ms(t.Call(("now",))),
    "substring": _substring,
    "substr": _substring,
    "overlay": _overlay,
    "to_char": _to_char,
    "to_date": _read(READ_DATE),
    "to_timestamp": _read(READ_MOMENT),
    "timezone": lambda args: standard_times.in_zone(args) if len(args) == 2 else None,
    "make_timestamptz": lambda args: _call(standard_times.MADE_IN_ZONE, *args) if len(args) == 7 else None,
    "to_hex": lambda args: _call("lower", t.Call(("to_hex",), tuple(args))),
    "date_trunc": _trunc,
    "date_part": _date_part,
    "lpad": _padded("lpad"),
    "rpad": _padded("rpad"),
    "encode": _encode,
    "decode": _decode,
    "sha256": _hashed("sha256"),
    "octet_length": _octets,
    "bit_length": lambda args: t.Binary("*", _octets(args) or _call("octet_length", *args), _number(8)),
    "pg_typeof": _type_name,
    "format": _format,
    **standard_json.CALLS,
    "regexp_replace": _as_compiled(REPLACED, 3, 4),
    "regexp_extract": _as_compiled(EXTRACTED, 2, 3),
    "regexp_extract_all": _as_compiled(EXTRACTED_ALL, 3),
    "regexp_split_to_array": _as_compiled(SPLIT, 2, 3),
    "regexp_matches": _all_matches,
    "split_part": _part_of,
    "concat": _concat("concat", 0),
    "concat_ws": _concat("concat_ws", 1),
    "approx_count_distinct": lambda args: t.Call(("count",), tuple(args), distinct=True),
    **{name: _not_nan(name) for name in ("corr", "regr_slope", "regr_intercept", "regr_r2")},
}


def _collate(node: t.Collate) -> t.Expr:
    if node.name[-1] in BY_CODE_POINT:
        return node.operand
    raise _refuse(f"COLLATE {'.'.join(node.name)}", "texts are compared by their code points: leave it out")


_RULES: dict[type, Callable[[Any], Any]] = {
    t.Binary: _binary,
    t.Like: _like,
    t.Between: _between,
    t.InList: _in_list,
    t.Extract: _extract,
    t.AtTimeZone: standard_times.at_zone,
    t.Cast: _cast,
    t.Interval: _interval,
    t.SpecialValue: _moment,
    t.TypedText: _typed_text,
    t.TypeName: _type,
    t.Call: _function,
    t.Collate: _collate,
    **standard_relations.RULES,
    **standard_arrays.RULES,
    **standard_json.RULES,
}
