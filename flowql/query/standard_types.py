"""What a statement means by the types of its columns, which are known when its relations are: arrays and JSONB beside `||`, bytes, sums of BIGINT, halves of doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.relations.expressions import rebuilt
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.functions.sql_text_casts import has_finer_part, names_zone
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import JSONB, MICROSTZ, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType
from flowql.query import standard_json
from flowql.query.standard_arrays import call, constant, number
from flowql.query.standard_times import exact_texts, zoned_texts

_TOTAL = t.TypeName("decimal", (38, 0))
_COUNTS = ("count", "row_number", "rank", "dense_rank", "regr_count")
_GIVES_ARRAY = (
    "array_agg", "string_to_array", "array_append", "array_prepend", "array_cat", "array_remove", "array_replace", "array_positions", "array_fill",
    "array_distinct", "array_sort", "trim_array", "regexp_match", "regexp_split_to_array", "list_concat",
)  # fmt: skip
_GIVES_DOUBLE = (
    "sqrt", "cbrt", "exp", "ln", "log", "log10", "power", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "pi", "degrees", "radians",
    "date_part", "percentile_cont", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "corr", "random",
)  # fmt: skip
_OF_ARGUMENTS = (
    "abs", "floor", "ceil", "ceiling", "trunc", "round", "min", "max", "sum", "avg", "coalesce", "nullif", "greatest", "least", "sign",
)  # fmt: skip
# In statements that are read once more.
_OF_TYPES = ("->", "||", "array_cat", "length", "sum", "round", "order", "<", ">", "between", "[")
_BY_NAME = ("using", "natural")


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """Names of columns. A name that two relations give to columns of different types is of neither.

    relations: the columns of each by its name, of statements that join by the names of columns.
    """

    json: frozenset[str] = frozenset()
    arrays: frozenset[str] = frozenset()
    bytes_: frozenset[str] = frozenset()
    bigint: frozenset[str] = frozenset()
    doubles: frozenset[str] = frozenset()
    moments: frozenset[str] = frozenset()  # in milliseconds, of statements that have times with smaller parts
    zoned: frozenset[str] = frozenset()  # of TIMESTAMPTZ, of statements with texts that name a zone
    totals: frozenset[str] = frozenset()  # columns of sub-queries that are sums of a BIGINT
    relations: Mapping[str, Mapping[str, SqlType]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.moments
            or self.zoned
            or self.relations
            or self.json
            or self.arrays
            or self.bytes_
            or self.bigint
            or self.doubles
        )


NOTHING_KNOWN = ColumnTypes()


def column_types(schemas: Mapping[str, Schema], sql: str) -> ColumnTypes:
    """The columns of relations, by the names of these, where they decide what a statement means."""
    folded = sql.casefold()
    relations: dict[str, dict[str, SqlType]] = {}
    if any(word in folded for word in _BY_NAME):
        relations = {name.casefold(): {f.name: f.type for f in s} for name, s in schemas.items()}
    finer = has_finer_part(sql)
    in_zone = names_zone(sql)
    if not relations and not finer and not in_zone and not any(word in folded for word in _OF_TYPES):
        return ColumnTypes()
    fields = [f for s in schemas.values() for f in s]

    def names(kind: Kind) -> frozenset[str]:
        others = {f.name for f in fields if f.type.kind is not kind}
        return frozenset(f.name for f in fields if f.type.kind is kind) - others

    json = frozenset(f.name for f in fields if f.type == JSONB)
    return ColumnTypes(
        json,
        names(Kind.ARRAY),
        names(Kind.BYTES),
        names(Kind.BIGINT),
        names(Kind.DOUBLE),
        _moments(fields, TIMESTAMP) if finer else frozenset(),
        _moments(fields, TIMESTAMPTZ, MICROSTZ) if in_zone else frozenset(),
        relations=relations,
    )


def _moments(fields: Sequence[Field], *types: SqlType) -> frozenset[str]:
    others = {f.name for f in fields if f.type not in types}
    return frozenset(f.name for f in fields if f.type in types) - others


def by_types(query: t.Query, columns: ColumnTypes) -> t.Query:
    """The query with what only the types of its columns tell."""

    def rule(node: t.Node) -> t.Node | None:
        made = t.with_children(node, lambda child: rebuilt(child, rule))
        if columns.moments:
            made = exact_texts(made, columns.moments)
        if columns.zoned:
            made = zoned_texts(made, columns.zoned)
        if isinstance(made, t.Binary) and made.op == "||":
            return _joined(made, columns)
        if isinstance(made, t.Subscript) and constant(made.index) is None and _is_array(made.base, columns):
            return replace(made, index=call("greatest", made.index, number(0)))  # there is no place below 1
        if isinstance(made, t.OrderItem) and _is_json(made.expr, columns):
            return replace(made, expr=call("jsonb_order", made.expr))
        if isinstance(made, t.Binary) and made.op in ("<", "<=", ">", ">="):
            return _ordered(made, columns)
        if isinstance(made, t.Between) and any(_is_json(n, columns) for n in (made.operand, made.low, made.high)):
            return replace(made, operand=_order(made.operand), low=_order(made.low), high=_order(made.high))
        if isinstance(made, t.Binary) and made.op == "/" and _is_total(made.left, columns):
            return t.Binary("/", t.Cast(made.left, _TOTAL), made.right, span=made.span)
        if isinstance(made, t.Call) and len(made.args) == 1 and made.name == ("length",):
            of_bytes = _is_of(made.args[0], columns.bytes_)
            return call("octet_length", t.Cast(made.args[0], t.TypeName("bytea"))) if of_bytes else made
        if (
            isinstance(made, t.Call)
            and made.name == ("sum",)
            and len(made.args) == 1
            and _is_double(made.args[0], columns)
        ):
            return _finite(made)
        if isinstance(made, t.Call) and made.name == ("round",) and len(made.args) == 1:
            return call("round_even", made.args[0], number(0)) if _is_double(made.args[0], columns) else made
        if isinstance(made, t.Call) and made.name == ("array_cat",) and len(made.args) == 2:
            return _both(*made.args)
        return made

    items = [n for n in t.walk(query) if isinstance(n, t.Item) and n.alias]
    totals = frozenset(i.alias for i in items if i.alias and _is_total(i.expr, columns))
    doubles = frozenset(i.alias for i in items if i.alias and _is_double(i.expr, columns))
    json = frozenset(i.alias for i in items if i.alias and _is_json(i.expr, columns))
    columns = replace(columns, totals=totals, doubles=columns.doubles | doubles, json=columns.json | json)
    found = rule(standard_json.with_arrows(query, columns.json))
    assert isinstance(found, t.Query)
    return found


def _finite(total: t.Call) -> t.Expr:
    """A sum of doubles, which is an error where finite values add up to more than a double holds."""
    infinite = replace(total, name=("bool_or",), args=(call("isinf", total.args[0]),), distinct=False)
    beyond = t.Logical("and", (call("isinf", total), t.Not(infinite)))
    said = call("error", t.Constant("string", "value out of range: overflow"))
    return t.Case(None, ((beyond, said),), total)


def _is_of(node: t.Expr, names: frozenset[str]) -> bool:
    return isinstance(node, t.ColumnRef) and node.parts[-1] in names


def _is_array(node: t.Expr, columns: ColumnTypes) -> bool:
    if isinstance(node, t.Case):
        results = [then for _, then in node.whens] + ([node.otherwise] if node.otherwise is not None else [])
        return any(_is_array(r, columns) for r in results)
    if isinstance(node, t.Cast):
        return node.type.name == "array"
    if isinstance(node, t.Call):
        chosen = node.name == ("coalesce",) and any(_is_array(a, columns) for a in node.args)
        return node.name[-1] in _GIVES_ARRAY or chosen
    if isinstance(node, t.Slice):
        return True
    return isinstance(node, t.ArrayItems) or _is_of(node, columns.arrays)


def _ordered(node: t.Binary, columns: ColumnTypes) -> t.Binary:
    """A comparison of JSONB, of which DuckDB compares the texts."""
    sides = (node.left, node.right)
    if not any(_is_json(n, columns) for n in sides):
        return node
    return replace(node, left=_order(node.left), right=_order(node.right))


def _order(node: t.Expr) -> t.Expr:
    return call("jsonb_order", standard_json.from_text(node) if _is_text(node) else node)


def _is_text(node: t.Expr) -> bool:
    return isinstance(node, t.Constant) and node.kind == "string"


def _joined(node: t.Binary, columns: ColumnTypes) -> t.Expr:
    """JSONB; arrays, and an element beside one, where to DuckDB NULL with an array is NULL."""
    sides = (node.left, node.right)
    if any(_is_json(n, columns) for n in sides):
        return call(
            "jsonb_concat",
            *(standard_json.from_text(n) if _is_text(n) else n for n in sides),
        )
    left, right = (_is_array(n, columns) for n in (node.left, node.right))
    if left and right:
        return _both(node.left, node.right)
    unknown = node.right if left else node.left
    if left == right or isinstance(unknown, t.Query):
        return node
    if isinstance(unknown, t.Constant) and unknown.kind == "null":  # of the type of the other side, and so nothing
        return node.left if left else node.right
    if _is_text(unknown):  # '{1}' is an array
        return node
    return call("list_append", node.left, node.right) if left else call("list_prepend", node.left, node.right)


def _is_json(node: t.Expr, columns: ColumnTypes) -> bool:
    if isinstance(node, t.Cast):
        return node.type.name in ("json", "jsonb")
    if isinstance(node, t.Binary):
        return node.op in ("->", "#>") or (node.op == "-" and _is_json(node.left, columns))
    return standard_json.is_json(node) or _is_of(node, columns.json)


def _is_double(node: t.Expr, columns: ColumnTypes) -> bool:
    match node:
        case t.Constant("number", value):
            return "e" in value.lower()
        case t.Unary(_, operand):
            return _is_double(operand, columns)
        case t.Binary(_, left, right):
            return _is_double(left, columns) or _is_double(right, columns)
        case t.Cast():
            return node.type.name in ("double", "real", "float", "float4", "float8")
        case t.Call():
            arguments = node.name[-1] in _OF_ARGUMENTS and any(_is_double(a, columns) for a in node.args)
            return node.name[-1] in _GIVES_DOUBLE or arguments
    return _is_of(node, columns.doubles)


def _both(left: t.Expr, right: t.Expr) -> t.Expr:
    return t.Case(None, ((t.IsTest(left, "null"), right),), call("list_concat", left, right))


def _is_total(node: t.Expr, columns: ColumnTypes) -> bool:
    """Whether it is a NUMERIC: what is computed of the sum of a BIGINT. DuckDB's sums are whole numbers."""
    if isinstance(node, t.Binary) and node.op in ("+", "-", "*"):
        return _is_total(node.left, columns) or _is_total(node.right, columns)
    if _is_of(node, columns.totals):
        return True
    if not isinstance(node, t.Call) or node.name != ("sum",) or len(node.args) != 1:
        return False
    return _is_bigint(node.args[0], columns)


def _is_bigint(node: t.Expr, columns: ColumnTypes) -> bool:
    if isinstance(node, t.Binary):
        return node.op in ("+", "-", "*", "/", "%") and any(_is_bigint(n, columns) for n in (node.left, node.right))
    if isinstance(node, t.Call):
        return node.name[-1] in _COUNTS
    return (isinstance(node, t.Cast) and node.type.name in ("bigint", "int8")) or _is_of(node, columns.bigint)
