"""FROM and JOIN: sources, their order, kinds and conditions, and the relation they make.

The rules are ksqlDB's: a join is on equality of one expression of each side; the right side of a stream-table or
table-table join is joined on its primary key; the output key is the join column that the projection selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.push import HIDDEN
from flowql.compiler.analyze.relation import KeyColumn, Relation, filtered, project, rekey, retracting, scan
from flowql.compiler.analyze.scope import Scope, ScopeColumn, join_scopes, scope_of, without_hidden
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import listing
from flowql.compiler.dialect.ast import Ast, Func, JoinClause, LambdaFn, Name, Query, TableRef, WithinClause
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.dialect.walks import rebuilt
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Literal, columns_of
from flowql.compiler.plan.logical import ChangeKind, Join, JoinShape, NamedExpr, Node, Project
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_FIELDS, WINDOW_START, Field, KeyWindow, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT

UNBOUNDED_JOIN = "FQ2103"  # of streams, without a bound of time
_HIDDEN = "__join_"


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of an ON comparison: as written and bound."""

    node: Ast
    expr: Expr
    sources: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class Input:
    """The meaning of a source in FROM or JOIN. definition: for a nested query, that of a stream or table with its rows."""

    ref: TableRef
    definition: SourceDef
    node: Node


def from_clause(
    query: Query, catalog: Catalog, session: Mapping[str, str], nested: Callable[[TableRef], Input]
) -> tuple[Relation, Callable[[str], Relation]]:
    """The relation of FROM and its joins, and a function that names its key (joins: chosen by the projection).

    nested: binds a query that stands in the place of a source.
    """
    refs = [query.source, *(j.right for j in query.joins)]
    inputs = [nested(r) if r.query is not None else _input(r, catalog, session) for r in refs]
    _check_aliases(refs)
    if not query.joins:
        relation = _single(inputs[0])
        return relation, lambda _: relation
    _check_formats([i.definition for i in inputs], query)
    left = _prefixed(inputs[0])
    for clause, side in zip(query.joins, inputs[1:], strict=True):
        right = _prefixed(side)
        build = _Joiner(left, right, clause, catalog, first=clause is query.joins[0])
        left = build.relation(build.default_key)
    return left, build.relation


def _input(ref: TableRef, catalog: Catalog, session: Mapping[str, str]) -> Input:
    definition = find_source(catalog, ref.name, ref.span)
    return Input(ref, definition, scan(definition, session))


def _alias(ref: TableRef) -> str:
    return ref.alias or ref.name


def refuse_self_join(query: Query) -> None:
    """In ksqlDB's dialect a source is read once in a query, whatever its aliases are. Raises CompileError."""
    seen: set[str] = set()
    for ref in (query.source, *(j.right for j in query.joins)):
        if ref.query is None and ref.name in seen:
            title = f"can not join {ref.name} to {ref.name}: a query reads each source once"
            help = f"declare another stream or table over the topic of {ref.name}, and join {ref.name} with it"
            raise mistake("FQ2031", title, ref.span, "the source again", help=help)
        seen.add(ref.name)


def _check_aliases(refs: Sequence[TableRef]) -> None:
    seen: set[str] = set()
    for r in refs:
        if _alias(r) in seen:
            raise mistake(
                "FQ2004",
                f"two sources are called {_alias(r)}",
                r.span,
                "called like another",
                help="give it an alias with AS",
            )
        seen.add(_alias(r))


def _check_formats(definitions: Sequence[SourceDef], query: Query) -> None:
    kafka = [d.name for d in definitions if d.value_format.name == "KAFKA"]
    if kafka:
        title = f"source(s) {', '.join(kafka)} use the 'KAFKA' value format, which does not support JOIN"
        raise mistake(
            "FQ2013", title, query.source.span, "KAFKA values have no column names", help="use another VALUE_FORMAT"
        )


def _single(given: Input) -> Relation:
    definition, node = given.definition, given.node
    keys = tuple(KeyColumn((f.name,), (f.name,)) for f in definition.schema.key)
    scope = _scope(given)
    shown = tuple(c for c in scope.columns if not c.name.startswith(HIDDEN))
    return Relation(node, replace(scope, columns=shown), keys, (definition,))


def _scope(given: Input, prefix: str = "") -> Scope:
    scope = scope_of(_alias(given.ref), given.node.schema, prefix)
    return without_hidden(scope, given.definition.visible) if given.definition.relation else scope


def _prefixed(given: Input) -> Relation:
    """A side of a join: every column renamed to ALIAS_COLUMN, the row time a column of its own."""
    alias, definition, node = _alias(given.ref), given.definition, given.node
    prefix = f"{alias}_"
    columns = [NamedExpr(prefix + f.name, Column(f.type, f.name)) for f in node.schema]
    columns.append(NamedExpr(f"{prefix}ROWTIME", Column(BIGINT, ROWTIME)))
    if definition.schema.window is not None:
        columns += [NamedExpr(f.name, Column(f.type, f.name)) for f in WINDOW_FIELDS]
    scope = _scope(given, prefix)
    keys = tuple(KeyColumn((prefix + f.name,), (f"{alias}.{f.name}",)) for f in definition.schema.key)
    return Relation(project(node, columns), scope, keys, (definition,))


def _with_window_of(window: KeyWindow | None, right: Relation) -> Relation:
    """The right side with windows that end as those of the left: the key of a time window has its start alone, so that
    windows of other sizes match by it.
    """
    schema = right.node.schema
    if window is None or schema.window is None or window == schema.window or window.size_ms is None:
        return right
    if "session" in (window.kind, schema.window.kind):
        return right
    columns: list[NamedExpr] = []
    for f in schema:
        expr: Expr = Column(f.type, f.name)
        if f.role == "window" and f.name == WINDOW_END:
            expr = Call(BIGINT, "add", (Column(BIGINT, WINDOW_START), Literal(BIGINT, window.size_ms)))
        columns.append(NamedExpr(f.name, expr))
    node = Node(Project(tuple(columns)), (right.node,), Schema(schema.fields, window), right.node.change)
    return replace(right, node=node)


def _conjuncts(on: Ast) -> list[Ast]:
    """The conditions of ON, an equality first where there is one."""
    if not isinstance(on, Func) or on.name != "and":
        return [on]
    parts = [p for a in on.args for p in _conjuncts(a)]
    return sorted(parts, key=lambda p: not (isinstance(p, Func) and p.name == "eq"))


class _Joiner:
    """One join step: checks everything at once, then builds the node for a chosen key name."""

    def __init__(self, left: Relation, right: Relation, clause: JoinClause, catalog: Catalog, *, first: bool) -> None:
        right = _with_window_of(left.node.schema.window, right)
        self._left, self._right, self._clause, self._first = left, right, clause, first
        _check_plan_names(left.scope, right.scope, clause)
        self._scope = join_scopes(left.scope, right.scope)
        self._sides = self._bind_on(catalog)
        self._written = " = ".join(s.text for s in self._sides)
        self._l, self._r = self._oriented()
        self._shape = self._join_shape()
        self._check_types()
        self._check_windows()
        self._keys = left.keys if self._shape == "foreign-key" else (self._join_key(),)
        self.default_key = self._keys[0].viable[0]

    # --- the condition ---

    def _bind_on(self, catalog: Catalog) -> tuple[_Side, _Side]:
        on, *others = _conjuncts(self._clause.on)
        self._others = self._bind_others(others, catalog)
        if not isinstance(on, Func) or on.name != "eq":
            span = on.span
            raise mistake(
                "FQ2030",
                f"unsupported join expression {text_of(on)}: a join needs an equality",
                span,
                "not an equality",
                help="write ON a.x = b.y",
            )
        binder = Binder(self._scope, catalog, "JOIN ON")
        a, b = (self._side(binder, n, on) for n in on.args)
        return a, b

    def _side(self, binder: Binder, node: Ast, on: Func) -> _Side:
        expr = binder.bind(node)
        owners = frozenset(c.source for name in columns_of(expr) if (c := self._scope.by_plan_name(name)) is not None)
        if len(owners) != 1:
            title = f"invalid comparison expression '{text_of(node)}' in join '{_qualified(on, self._scope)}': each side of the join comparison must contain references from exactly one source"
            raise mistake(
                "FQ2030",
                title,
                node.span,
                f"of {listing(sorted(owners))}" if owners else "of no source",
            )
        return _Side(node, expr, owners, _qualified(node, self._scope))

    def _oriented(self) -> tuple[_Side, _Side]:
        a, b = self._sides
        left = set(self._left.scope.aliases)
        if a.sources <= left and not b.sources <= left:
            return a, b
        if b.sources <= left and not a.sources <= left:
            return b, a
        right = self._right.scope.aliases[0]
        title = f"invalid join condition: {self._written} does not compare {right} with {listing(sorted(left), 'or')}"
        raise mistake("FQ2030", title, self._clause.on.span, "both sides are of the same source")

    # --- the rules ---

    def _join_shape(self) -> JoinShape:
        names = (self._left.scope.aliases[0], self._right.scope.aliases[0])
        kind, within = self._clause.kind, self._clause.within
        words = {
            "inner": "[INNER] JOIN",
            "left": "LEFT [OUTER] JOIN",
            "right": "RIGHT [OUTER] JOIN",
            "full": "FULL [OUTER] JOIN",
        }[kind]
        got = f"{names[0]} {words} {names[1]}"
        if not self._left.is_table and not self._right.is_table:
            if within is None:
                raise mistake(
                    UNBOUNDED_JOIN,
                    f"this stream-stream join has no time bound: {got}",
                    self._clause.span,
                    "both inputs are unbounded",
                    why="every row would have to be kept forever",
                    help="add WITHIN 1 HOUR before ON",
                )
            return "stream-stream"
        if within is not None:
            raise mistake(
                "FQ2031",
                f"WITHIN is for stream-stream joins; got {got}",
                within.span,
                "not between two streams",
                help="remove WITHIN",
            )
        if self._left.is_table and not self._right.is_table:
            title = f"invalid join order: table-stream joins are not supported; only stream-table joins. Got {got}"
            raise mistake("FQ2031", title, self._clause.span, "the table is on the left", help="put the stream first")
        if not self._left.is_table:
            if kind in ("right", "full"):
                raise mistake(
                    "FQ2031",
                    f"invalid join type: {words} is not supported for stream-table joins. Got {got}",
                    self._clause.span,
                    "inner or left only",
                    why="a table has no events to emit",
                )
            self._check_right_key("stream-table joins require to join on the table's primary key")
            return "stream-table"
        self._check_right_key("table-table joins require to join on the primary key of the right input table")
        if self._on_key(self._left, self._l):
            return "table-table"
        return self._foreign_key(words)

    def _foreign_key(self, words: str) -> JoinShape:
        span = self._clause.span
        if not self._first:
            title = f"invalid join condition: foreign-key table-table joins are not supported as part of n-way joins. Got {self._written}"
            raise mistake("FQ2030", title, self._clause.on.span, "not the primary key of the left side")
        if self._clause.kind in ("right", "full"):
            raise mistake(
                "FQ2031", f"{words} on a foreign key is not supported. Got {self._written}", span, "inner or left only"
            )
        return "foreign-key"

    def _check_right_key(self, rule: str) -> None:
        if len(self._right.keys) != 1 or not self._on_key(self._right, self._r):
            raise mistake(
                "FQ2030",
                f"invalid join condition: {rule}. Got {self._written}",
                self._clause.on.span,
                "not the primary key",
                help=f"the key of {self._right.scope.aliases[0]} is {listing([t for k in self._right.keys for t in k.texts])}",
            )

    def _on_key(self, relation: Relation, side: _Side) -> bool:
        return len(relation.keys) == 1 and isinstance(side.expr, Column) and side.expr.name in relation.keys[0].viable

    def _check_types(self) -> None:
        if self._l.expr.type != self._r.expr.type:
            (a, b) = self._sides
            title = (
                f"invalid join condition: types don't match. Got {a.text}{{{a.expr.type}}} = {b.text}{{{b.expr.type}}}"
            )
            raise mistake("FQ2030", title, self._clause.on.span, "different types", help="CAST one side")

    def _check_windows(self) -> None:
        windows = [self._left.node.schema.window, self._right.node.schema.window]
        names = (self._left.scope.aliases[0], self._right.scope.aliases[0])
        told = "; ".join(
            f"`{n}` is {'not' if w is None else w.kind.upper()} windowed" for n, w in zip(names, windows, strict=True)
        )
        if (windows[0] is None) != (windows[1] is None):
            raise mistake(
                "FQ2030",
                f"can not join windowed source to non-windowed source: {told}",
                self._clause.span,
                "one side is windowed",
            )
        if windows[0] is None or windows[1] is None:
            return
        if (windows[0].kind == "session") != (windows[1].kind == "session"):
            title = f"incompatible windowed sources: {told}"
            why = "keys of rows match with their windows, and bounds of sessions are those of no other window"
            raise mistake("FQ2030", title, self._clause.span, "windows of two kinds", why=why)
        if not (self._on_key(self._left, self._l) and self._on_key(self._right, self._r)):
            raise mistake(
                "FQ2030",
                f"implicit repartitioning of windowed sources is not supported: {self._written}",
                self._clause.on.span,
                "not the key of a windowed source",
            )

    def _bind_others(self, others: Sequence[Ast], catalog: Catalog) -> Expr | None:
        """Conditions beside the first: of an inner join they choose among its rows, as in WHERE."""
        if others and self._clause.kind != "inner":
            raise mistake(
                "FQ2030",
                f"an outer join is on one equality; {text_of(others[0])} is a second condition",
                others[0].span,
                "more than one condition",
                why="rows that meet the first and not the second would have to come out unmatched",
                help="join on an expression of all columns: ON STRUCT(a := l.a, b := l.b) = STRUCT(a := r.a, b := r.b)",
            )
        if not others:
            return None
        both = reduce(lambda a, b: Func("and", (a, b), self._clause.span), others)
        return Binder(self._scope, catalog, "JOIN ON").condition(both)

    # --- the result ---

    def _join_key(self) -> KeyColumn:
        viable: list[str] = []
        texts: list[str] = []
        if self._clause.kind != "full":
            if isinstance(self._l.expr, Column):
                known = self._left.keys[0] if self._on_key(self._left, self._l) else None
                viable += known.viable if known else [self._l.expr.name]
                texts += known.texts if known else [self._l.text]
            if isinstance(self._r.expr, Column):
                viable.append(self._r.expr.name)
                texts.append(self._r.text)
        if viable:
            return KeyColumn(tuple(viable), tuple(texts))
        name = _synthetic_name(self._scope)
        return KeyColumn((name,), (name,), synthetic=True)

    def relation(self, key_name: str) -> Relation:
        """The joined relation with its key column called `key_name`, one of the viable names."""
        made = self._foreign_relation() if self._shape == "foreign-key" else self._keyed_relation(key_name)
        return made if self._others is None else replace(made, node=filtered(made.node, self._others))

    def _keyed_relation(self, key_name: str) -> Relation:
        left, right = self._keyed(self._left, self._l, "left"), self._keyed(self._right, self._r, "right")
        key = Field(key_name, self._l.expr.type, "key")
        window = left.schema.window
        bounds = WINDOW_FIELDS if window is not None else ()
        others = [
            Field(f.name, f.type)
            for n in (left, right)
            for f in n.schema
            if f.name != key_name and f.role != "window" and not f.name.startswith(_HIDDEN)
        ]
        schema = Schema((key, *bounds, *others), window)
        change: ChangeKind = "append" if self._shape in ("stream-stream", "stream-table") else "upsert"
        node = Node(self._spec(key_name), (left, right), schema, change)
        # A synthetic key of an earlier step is not a column of the result any more.
        scope = Scope(tuple(c for c in self._scope.columns if c.source), self._scope.aliases)
        if self._keys[0].synthetic:
            scope = Scope((ScopeColumn("", key_name, key.type, key_name, "key"), *scope.columns), scope.aliases)
        return Relation(node, scope, self._keys, self._left.sources + self._right.sources)

    def _foreign_relation(self) -> Relation:
        """The left table with columns of the right row that its foreign key names; its key stays."""
        left, right = retracting(self._left.node), self._right.node
        others = [Field(f.name, f.type) for f in (*left.schema, *right.schema) if f not in left.schema.key]
        spec = Join("foreign-key", self._clause.kind, self.default_key, foreign_key=self._l.expr)
        node = Node(spec, (left, right), Schema((*left.schema.key, *others)), "upsert")
        return Relation(node, self._scope, self._keys, self._left.sources + self._right.sources)

    def _spec(self, key_name: str) -> Join:
        within = self._clause.within or WithinClause(0, 0)
        return Join(self._shape, self._clause.kind, key_name, within.before_ms, within.after_ms, within.grace_ms)

    def _keyed(self, relation: Relation, side: _Side, name: str) -> Node:
        if self._on_key(relation, side):
            return relation.node
        key = side.expr.name if isinstance(side.expr, Column) else f"{_HIDDEN}{name}"
        return rekey(relation.node, [NamedExpr(key, side.expr)], drop_null=True)


def _check_plan_names(left: Scope, right: Scope, clause: JoinClause) -> None:
    taken = {c.column for c in left.columns}
    clash = next((c for c in right.columns if c.column in taken), None)
    if clash is not None:
        title = f"column {clash.source}.{clash.name} and a column of {listing(left.aliases)} are both called {clash.column} in the join"
        raise mistake("FQ2004", title, clause.right.span, "names clash", help="give the source another alias")


def _synthetic_name(scope: Scope) -> str:
    """ROWKEY, or the next ROWKEY_n that no source has a column of."""
    taken = {c.name for c in scope.columns if c.source}
    if "ROWKEY" not in taken:
        return "ROWKEY"
    n = 1
    while f"ROWKEY_{n}" in taken:
        n += 1
    return f"ROWKEY_{n}"


def _qualified(node: Ast, scope: Scope) -> str:
    """The text of `node` with every column qualified by its source."""

    def qualified(n: Name | LambdaFn) -> Ast:
        if isinstance(n, LambdaFn) or len(n.parts) > 1:
            return n
        owner = next((c.source for c in scope.columns if c.name == n.parts[0] and c.source), None)
        return Name((owner, *n.parts), n.span) if owner else n

    return text_of(rebuilt(node, qualified, Name, LambdaFn))
