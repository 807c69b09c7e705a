"""Random trees of standard SQL, from seeds: every kind of node of the tree, in every place where it may stand.

plain: only what sqlglot can read in its dialect of PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from flowql.compiler.dialect.ast import (
    CastTo,
    Drop,
    Func,
    LambdaFn,
    Lit,
    Name,
    Star,
    Statement,
    TypeRef,
    WindowClause,
    WithinClause,
)
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.statement_tree import CreateView, QueryStatement

NAMES = [
    "a",
    "b",
    "c",
    "total",
    "Mixed",
    "with space",
    'quo"te',
    "select",
    "key",
    "ROWTIME",
    "rowtime",
    "date",
    "window",
    "äö",
    "interval",
]
TEXTS = ["", "x", "it's", "2024-05-01", "a;b", "--", "%", 'd"q', "ß\n"]
NUMBERS = ["0", "1", "42", "2147483648", "1.5", ".5", "1e3", "12.50E-2"]


def f(name: str, *args: t.Expr) -> Func:
    """A call or an operator."""
    return Func(name, args)


class TreeMaker:
    """Makes trees of a bounded depth."""

    def __init__(self, rng: random.Random, *, plain: bool = False) -> None:
        self._rng, self._plain = rng, plain
        self._left = 0

    # --- choices ---

    def _one(self, *options: Any) -> Any:
        return self._rng.choice(options)

    def _maybe(self, make: Callable[[], Any], share: float = 0.3) -> Any:
        return make() if self._rng.random() < share else None

    def _flag(self, share: float = 0.3) -> bool:
        return self._rng.random() < share

    def _many(self, make: Callable[[], Any], low: int = 1, high: int = 3) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self._rng.randint(low, high)))

    def name(self) -> str:
        return str(self._one(*NAMES[:8]) if self._plain else self._one(*NAMES))

    def _names(self) -> tuple[str, ...]:
        return tuple(self._rng.sample(NAMES[:6], self._rng.randint(1, 3)))

    # --- values ---

    def expr(self, depth: int) -> t.Expr:
        if depth <= 0:
            return self._leaf()
        options: list[Callable[[int], t.Expr]] = [
            lambda d: self._leaf(),
            self._binary,
            self._binary,
            self._logical,
            lambda d: f("not", self.expr(d)),
            lambda d: f(self._one("neg", "plus"), self.expr(d)),
            lambda d: f(self._one("is_", "is_not_") + self._one("null", "true", "false"), self.expr(d)),
            lambda d: f(self._one("is_distinct", "is_not_distinct"), self.expr(d), self.expr(d)),
            lambda d: f(self._not("between"), self.expr(d), self.expr(d), self.expr(d)),
            lambda d: f(self._not(self._one("like", "ilike")), self.expr(d), self.expr(d)),
            lambda d: f(self._not("in"), self.expr(d), *self._many(lambda: self._no_query(d))),
            lambda d: t.InQuery(self.expr(d), self.query(d), self._flag()),
            lambda d: t.Exists(self.query(d)),
            lambda d: t.ScalarQuery(self.query(d)),
            lambda d: t.Quantified(self._one("=", "<"), self.expr(d), self._one("any", "all"), self.query(d)),
            lambda d: CastTo(self.expr(d), self.type(1)),
            self._case,
            lambda d: f(
                "EXTRACT", Lit("string", self._one("YEAR", "HOUR")), self._leaf() if self._plain else self.expr(d)
            ),
            lambda d: f("array", *self._many(lambda: self.expr(d))),
            lambda d: f("ROW", *self._many(lambda: self.expr(d), 2)),
            self.call,
            self.call,
        ]
        if not self._plain:
            options += [
                lambda d: f("TIMEZONE", self.expr(d), self.expr(d)),
                lambda d: f("BITS_NOT", self.expr(d)),
                lambda d: f(self._one("is_unknown", "is_not_unknown"), self.expr(d)),
                lambda d: f(self._not("between_symmetric"), self.expr(d), self.expr(d), self.expr(d)),
                lambda d: f(self._not("similar"), self.expr(d), self.expr(d), self.expr(d)),
                lambda d: t.Quantified("=", self.expr(d), "any", self._no_query(d)),
                lambda d: CastTo(self.expr(d), self.type(2), safe=True),
                lambda d: t.Collate(self.expr(d), (self.name(),)),
                lambda d: t.ArrayQuery(self.query(d)),
                lambda d: f("array"),
                lambda d: f("row", *self._many(lambda: self.expr(d), 2)),
                lambda d: f("map", *self._pairs(lambda: self.expr(d), d)),
                lambda d: f("struct", *self._pairs(lambda: Lit("string", self.name()), d)),
                lambda d: f("subscript", self.expr(d), self.expr(d)),
                lambda d: f("subscript", Name((self.name(),)), self.expr(d)),
                lambda d: f("SLICE", self.expr(d), self._bound(1, d), self._bound(2**31 - 1, d)),
                lambda d: f("field", self.expr(d), Lit("string", self.name())),
            ]
        return self._rng.choice(options)(depth - 1)

    def _not(self, name: str) -> str:
        return f"not_{name}" if self._flag() else name

    def _pairs(self, key: Callable[[], t.Expr], depth: int) -> tuple[t.Expr, ...]:
        return tuple(part for _ in range(self._rng.randint(0, 3)) for part in (key(), self.expr(depth)))

    def _bound(self, unwritten: int, depth: int) -> t.Expr:
        return self.expr(depth) if self._flag() else Lit("int", unwritten)

    def _leaf(self) -> t.Expr:
        if not self._plain and self._flag(0.15):
            return self._one(
                f("CURRENT_DATE"),
                f("CURRENT_TIMESTAMP", Lit("int", 3)),
                t.TypedText(TypeRef("timestamptz"), self._one(*TEXTS)),
                t.TypedText(TypeRef("double"), "1.5"),
                t.Interval("1-2", ("YEAR", "MONTH")),
                t.Interval("10"),
            )
        return self._one(
            Name((self.name(),)),
            Name((self.name(), self.name())),
            Lit("number", self._one(*(n for n in NUMBERS if n != ".5" or not self._plain))),
            Lit("string", self._one(*TEXTS)),
            Lit("bool", self._one(True, False)),
            Lit("null", None),
            t.TypedText(TypeRef("date"), "2024-05-01"),
            t.Interval("5", ("MINUTE",)),
        )

    def _no_query(self, depth: int) -> t.Expr:
        """An expression that is no query alone: `IN ((SELECT 1))` is a query in parentheses."""
        made = self.expr(depth)
        return self._leaf() if isinstance(made, t.ScalarQuery) else made

    def _binary(self, depth: int) -> t.Expr:
        plain = ("+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=")
        more = (*(op for op in t.OPERATORS if op not in plain), "~", "!~*", "overlaps")
        op = self._one(*plain) if self._plain or self._flag(0.4) else self._one(*more)
        right = self.expr(depth)
        if op == "->" and isinstance(right, Name):  # would be the field of a struct
            op = "->>"
        return f(t.OPERATORS.get(op, op), self.expr(depth), right)

    def _logical(self, depth: int) -> t.Expr:
        return f(self._one("and", "or"), *self._many(lambda: self.expr(depth), 2, 4))

    def _case(self, depth: int) -> t.Expr:
        parts = [self.expr(depth) for _ in range(2 * self._rng.randint(1, 3))]
        otherwise = [self.expr(depth)] if self._flag() else []
        if self._flag():
            return f("case_of", self.expr(depth), *parts, *otherwise)
        return f("case", *parts, *otherwise)

    def call(self, depth: int) -> t.Call:
        name = self._one("sum", "count", "f", "my_fn")
        args = (self.expr(depth),) if name == "sum" else self._many(lambda: self.expr(depth), 0)
        kind = self._rng.randrange(6)
        if kind == 0:
            return t.Call(("count",), star=True, over=self._maybe(lambda: self.window(depth)))
        if kind == 1:
            order = self._many(lambda: self.order_item(depth), 0, 2)
            return t.Call(("string_agg",), (self.expr(depth), Lit("string", ",")), order_by=order)
        if kind == 2:
            return t.Call((name,), args, filter=self.expr(depth))
        if kind == 3:
            return t.Call(("sum",), (self.expr(depth),), over=self.window(depth))
        if kind == 4:
            return t.Call(("count",), (self.expr(depth),), distinct=True)
        return t.Call((name,), args) if self._plain else self._special_call(depth)

    def _special_call(self, depth: int) -> t.Call:
        return self._one(
            t.Call(("percentile_cont",), (self.expr(0),), within_group=(self.order_item(depth),)),
            t.Call(("first_value",), (self.expr(0),), nulls="ignore", over=self.window(depth)),
            t.Call(("transform",), (self.expr(0), t.Named("x", self.expr(depth)))),
            t.Call(("reduce",), (self.expr(0), LambdaFn(("x", "y"), self.expr(depth)))),
            t.Call(("trim",), (self.expr(depth),)),
            t.Call(("left",), (self.expr(depth), self.expr(0))),
            t.Call(("Quoted fn",), ()),
        )

    def window(self, depth: int) -> t.WindowSpec:
        return (
            t.WindowSpec("w", bare=True) if not self._plain and self._flag(0.2) else self._window_in_parentheses(depth)
        )

    def _window_in_parentheses(self, depth: int = 1) -> t.WindowSpec:
        partition = self._many(lambda: self.expr(min(depth, 1)), 0, 2)
        order = self._many(lambda: self.order_item(min(depth, 1)), 1, 2)
        return t.WindowSpec("", partition, order, self._maybe(self._frame))

    def _frame(self) -> t.Frame:
        start = self._one(t.Bound("unbounded preceding"), t.Bound("preceding", self._number()), t.Bound("current row"))
        end = self._one(t.Bound("current row"), t.Bound("following", self._number()), t.Bound("unbounded following"))
        exclude = "" if self._plain else self._one("", "", "ties", "current row")
        return t.Frame(
            self._one("rows", "range"), start, end if self._plain else self._maybe(lambda: end, 0.7), exclude
        )

    def _number(self) -> t.Expr:
        return Lit("number", self._one("1", "2"))

    def order_item(self, depth: int) -> t.OrderItem:
        return t.OrderItem(self.expr(depth), self._one(None, "asc", "desc"), self._one(None, "first", "last"))

    def type(self, depth: int) -> TypeRef:
        if depth and not self._plain and self._flag(0.4):
            inner = self.type(depth - 1)
            return self._one(
                TypeRef("array", args=(inner,)),
                TypeRef("map", args=(TypeRef("varchar"), inner)),
                TypeRef("struct", fields=(("a", inner), ("B c", TypeRef("int")))),
                TypeRef("my_type"),
            )
        return self._one(
            TypeRef("int"),
            TypeRef("varchar"),
            TypeRef("numeric", (10, 2)),
            TypeRef("timestamp"),
            TypeRef("double"),
        )

    # --- queries ---

    def query(self, depth: int) -> t.Query:
        with_ = self._many(lambda: self._common_table(depth - 1), 1, 2) if depth > 0 and self._flag(0.15) else ()
        body = self.body(depth)
        order = self._many(lambda: self.order_item(0), 0, 2) if self._flag() else ()
        limit, offset = self._maybe(self._number), self._maybe(self._number, 0.1)
        ties = limit is not None and not self._plain and self._flag()
        emit = None if self._plain else self._maybe(lambda: self._one("changes", "final", "on window close"), 0.1)
        return t.Query(body, with_, bool(with_) and self._flag(0.2), order, limit, offset, ties, emit)

    def _common_table(self, depth: int) -> t.With:
        self._left += 1
        columns = () if self._flag(0.6) else self._names()
        return t.With(
            f"q{self._left}", self.query(depth), columns, None if self._plain else self._one(None, True, False)
        )

    def body(self, depth: int) -> t.Body:
        if depth > 0 and self._flag():
            op = self._one("union", "intersect", "except")
            corresponding = not self._plain and self._flag(0.1)
            by = self._names() if corresponding and self._flag() else ()
            return t.SetOperation(op, self.body(depth - 1), self._operand(depth - 1), self._flag(), corresponding, by)
        if not self._plain and self._flag(0.1):
            width = self._rng.randint(1, 2)
            return t.Values(self._many(lambda: self._many(lambda: self.expr(0), width, width)))
        return self.select(depth)

    def _operand(self, depth: int) -> t.Body:
        """A query with clauses of its own stands in parentheses."""
        if self._flag(0.15):
            return t.Query(self.body(depth), limit=self._number())
        return self.body(depth)

    def select(self, depth: int) -> t.Select:
        items = self._many(lambda: self.item(depth))
        source = self.relation(depth) if self._flag(0.9) else None
        distinct = self._flag(0.2)
        more: dict[str, Any] = {}
        if not self._plain:
            more = {
                "time_window": self._maybe(lambda: WindowClause("hopping", 5000, 1000, 10, None), 0.1)
                if source
                else None,
                "partition_by": self._many(lambda: self.expr(0)) if self._flag(0.1) else (),
                "qualify": self._maybe(lambda: f("eq", Name(("r",)), self._number()), 0.1),
                "windows": (t.NamedWindow("w", self._window_in_parentheses()),) if self._flag(0.1) else (),
            }
        return t.Select(
            items,
            source,
            distinct,
            self._many(lambda: self.expr(0)) if distinct and self._flag() else (),
            where=self._maybe(lambda: self.expr(depth)),
            group_by=self._many(lambda: self._group(depth)) if self._flag() else (),
            having=self._maybe(lambda: self.expr(depth), 0.2),
            **more,
        )

    def item(self, depth: int) -> t.Item:
        if self._flag(0.1):
            excluded = (Name(("a",)),) if not self._plain and self._flag() else ()
            return t.Item(Star(self._one((), (self.name(),)), None, excluded))
        if not self._plain and self._flag(0.05):
            return t.Item(Star((), self.call(0)))
        return t.Item(self.expr(depth), self._maybe(self.name, 0.5))

    def _group(self, depth: int) -> t.GroupElement:
        if self._flag(0.7) or depth <= 0:
            return Name((self.name(),))
        kind = self._one("sets", "rollup", "cube")
        sets = [t.Grouping("set", self._many(lambda: Name((self.name(),)), 2)), Name((self.name(),))]
        if kind == "sets":
            sets.append(t.Grouping("set", ()))
        return t.Grouping(kind, tuple(sets))

    # --- relations ---

    def relation(self, depth: int) -> t.Relation:
        made = self._joined(depth)
        while self._flag(0.1):
            made = t.Join("comma", made, self._joined(depth - 1))
        return made

    def _joined(self, depth: int) -> t.Relation:
        made = self._relation(depth)
        while self._flag(0.25):
            made = self._join(made, depth)
        return made

    def _join(self, left: t.Relation, depth: int) -> t.Join:
        right = self._joined(depth - 1) if depth > 0 and not self._plain else self._relation(0)
        kind = self._one("inner", "left", "right", "full")
        shape = self._rng.randrange(5 if self._plain else 8)
        if shape == 0:
            return t.Join("cross", left, right)
        if shape == 1:
            return t.Join(kind, left, right, natural=True)
        if shape == 2:
            return t.Join(kind, left, right, using=self._names())
        on = self.expr(max(depth - 1, 0))
        if shape == 5:
            return t.Join(kind, left, right, on, within=WithinClause(1000, 2000, self._one(None, 500)))
        if shape == 6:
            return t.Join(self._one("inner", "left"), left, right, on, variant=self._one("ASOF", "ANTI", "SEMI"))
        return t.Join(kind, left, right, on)

    def _relation(self, depth: int) -> t.Relation:
        shape = self._rng.randrange(8)
        if shape == 0 and depth > 0:
            lateral = not self._plain and self._flag()
            return t.Derived(self.query(depth - 1), self._alias(always=self._plain), lateral)
        if shape == 1:
            args = (self.expr(0),)
            return t.TableFunction(t.Call(("unnest",), args), self._alias(always=self._plain), self._flag())
        if shape == 2 and not self._plain:
            return self._table_function()
        as_of = None if self._plain else self._maybe(lambda: t.Call(("proctime",)), 0.1)
        name = (self.name(),) if self._flag(0.9) else ("public", self.name())
        return t.Table(name, self._alias(), as_of)

    def _table_function(self) -> t.Relation:
        window = t.Interval("1", ("HOUR",))
        data = t.TableArgument(("s",), self._one((), (Name(("k",)),)))
        call = t.Call(("tumble",), (data, t.Call(("descriptor",), (Name(("ts",)),)), t.Named("size", window)))
        types = (TypeRef("int"), TypeRef("varchar"))
        return self._one(
            t.TableFunction(call, self._alias(), wrapped=True),
            t.TableFunction(t.Call(("f",), (window,)), t.Alias("x", ("a", "b"), types), lateral=True),
        )

    def _alias(self, *, always: bool = False) -> t.Alias | None:
        if not always and self._flag(0.5):
            return None
        self._left += 1
        return t.Alias(f"t{self._left}" if self._plain else self.name(), self._names() if self._flag() else ())

    # --- statements ---

    def statement(self, depth: int) -> Statement:
        name = self.name()
        shape = self._rng.randrange(7)
        if shape == 0:
            return self._create_table(name)
        if shape == 1:
            columns = self._names() if self._flag() else ()
            kind = self._one("table", "stream") if not columns else "table"
            return CreateView(
                "",
                name=name,
                kind=kind,
                tree=self.query(depth),
                columns=columns,
                or_replace=self._flag(),
                if_not_exists=self._flag(),
            )
        if shape == 2:
            columns = self._names() if self._flag() else ()
            query, conflict = self.query(depth), self._maybe(lambda: self._conflict(depth))
            return st.Insert("", target=name, columns=columns, query=query, on_conflict=conflict)
        if shape == 3:
            sets = self._assignments(depth)
            source = self._maybe(lambda: self.relation(1))
            alias, where = self._maybe(self.name), self._maybe(lambda: self.expr(depth))
            return st.Update("", target=name, assignments=sets, alias=alias, source=source, where=where)
        if shape == 4:
            return st.Delete("", target=name, alias=self._maybe(self.name), where=self._maybe(lambda: self.expr(depth)))
        if shape == 5:
            kind = self._one("table", "stream", "view", "type")
            return Drop("", name=name, kind=kind, if_exists=self._flag(), delete_topic=kind != "type" and self._flag())
        return QueryStatement("", verb="SELECT", query=self.query(depth))

    def _assignments(self, depth: int) -> tuple[st.Assignment, ...]:
        return self._many(lambda: st.Assignment((self.name(),), self.expr(depth)))

    def _conflict(self, depth: int) -> st.OnConflict:
        columns = self._names() if self._flag() else ()
        if self._flag():
            return st.OnConflict(columns)
        return st.OnConflict(columns, self._assignments(depth), self._maybe(lambda: self.expr(depth)))

    def _checks(self) -> tuple[st.Check, ...]:
        return self._one((), (), (st.Check(self.expr(0)),), (st.Check(self.expr(0), self.name()),))

    def _create_table(self, name: str) -> Statement:
        columns = tuple(
            st.ColumnDefinition(
                n,
                self.type(2),
                default=self._maybe(self._leaf, 0.1),
                constraints=self._one((), ("NOT NULL",)),
                checks=self._checks(),
            )
            for n in self._names()
        )
        key = (columns[0].name,) if self._flag() else ()
        mark = st.Watermark("ts", f("sub", Name(("ts",)), t.Interval("5", ("SECOND",))))
        return st.CreateTable(
            "",
            name=name,
            columns=columns,
            primary_key=key,
            watermarks=(mark,) if self._flag() else (),
            append_only=self._flag(),
            checks=self._checks(),
        )
