"""The kind of value of an expression in another dialect, as far as it is known from columns, literals and casts.

Division, rounding and casts mean other things for integers than for doubles. Where the kind is unknown (""), such a construct is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from flowql.compiler.dialect.foreign.untranslated import Node

Columns = Callable[[str], Mapping[str, str] | None]
Relation = Mapping[str, str]  # column -> kind, in order
NUMBERS = ("int", "decimal", "double")

_OF_TYPE = {
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT"), "int"), **dict.fromkeys(("DOUBLE", "FLOAT"), "double"),
    **dict.fromkeys(("DECIMAL", "BIGDECIMAL"), "decimal"), **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "NCHAR", "NVARCHAR", "STRING"), "text"),
    "DATE": "date", "TIME": "time", **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME", "TIMESTAMP_MS"), "timestamp"),
    "BOOLEAN": "bool", **dict.fromkeys(("JSON", "JSONB", "VARIANT"), "json"), **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), "bytes"),
    **dict.fromkeys(("ARRAY", "LIST"), "array"), "MAP": "map", "STRUCT": "struct", "INTERVAL": "interval",
}  # fmt: skip
_BY_CLASS: dict[type, str] = {
    **dict.fromkeys((exp.Count, exp.CountIf, exp.ApproxDistinct, exp.Length, exp.StrPosition, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile,
        exp.ArraySize, exp.DateDiff, exp.TimestampDiff, exp.Extract, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Hour, exp.Minute, exp.IntDiv), "int"),
    **dict.fromkeys((exp.Upper, exp.Lower, exp.Trim, exp.Substring, exp.Concat, exp.DPipe, exp.GroupConcat, exp.Replace, exp.Left, exp.Right, exp.TimeToStr,
        exp.Initcap, exp.Reverse, exp.Repeat, exp.SplitPart, exp.JSONExtractScalar), "text"),
    **dict.fromkeys((exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike,
        exp.Exists, exp.Boolean, exp.LogicalOr, exp.LogicalAnd, exp.NullSafeEQ), "bool"),
    **dict.fromkeys((exp.Sqrt, exp.Exp, exp.Ln, exp.Pow, exp.SafeDivide, exp.StddevSamp, exp.StddevPop, exp.Stddev, exp.Variance), "double"),
    **dict.fromkeys((exp.CurrentTimestamp, exp.UnixToTime), "timestamp"), exp.CurrentDate: "date", exp.TsOrDsToDate: "date", exp.Date: "date",
    exp.Interval: "interval", exp.Array: "array", exp.JSONExtract: "json", exp.ArrayAgg: "array",
}  # fmt: skip
_AS_ARGUMENT = (exp.Min, exp.Max, exp.Abs, exp.Neg, exp.Paren, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.AnyValue, exp.Window,
    exp.Filter, exp.Alias, exp.Nullif, exp.IgnoreNulls, exp.Ceil, exp.Floor, exp.Round, exp.Distinct)  # fmt: skip


def kind_of_type(name: str, scale: int | None = None, dialect: str = "") -> str:
    """The kind of values of a type. In Snowflake every number without digits behind the point is an integer."""
    kind = _OF_TYPE.get(name.upper(), "")
    return "int" if kind == "decimal" and dialect == "snowflake" and scale == 0 else kind


class Kinds:
    """Kinds of the expressions of one statement, on the tree as it was read. columns: of the relations that exist, by name."""

    def __init__(self, dialect: str, columns: Columns) -> None:
        self._dialect, self._columns = dialect, columns

    def of(self, node: Node) -> str:
        """The kind of an expression; "" if it is unknown."""
        if type(node) in _BY_CLASS:
            return _BY_CLASS[type(node)]
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else self._number(str(node.this))
        if isinstance(node, exp.Cast):
            return self.of_type(node.to)
        if isinstance(node, _AS_ARGUMENT):
            return self.of(node.this if not isinstance(node, exp.Distinct) else node.expressions[0])
        if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
            return self._same([node.this, *node.expressions])
        if isinstance(node, exp.Case):
            return self._same([*(i.args["true"] for i in node.args["ifs"]), *self._given(node, "default")])
        if isinstance(node, exp.If):
            return self._same([*self._given(node, "true"), *self._given(node, "false")])
        if isinstance(node, exp.Sum | exp.Avg):
            return self._total(node)
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
            return self._arithmetic(node)
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc | exp.DateAdd | exp.DateSub):
            return self.of(node.this)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
            kinds = list(self._selected(node.this).values())
            return kinds[0] if len(kinds) == 1 else ""
        return ""

    def of_type(self, type_: Node) -> str:
        """The kind of values of a sqlglot DataType."""
        params = [int(p.name) for p in type_.expressions if isinstance(p, exp.DataTypeParam) and p.name.isdigit()]
        scale = params[1] if len(params) > 1 else 0
        name = type_.this.name if isinstance(type_.this, exp.DType) else str(type_.this)
        return kind_of_type(name, scale, self._dialect)

    def relation(self, node: Node) -> Relation | None:
        """The columns of a relation in FROM, in order; None if they are unknown."""
        if isinstance(node, exp.Table):
            return self._table(node)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
            return self._selected(node.this)
        return None

    def is_struct(self, node: Node) -> bool:
        """Whether the first part of `a.b` is a column of type STRUCT, and no relation."""
        select = node.find_ancestor(exp.Select)
        if select is None or any(s.alias_or_name.lower() == node.table.lower() for s in sources(select)):
            return False
        return self._column(exp.Column(this=node.args["table"].copy()), select) == "struct"

    def _table(self, node: Node) -> Relation | None:
        name = node.name.lower()
        above = node
        while above is not None:
            for cte in above.args["with_"].expressions if above.args.get("with_") else ():
                if cte.alias.lower() == name and isinstance(cte.this, exp.Select):
                    return None if node.find_ancestor(exp.CTE) is cte else self._selected(cte.this)
            above = above.parent
        return self._columns(node.name if self._dialect == "flink" else name)

    def _selected(self, select: Node) -> Relation:
        return {e.alias_or_name: self.of(e) for e in select.expressions}

    def _column(self, node: Node, within: Node | None = None) -> str:
        select = within if within is not None else node.find_ancestor(exp.Select)
        while select is not None:
            found = {
                kind
                for source in sources(select)
                if not node.table or source.alias_or_name.lower() == node.table.lower()
                for name, kind in (self.relation(source) or {}).items()
                if name.lower() == node.name.lower()
            }
            if found:
                return found.pop() if len(found) == 1 else ""
            select = select.find_ancestor(exp.Select)
        return ""

    def _number(self, text: str) -> str:
        if "e" in text.lower():
            return "double"
        return "int" if "." not in text else "double" if self._dialect == "bigquery" else "decimal"

    def _same(self, nodes: list[Node]) -> str:
        found = {self.of(n) for n in nodes if not isinstance(n, exp.Null)}
        if found <= set(NUMBERS) and found:
            return max(found, key=NUMBERS.index)
        return found.pop() if len(found) == 1 else ""

    def _given(self, node: Node, name: str) -> list[Node]:
        return [node.args[name]] if node.args.get(name) is not None else []

    def _total(self, node: Node) -> str:
        kind = self.of(node.this)
        if isinstance(node, exp.Sum) or kind in ("decimal", "double"):
            return kind
        own = {
            "flink": "int",
            "snowflake": "decimal",
            **dict.fromkeys(("postgres", "risingwave", "materialize"), "decimal"),
        }
        return own.get(self._dialect, "double") if kind == "int" else ""

    def _arithmetic(self, node: Node) -> str:
        left, right = self.of(node.this), self.of(node.expression)
        if left in NUMBERS and right in NUMBERS:
            widest = max(left, right, key=NUMBERS.index)
            if not isinstance(node, exp.Div) or widest == "double":
                return widest
            return {
                "snowflake": "decimal",
                "bigquery": "double",
                "duckdb": "double",
                "spark": "double" if widest == "int" else widest,
            }.get(self._dialect, widest)
        if {left, right} == {"timestamp", "interval"}:
            return "timestamp"
        return ""


def sources(select: Node) -> list[Node]:
    """The relations in FROM of a SELECT and in its joins."""
    first = [select.args["from_"].this] if select.args.get("from_") else []
    return [*first, *(j.this for j in select.args.get("joins") or ()), *(select.args.get("laterals") or ())]
