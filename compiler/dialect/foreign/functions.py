"""Rules for aggregates and for functions of texts, arrays and JSON."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.building import DOUBLE, call, cast
from flowql.compiler.dialect.foreign.json_values import json_value
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

# Functions that standard SQL has and sqlglot has no class for, which mean the same everywhere.
_SAME_NAMES = ("NTH_VALUE", "CARDINALITY")
_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_STATISTICS = {
    exp.Stddev: "STDDEV_SAMP", exp.StddevSamp: "STDDEV_SAMP", exp.StddevPop: "STDDEV_POP", exp.Variance: "VAR_SAMP", exp.VariancePop: "VAR_POP",
    exp.Corr: "CORR", exp.CovarPop: "COVAR_POP", exp.CovarSamp: "COVAR_SAMP",
}  # fmt: skip
_OF_DOUBLES = {exp.Sqrt: "SQRT", exp.Exp: "EXP", exp.Ln: "LN", exp.Pow: "POWER"}
_PLACES = "places count from 1 here, and places below 1 mean something else in each system"


def named(tr: Translation, node: Node) -> Node:
    """A function that sqlglot does not know."""
    name = str(node.this)
    if tr.as_postgres or name.upper() in _SAME_NAMES or (tr.dialect == "flink" and name.upper() in _WINDOWS):
        return call(name, *tr.argument(node.expressions))
    return refuse(
        node,
        f"the function {name.upper()}",
        f"no translation from {tr.dialect} is known",
        "write a function of docs/reference/functions.md",
    )


def counted_if(tr: Translation, node: Node) -> Node:
    """COUNT_IF, which is NULL in DuckDB where no condition is known."""
    if tr.dialect == "duckdb":
        yes = exp.If(this=tr(node.this), true=exp.Literal.number(1))
        no = exp.If(this=exp.Not(this=exp.Paren(this=tr(node.this))), true=exp.Literal.number(0))
        return exp.Sum(this=exp.Case(ifs=[yes, no]))
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=tr(node.this)))


def distinct_count(tr: Translation, node: Node) -> Node:
    return call("APPROX_COUNT_DISTINCT", tr(node.this))


def count(tr: Translation, node: Node) -> Node:
    distinct = isinstance(node.this, exp.Distinct) and len(node.this.expressions) > 1
    if node.expressions or (distinct and not tr.as_postgres):
        refuse(
            node,
            "COUNT of several values",
            f"no translation from {tr.dialect} is known",
            "write COUNT(DISTINCT (a, b)), or COUNT(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL)",
        )
    return exp.Count(this=tr(node.this) if node.this is not None else exp.Star())


def statistics(tr: Translation, node: Node) -> Node:
    values = [node.this, *([node.args["expression"]] if node.args.get("expression") is not None else [])]
    return call(_STATISTICS[type(node)], *(tr(v) if tr.as_postgres else cast(tr(v), DOUBLE) for v in values))


def of_double(tr: Translation, node: Node) -> Node:
    values = [node.this, *([node.args["expression"]] if node.args.get("expression") is not None else [])]
    return call(_OF_DOUBLES[type(node)], *(cast(tr(v), DOUBLE) for v in values))


def floor(tr: Translation, node: Node) -> Node:
    if node.args.get("decimals") or node.args.get("to"):
        refuse(
            node,
            f"{tr.name_of(node)} with digits",
            f"no translation from {tr.dialect} is known",
            "write FLOOR(x * 100) / 100",
        )
    return call("CEIL" if isinstance(node, exp.Ceil) else "FLOOR", tr(node.this))


def listed(tr: Translation, node: Node) -> Node:
    """STRING_AGG, LISTAGG, GROUP_CONCAT. Without a row Snowflake's is an empty text."""
    separator = node.args.get("separator")
    if node.args.get("on_overflow"):
        refuse(node, "ON OVERFLOW", "strings of FlowQL have no maximum length", "leave it out")
    inner = node.this
    order = inner.args["expressions"] if isinstance(inner, exp.Order) else []
    value = tr(inner.this if isinstance(inner, exp.Order) else inner)
    given = (
        tr(separator)
        if separator is not None
        else exp.Literal.string("" if tr.dialect in ("snowflake", "trino") else ",")
    )
    made = exp.Order(this=value, expressions=tr.argument(order)) if order else value
    grouped = exp.GroupConcat(this=made, separator=given)
    return exp.Coalesce(this=grouped, expressions=[exp.Literal.string("")]) if tr.dialect == "snowflake" else grouped


def array_agg(tr: Translation, node: Node) -> Node:
    if (node.args.get("nulls_excluded") and not tr.as_postgres) or tr.dialect in ("snowflake", "bigquery", "spark"):
        refuse(
            node,
            tr.name_of(node),
            f"{tr.dialect} leaves NULLs out, and gives an empty array where nothing is left",
            "write COALESCE(ARRAY_AGG(x) FILTER (WHERE x IS NOT NULL), '{}')",
        )
    return exp.ArrayAgg(this=tr(node.this))


def at_extreme(tr: Translation, node: Node) -> Node:
    """MAX_BY(a, b) and MIN_BY(a, b): the first of the values in the order of b."""
    if tr.dialect not in ("trino", "spark", "snowflake") or node.args.get("count"):
        refuse(node, tr.name_of(node), f"{tr.dialect} leaves some rows out", "write (ARRAY_AGG(a ORDER BY b DESC))[1]")
    by = exp.Ordered(this=tr(node.expression), desc=isinstance(node, exp.ArgMax), nulls_first=False)
    rows = exp.Is(this=tr(node.expression), expression=exp.Not(this=exp.Null()))
    values = exp.ArrayAgg(this=exp.Order(this=tr(node.this), expressions=[by]))
    filtered = exp.Filter(this=values, expression=exp.Where(this=rows))
    return exp.Bracket(this=exp.Paren(this=filtered), expressions=[exp.Literal.number(0)])


def median(tr: Translation, node: Node) -> Node:
    if tr.dialect not in ("duckdb", "spark") or tr.kinds.of(node.this) not in ("int", "double"):
        refuse(
            node,
            "the function MEDIAN",
            f"its type in {tr.dialect} depends on that of its argument",
            "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)",
        )
    order = exp.Order(expressions=[exp.Ordered(this=tr(node.this), nulls_first=False)])
    return exp.WithinGroup(this=call("PERCENTILE_CONT", exp.Literal.number("0.5")), expression=order)


def first_or_last(tr: Translation, node: Node) -> Node:
    """FIRST_VALUE and LAST_VALUE. In Snowflake they see the whole partition unless a frame is given."""
    window = node.parent if not isinstance(node.parent, exp.IgnoreNulls) else node.parent.parent
    if not isinstance(window, exp.Window) and not tr.as_postgres:
        refuse(
            node,
            f"{tr.name_of(node)} without OVER",
            "which row is the first is not determined",
            "write (ARRAY_AGG(x ORDER BY y))[1]",
        )
    return tr.copied(node, ("this", "offset"))


def over(tr: Translation, node: Node) -> Node:
    given = tr.copied(node, ("this", "partition_by", "order", "spec", "alias", "over"))
    made, whole = _inside(given, given.this)
    inner = node.this.this if isinstance(node.this, exp.IgnoreNulls) else node.this
    if (
        tr.dialect == "snowflake"
        and node.args.get("spec") is None
        and isinstance(inner, exp.FirstValue | exp.LastValue | exp.NthValue)
    ):
        made.set(
            "spec",
            exp.WindowSpec(
                kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="UNBOUNDED", end_side="FOLLOWING"
            ),
        )
    return whole


def filtered(tr: Translation, node: Node) -> Node:
    """FILTER (WHERE ...), which belongs to the aggregate alone."""
    given = tr.copied(node, ("this", "expression"))
    return _inside(given, given.this)[1]


def _inside(given: Node, inner: Node) -> tuple[Node, Node]:
    """OVER or FILTER with its aggregate, and the whole value: ROUND(AVG(x), 6) OVER (...) is ROUND(AVG(x) OVER (...), 6)."""
    wrapped = isinstance(inner, exp.Cast | exp.Coalesce) or (isinstance(inner, exp.Anonymous) and inner.name == "ROUND")
    core = inner.find(exp.AggFunc) if wrapped else None
    if core is None:
        return given, given
    given.set("this", core.copy())
    core.replace(given)
    return given, inner


def substring(tr: Translation, node: Node) -> Node:
    start, length = node.args.get("start"), node.args.get("length")
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    if not _at_least(start, 1) or (
        length is not None and not _at_least(length, 0) and not isinstance(length, exp.Column)
    ):
        refuse(node, "SUBSTRING from a place that is not a constant from 1", _PLACES, "write LEFT, RIGHT or SPLIT_PART")
    return call("SUBSTRING", tr(node.this), tr(start), *([tr(length)] if length is not None else []))


def _at_least(node: Node, least: int) -> bool:
    return (
        isinstance(node, exp.Literal)
        and not node.is_string
        and str(node.this).isdigit()
        and int(str(node.this)) >= least
    )


def position(tr: Translation, node: Node) -> Node:
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    if node.args.get("position") or node.args.get("occurrence"):
        refuse(
            node, f"{tr.name_of(node)} from a place", f"no translation from {tr.dialect} is known", "write REGEXP_INSTR"
        )
    return call("STRPOS", tr(node.this), tr(node.args["substr"]))


def replace(tr: Translation, node: Node) -> Node:
    part = node.expression
    if not tr.as_postgres and not (isinstance(part, exp.Literal) and part.this):
        refuse(
            node,
            "REPLACE of a part that is not a constant",
            "an empty part is replaced in some systems",
            "write the part as a constant",
        )
    new = node.args.get("replacement")
    return call("REPLACE", tr(node.this), tr(part), tr(new) if new is not None else exp.Literal.string(""))


def joined_texts(tr: Translation, node: Node) -> Node:
    """CONCAT_WS, which leaves NULLs out, but not in Snowflake and BigQuery."""
    values = node.expressions
    if tr.dialect in ("snowflake", "bigquery") or any(tr.kinds.of(v) != "text" for v in values):
        refuse(
            node,
            "the function CONCAT_WS",
            "NULL makes all NULL in some systems, and values that are not strings are written in different ways",
            "write a || b",
        )
    return call("CONCAT_WS", *tr.argument(values))


def digest(tr: Translation, node: Node) -> Node:
    if tr.kinds.of(node.this) != "text":
        refuse(node, "the function MD5", "only strings have the same bytes in all systems", "cast it to TEXT")
    return call("MD5", tr(node.this))


def side(tr: Translation, node: Node) -> Node:
    if not tr.as_postgres and not _at_least(node.expression, 0):
        refuse(node, tr.name_of(node), "a negative number means something else in each system", "write a constant")
    return call("LEFT" if isinstance(node, exp.Left) else "RIGHT", tr(node.this), tr(node.expression))


def split_part(tr: Translation, node: Node) -> Node:
    if not tr.as_postgres and (
        tr.dialect not in ("snowflake", "duckdb") or not _at_least(node.args.get("part_index"), 1)
    ):
        refuse(node, "the function SPLIT_PART", _PLACES, "write SPLIT_PART(s, d, n) as in PostgreSQL")
    return call("SPLIT_PART", tr(node.this), tr(node.args["delimiter"]), tr(node.args["part_index"]))


def size(tr: Translation, node: Node) -> Node:
    if node.args.get("expression") is not None and not tr.as_postgres:
        refuse(node, tr.name_of(node), f"no translation from {tr.dialect} is known", "write CARDINALITY(a)")
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    return call("CARDINALITY", tr(node.this))


def length(tr: Translation, node: Node) -> Node:
    """The characters of a text; of a list its elements."""
    kind = tr.kinds.of(node.this)
    if not tr.as_postgres and kind not in ("text", "array", "int"):
        refuse(
            node, tr.name_of(node), "strings are counted in characters, but bytes and arrays differ", "cast it to TEXT"
        )
    return call("CARDINALITY" if kind == "array" else "LENGTH", tr(node.this))


def contains(tr: Translation, node: Node) -> Node:
    if tr.dialect not in ("spark", "duckdb", "trino"):
        refuse(node, tr.name_of(node), "NULL is found in some systems", "write x = ANY(a)")
    return call("ARRAY_CONTAINS", tr(node.this), tr(node.expression))


FUNCTIONS: dict[type, Rule] = {
    exp.Anonymous: named, exp.AnonymousAggFunc: named, exp.CountIf: counted_if, exp.Count: count, exp.ApproxDistinct: distinct_count, **dict.fromkeys(_STATISTICS, statistics),
    **dict.fromkeys(_OF_DOUBLES, of_double), exp.Ceil: floor, exp.Floor: floor, exp.GroupConcat: listed, exp.ArrayAgg: array_agg, exp.ArgMax: at_extreme, exp.ArgMin: at_extreme,
    exp.Median: median, exp.FirstValue: first_or_last, exp.LastValue: first_or_last, exp.NthValue: first_or_last, exp.Window: over, exp.Filter: filtered, exp.Substring: substring, exp.StrPosition: position,
    exp.Replace: replace, exp.ConcatWs: joined_texts, exp.MD5: digest, exp.Left: side, exp.Right: side, exp.SplitPart: split_part, exp.ArraySize: size, exp.Length: length, exp.ArrayContains: contains,
    exp.JSONExtract: json_value, exp.JSONExtractScalar: json_value,
}  # fmt: skip
