"""A bound query as one statement of DuckDB over the rows of a commit.

Expressions and aggregates are lowered as the vector kernels of views lower them. A row for which a lowering is not proven equal makes the statement
fail (`DECLINED`), as everything does that DuckDB refuses to compute; the operators of views then give the answer, or the error
(`flowql.query.reference`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.compiler.functions.aggregate_forms import Asked
from flowql.compiler.functions.change_aggregates import asked_sql
from flowql.compiler.functions.duckdb_sql import lower, quoted
from flowql.compiler.functions.duckdb_text import DECLINED
from flowql.compiler.functions.registry import AggregateFunction, Function
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    Frame,
    GroupAggregate,
    GroupCall,
    Offset,
    Over,
    SetOperation,
    SortKey,
    TopN,
    WindowCall,
)
from flowql.compiler.plan.expr import Call, Column, Expr, LambdaVar, Literal, columns_of, walk
from flowql.compiler.plan.logical import Explode, Filter, Materialise, Node, Project, Scan, Union
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType, duckdb_type
from flowql.compiler.plan.watermarks import AppendOnly

_ERROR = f"error('{DECLINED}')"
_PARTITION, _OFFSET = "ROWPARTITION", "ROWOFFSET"
_VALUES_ORDERED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)  # whose NULLs DuckDB may order otherwise
_CHARS_MAX = 1 << 20  # of the statement, in which parts of nested expressions are repeated
_SERIES_MAX = 100_000  # elements
_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
_AT = ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")


class NotRendered(Exception):
    """DuckDB has no words for a part of the plan that mean exactly the same."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """sql: a SELECT that gives the rows of a plan, with columns by their names in the plan; empty where DuckDB has no words for it, and `why` tells for
    what. columns: names of columns, folded, that are read of relations; None: all.
    """

    sql: str
    columns: frozenset[str] | None
    why: str = ""


def rendered(
    node: Node, columns: Sequence[str], order: Sequence[SortKey], functions: Mapping[str, Function | AggregateFunction]
) -> Rendered:
    """A plan as a statement. columns: those of the answer. functions: those of the project, by their names in plans. Relations have their own names."""
    scalars = {name: f for name, f in functions.items() if isinstance(f, Function)}
    made = _Renderer(node, {*columns, *(k.column for k in order)}, scalars)
    read = made.columns_read()
    try:
        order_by(order, node.schema)
        sql = made.statement()
        return Rendered(sql, read) if len(sql) <= _CHARS_MAX else Rendered("", read, "a statement of this length")
    except NotRendered as error:
        return Rendered("", read, str(error))


@dataclass(frozen=True, slots=True)
class Unrendered:
    """A projection or filter that DuckDB has no form of, over rows that it can give.

    below: the SELECT of its input. read, needed: the columns that it reads of it, and those that are read of its own.
    """

    node: Node
    below: str
    read: frozenset[str]
    needed: frozenset[str]


def first_unrendered(node: Node, columns: Sequence[str], order: Sequence[SortKey]) -> Unrendered | None:
    """Finds the first node, inputs first, that has no SELECT. Returns None unless it is a projection or a filter."""
    made = _Renderer(node, {*columns, *(k.column for k in order)}, {})
    made.columns_read()
    for n in made.inputs_first():
        try:
            made.have(n)
        except NotRendered:
            if not isinstance(n.spec, Project | Filter):
                return None
            (below,) = n.inputs
            sql = made.with_tables(made.select(below))
            if len(sql) > _CHARS_MAX:
                return None
            return Unrendered(n, sql, frozenset(made.needed[id(below)]), frozenset(made.needed[id(n)]))
    return None


@dataclass(slots=True)
class _Renderer:
    """needed: the columns that are read of each node. tables: names of nodes that several others read, each computed once."""

    root: Node
    shown: set[str]
    functions: Mapping[str, Function]
    needed: dict[int, set[str]] = field(default_factory=dict)
    tables: dict[int, str] = field(default_factory=dict)
    bodies: list[str] = field(default_factory=list)
    readers: Counter[int] = field(default_factory=Counter)

    def columns_read(self) -> frozenset[str]:
        """Finds the columns that are read of each node; those of relations."""
        self.needed[id(self.root)] = set(self.shown)
        for n in _parents_first(self.root):
            for below, names in zip(n.inputs, self._reads(n), strict=True):
                self.needed.setdefault(id(below), set()).update(names)
        scans = [n for n in _parents_first(self.root) if isinstance(n.spec, Scan)]
        return frozenset(name.casefold() for n in scans for name in self.needed[id(n)])

    def statement(self) -> str:
        for n in self.inputs_first():
            if self.readers[id(n)] > 1:
                self.have(n)
        return self.with_tables(self.select(self.root))

    def inputs_first(self) -> list[Node]:
        nodes = _parents_first(self.root)
        self.readers = Counter(id(i) for n in nodes for i in n.inputs)
        return nodes[::-1]

    def have(self, n: Node) -> None:
        """Renders a node; one that several others read is a table for them. Raises NotRendered."""
        body = self.select(n)
        if self.readers[id(n)] > 1 and not isinstance(n.spec, Scan):
            self.tables[id(n)] = name = f'"!{len(self.tables)}"'
            self.bodies.append(f"{name} AS MATERIALIZED ({body})")

    def with_tables(self, body: str) -> str:
        return f"WITH {', '.join(self.bodies)} {body}" if self.bodies else body

    # --- which columns are read ---

    def _reads(self, n: Node) -> Sequence[Collection[str]]:
        """The columns that the node needs from each input for its own needed columns."""
        needed = self.needed[id(n)]
        match n.spec:
            case Project(columns):
                return [columns_of(*(c.expr for c in columns if c.name in needed))]
            case Filter(predicate):
                return [needed | columns_of(predicate)]
            case GroupAggregate(keys, calls):
                return [{*keys, *(a for c in calls if c.name in needed for a in _arguments(c))}]
            case EquiJoin():
                read = needed | {*n.spec.left_keys, *n.spec.right_keys}
                read |= columns_of(n.spec.residual) if n.spec.residual is not None else set()
                return [read & set(i.schema.names) for i in n.inputs]
            case SetOperation():
                return [[f.name for f in i.schema if f.role != "key"] for i in n.inputs]
            case TopN(keys, order, rank=rank):
                return [(needed - {rank}) | {*keys, *(o.column for o in order)}]
            case Over(keys, order, calls):
                made = {c.name for c in calls}
                arguments = {a for c in calls if c.name in needed for a in (*c.args, *([c.filter] if c.filter else []))}
                return [(needed - made) | {*keys, *(o.column for o in order)} | arguments]
            case Explode(functions):
                made = {f.name for f in functions}
                return [(needed - made) | columns_of(*(f.expr for f in functions))]
            case Union():
                places = [i for i, name in enumerate(n.schema.names) if name in needed]
                return [[i.schema.names[p] for p in places] for i in n.inputs]
        return [needed for _ in n.inputs]

    # --- SELECTs ---

    def _from(self, n: Node) -> str:
        """The FROM item with the rows of a node."""
        name = self.tables.get(id(n))
        return name if name is not None else f"({self.select(n)})"

    def _columns(self, n: Node, *, under: str = "") -> list[str]:
        prefix = f"{under}." if under else ""
        return [f"{prefix}{quoted(f.name)}" for f in n.schema if f.name in self.needed[id(n)]]

    def select(self, n: Node) -> str:
        if id(n) in self.tables:
            return f"FROM {self.tables[id(n)]}"
        match n.spec:
            case Scan():
                return self._scan(n, n.spec)
            case AppendOnly() | Materialise() | Consolidate():
                return f"SELECT {_list(self._columns(n))} FROM {self._from(n.inputs[0])}"
            case Project(columns):
                items = [_as(self._value(c.expr), c.name) for c in columns if c.name in self.needed[id(n)]]
                return f"SELECT {_list(items)} FROM {self._from(n.inputs[0])}"
            case Filter(predicate):
                return f"SELECT {_list(self._columns(n))} FROM {self._from(n.inputs[0])} WHERE {self._value(predicate)}"
            case GroupAggregate():
                return self._group(n, n.spec)
            case EquiJoin():
                return self._join(n, n.spec)
            case SetOperation():
                return self._set_operation(n, n.spec)
            case TopN():
                return self._top(n, n.spec)
            case Over():
                return self._over(n, n.spec)
            case Explode():
                return self._explode(n, n.spec)
            case Union():
                return self._union(n)
        raise NotRendered(type(n.spec).__name__)

    # --- expressions ---

    def _value(self, e: Expr) -> str:
        """An expression, which fails for rows that the lowering declines."""
        made = lower(e, self.functions)
        if made is None:
            raise NotRendered(_name_of(e, self.functions))
        return made.sql if not made.declines else f"CASE WHEN {made.decline()} THEN {_ERROR} ELSE {made.sql} END"

    def _elements(self, e: Call) -> str:
        """A list that is exploded."""
        if e.name != "EXPLODE":
            function = self.functions.get(e.name)
            if function is None or function.duckdb is None:
                raise NotRendered(e.name)
            args = [self._value(a) for a in e.args]
            return function.duckdb(args, Resolution(tuple(a.type for a in e.args), e.type))
        (e_,) = e.args
        if not isinstance(e_, Call) or e_.name not in ("sql_places", "sql_places_or_null"):
            return self._array(e_)
        lengths = [f"coalesce(len({self._array(a)}), 0)" for a in e_.args]
        most = f"greatest({', '.join(lengths)})" if len(lengths) > 1 else lengths[0]
        places = f"generate_series(1, {most})"
        if e_.name == "sql_places":
            return places
        return f"CASE WHEN {most} = 0 THEN [CAST(NULL AS BIGINT)] ELSE {places} END"

    def _array(self, e: Expr) -> str:
        if not isinstance(e, Call) or e.name != "sql_series":
            return self._value(e)
        if any(a.type.kind not in (Kind.INT, Kind.BIGINT) for a in e.args):
            raise NotRendered("generate_series of other values than whole numbers")
        args = [f"CAST({self._value(a)} AS HUGEINT)" for a in e.args]
        step = f", {self._value(e.args[2])}" if len(args) > 2 else ""
        plain = ", ".join(self._value(a) for a in e.args[:2])
        made = f"CAST(generate_series({plain}{step}) AS {duckdb_type(e.type)})"
        return f"CASE WHEN abs({args[1]} - {args[0]}) > {_SERIES_MAX} THEN {_ERROR} ELSE {made} END"

    # --- operators ---

    def _scan(self, n: Node, spec: Scan) -> str:
        """A row has its place as its identity."""
        items = []
        for f in n.schema:
            if f.name in self.needed[id(n)]:
                places = {_PARTITION: "0", _OFFSET: "row_number() OVER ()"} if f.role == "pseudo" else {}
                items.append(_as(places.get(f.name, quoted(f.name)), f.name))
        return f"SELECT {_list(items)} FROM {quoted(spec.source)}"

    def _group(self, n: Node, spec: GroupAggregate) -> str:
        (below,) = n.inputs
        items = [_as(_group_key(k, below.schema), f.name) for k, f in zip(spec.keys, n.schema.key, strict=False)]
        items += [_as(_aggregate(c, below.schema), c.name) for c in spec.calls if c.name in self.needed[id(n)]]
        if not spec.keys:  # one row, also of no rows
            return f"SELECT {_list(items)} FROM {self._from(below)}" if items else "SELECT 1"
        groups = ", ".join(_group_key(k, below.schema) for k in spec.keys)
        return f"SELECT {_list(items)} FROM {self._from(below)} GROUP BY {groups}"

    def _join(self, n: Node, spec: EquiJoin) -> str:
        left, right = n.inputs
        sign = "IS NOT DISTINCT FROM" if spec.null_safe else "="
        pairs = [f"l.{quoted(a)} {sign} r.{quoted(b)}" for a, b in zip(spec.left_keys, spec.right_keys, strict=True)]
        if spec.residual is not None:
            pairs.append(f"coalesce({self._value(spec.residual)}, FALSE)")
        on = " AND ".join(pairs) or "TRUE"
        of_left, of_right = set(left.schema.names), set(right.schema.names)
        if spec.kind in ("semi", "anti"):
            exists = f"EXISTS (SELECT 1 FROM {self._from(right)} AS r WHERE {on})"
            test = exists if spec.kind == "semi" else f"NOT {exists}"
            return f"SELECT {_list(self._columns(n, under='l'))} FROM {self._from(left)} AS l WHERE {test}"
        items = []
        for f in n.schema:
            if f.name not in self.needed[id(n)]:
                continue
            if f.name not in of_left and f.name not in of_right:
                raise NotRendered("which side of a full join is missing")
            items.append(f"{'l' if f.name in of_left else 'r'}.{quoted(f.name)}")
        join = "JOIN" if spec.kind == "inner" else f"{spec.kind.upper()} JOIN"
        return f"SELECT {_list(items)} FROM {self._from(left)} AS l {join} {self._from(right)} AS r ON {on}"

    def _set_operation(self, n: Node, spec: SetOperation) -> str:
        types = [f.type for f in n.inputs[0].schema if f.role != "key"]
        sides = []
        for i in n.inputs:
            columns = [f.name for f in i.schema if f.role != "key"]
            items = [_as(_as_group(quoted(c), t), f"c{k}") for k, (c, t) in enumerate(zip(columns, types, strict=True))]
            sides.append(f"SELECT {_list(items)} FROM {self._from(i)}")
        if spec.kind == "distinct":
            body = f"SELECT DISTINCT * FROM ({sides[0]})"
        else:
            body = f"({sides[0]}) {spec.kind.upper()}{' ALL' if spec.all else ''} ({sides[1]})"
        keys = [f.name for f in n.schema.key]
        if spec.all and keys[-1] in self.needed[id(n)]:
            raise NotRendered("the number of a copy")
        shown = {key: f"c{k}" for k, key in enumerate(keys[: len(types)])}
        outputs = [f.name for f in n.schema if f.role != "key"]
        shown |= {name: f"c{k}" for k, name in enumerate(outputs)}
        items = [_as(shown[f.name], f.name) for f in n.schema if f.name in self.needed[id(n)]]
        return f"SELECT {_list(items)} FROM ({body})"

    def _top(self, n: Node, spec: TopN) -> str:
        (below,) = n.inputs
        items, source = self._columns(n), self._from(below)
        order = order_by(spec.order, below.schema)
        if not spec.keys and not spec.rank and spec.function == "row_number":
            limit = "" if spec.limit is None else f" LIMIT {spec.limit}"
            by = f" ORDER BY {order}" if order else ""
            return f"SELECT {_list(items)} FROM {source}{by}{limit} OFFSET {spec.offset}"
        groups = f"PARTITION BY {', '.join(_group_key(k, below.schema) for k in spec.keys)} " if spec.keys else ""
        by = f"ORDER BY {order}" if order else ""
        rank = quoted(spec.rank or "!rank")
        test = f"{rank} > {spec.offset}" + ("" if spec.limit is None else f" AND {rank} <= {spec.offset + spec.limit}")
        ranked = f"SELECT *, {spec.function}() OVER ({groups}{by}) AS {rank} FROM {source}"
        return f"SELECT {_list(items)} FROM ({ranked}) WHERE {test}"

    def _over(self, n: Node, spec: Over) -> str:
        (below,) = n.inputs
        items = []
        calls = {c.name: c for c in spec.calls}
        for f in n.schema:
            if f.name in self.needed[id(n)]:
                made = _window(calls[f.name], spec, below.schema) if f.name in calls else quoted(f.name)
                items.append(_as(made, f.name))
        return f"SELECT {_list(items)} FROM {self._from(below)}"

    def _explode(self, n: Node, spec: Explode) -> str:
        kept = [f.name for f in n.inputs[0].schema if f.name in self.needed[id(n)]]
        if not kept and _is_one_row(n.inputs[0]) and (series := _only_series(spec)) is not None:
            return self._series(n, spec, series)
        items = [quoted(name) for name in kept]
        for made in spec.functions:
            assert isinstance(made.expr, Call)
            items.append(_as(f"unnest({self._elements(made.expr)})", made.name))
        return f"SELECT {_list(items)} FROM {self._from(n.inputs[0])}"

    def _series(self, n: Node, spec: Explode, series: Call) -> str:
        """The rows of generate_series, which DuckDB makes one after the other, however many they are."""
        items = []
        for made in spec.functions:
            if made.name in self.needed[id(n)]:
                value = "row_number() OVER ()" if _is_place(made.expr) else "generate_series"
                items.append(_as(f"CAST({value} AS {duckdb_type(made.expr.type)})", made.name))
        return f"SELECT {_list(items)} FROM generate_series({', '.join(map(self._value, series.args))})"

    def _union(self, n: Node) -> str:
        places = [(i, name) for i, name in enumerate(n.schema.names) if name in self.needed[id(n)]]
        sides = []
        for side in n.inputs:
            items = [_as(quoted(side.schema.names[i]), name) for i, name in places]
            sides.append(f"(SELECT {_list(items)} FROM {self._from(side)})")
        return " UNION ALL ".join(sides)


def _parents_first(root: Node) -> list[Node]:
    """Each node once, before those that it reads."""
    seen: set[int] = set()
    found: list[Node] = []
    waiting: list[tuple[Node, bool]] = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            found.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            waiting += [(node, True), *((i, False) for i in node.inputs)]
    return found[::-1]


def _is_one_row(n: Node) -> bool:
    while isinstance(n.spec, Project):
        (n,) = n.inputs
    return isinstance(n.spec, GroupAggregate) and not n.spec.keys


def _is_place(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.args[0], Call) and e.args[0].name == "sql_places"


def _only_series(spec: Explode) -> Call | None:
    """The series of whole numbers between constants, if nothing else is exploded but its places; else None."""
    lists = [f.expr.args[0] for f in spec.functions if isinstance(f.expr, Call) and f.expr.name == "EXPLODE"]
    found = {part for e in lists for part in (e.args if isinstance(e, Call) and e.name == "sql_places" else (e,))}
    if len(found) != 1 or len(lists) != len(spec.functions):
        return None
    (only,) = found
    if not isinstance(only, Call) or only.name != "sql_series":
        return None
    is_known = all(isinstance(a, Literal) and a.value is not None for a in only.args)
    return only if is_known and all(a.type.kind in (Kind.INT, Kind.BIGINT) for a in only.args) else None


def _list(items: Iterable[str]) -> str:
    return ", ".join(items) or "1"


def _as(text: str, name: str) -> str:
    wanted = quoted(name)
    return text if text == wanted else f"{text} AS {wanted}"


def _name_of(e: Expr, functions: Mapping[str, Function]) -> str:
    """The first part of an expression that has no lowering, for people."""
    for part in reversed(walk(e)):
        if lower(part, functions) is None:
            return part.name if isinstance(part, Call | Column | LambdaVar) else type(part).__name__
    return "this expression"


def _as_group(text: str, t: SqlType) -> str:
    """A value as it is grouped by: the two zeros are one."""
    if t.kind is Kind.DOUBLE:
        return f"({text} + 0.0::DOUBLE)"
    if t.kind in _VALUES_ORDERED or t.form == "INTERVAL":
        raise NotRendered(f"groups of {t}")
    return text


def _group_key(name: str, schema: Schema) -> str:
    return _as_group(quoted(name), _type(name, schema))


def _type(name: str, schema: Schema) -> SqlType:
    found = schema.get(name)
    assert found is not None
    return found.type


def order_by(keys: Sequence[SortKey], schema: Schema) -> str:
    """The text behind ORDER BY. Raises NotRendered."""
    made = []
    for key in keys:
        t = _type(key.column, schema)
        if t.kind in _VALUES_ORDERED or t.form in ("JSONB", "INTERVAL"):
            raise NotRendered(f"the order of {t}")
        nulls = "FIRST" if key.nulls_first else "LAST"
        made.append(f"{quoted(key.column)} {'DESC' if key.descending else 'ASC'} NULLS {nulls}")
    return ", ".join(made)


def _arguments(c: GroupCall) -> list[str]:
    return [*c.args, *(o.column for o in c.order), *([c.filter] if c.filter else [])]


def _filtered(name: str) -> str:
    return f" FILTER (WHERE coalesce({quoted(name)}, FALSE))" if name else ""


def _aggregate(c: GroupCall, schema: Schema) -> str:
    args = [quoted(a) for a in c.args]
    types = [_type(a, schema) for a in c.args]
    keys = [*c.order, *(SortKey(a) for a in c.args if all(o.column != a for o in c.order))]
    try:
        order = order_by(keys, schema)
    except NotRendered:
        order = ""
    call = Asked(args, types, c.type, c.init, lambda call: call + _filtered(c.filter), c.distinct, order)
    made = asked_sql(c.function, call)
    if made is None:
        raise NotRendered(c.function)
    return made


def _window(c: WindowCall, spec: Over, schema: Schema) -> str:
    args = [quoted(a) for a in c.args]
    types = [_type(a, schema) for a in c.args]
    ranked = c.function in (*_RANKS, "NTILE", "LAG", "LEAD")
    over = f" OVER ({_frame_of(c, spec, schema, framed=not ranked)})"
    to = duckdb_type(c.type)
    nulls = " IGNORE NULLS" if c.ignore_nulls else ""
    if c.function in _RANKS:
        return f"CAST({c.function.lower()}(){over} AS {to})"
    if any(v is None for v in c.init):
        raise NotRendered(c.function)
    if c.function == "NTILE":
        return f"CAST(ntile({_number(c.init[0])}){over} AS {to})"
    if c.function in ("LAG", "LEAD"):
        offset = _number(c.init[0]) if c.init else "1"
        default = f", {args[1]}" if len(args) > 1 else ""
        return f"CAST({c.function.lower()}({args[0]}, {offset}{default}{nulls}){over} AS {to})"
    if c.function in _AT:
        place = f", {_number(c.init[0])}" if c.function == "NTH_VALUE" else ""
        return f"CAST({c.function.lower()}({args[0]}{place}{nulls}){over} AS {to})"
    call = Asked(args, types, c.type, c.init, lambda call: call + _filtered(c.filter) + over, windowed=True)
    made = asked_sql(c.function, call)
    if made is None:
        raise NotRendered(c.function)
    return made


def _number(value: object) -> str:
    if not isinstance(value, int) or value < 0:
        raise NotRendered(f"the number {value}")
    return str(value)


def _frame_of(c: WindowCall, spec: Over, schema: Schema, *, framed: bool) -> str:
    parts = []
    if spec.keys:
        parts.append("PARTITION BY " + ", ".join(_group_key(k, schema) for k in spec.keys))
    if spec.order:
        parts.append("ORDER BY " + order_by(spec.order, schema))
    if framed:
        parts.append(_frame(c.frame, spec.order, schema))
    return " ".join(parts)


def _frame(frame: Frame, order: Sequence[SortKey], schema: Schema) -> str:
    if frame.unit == "session":
        raise NotRendered("SESSION WITH GAP")
    if frame.unit == "range" and any(v not in (None, 0) for v in (frame.start, frame.end)):
        kind = _type(order[0].column, schema).kind if len(order) == 1 else None
        if kind not in (Kind.INT, Kind.BIGINT, Kind.DECIMAL):
            raise NotRendered("RANGE with a distance in time")
    exclude = f" EXCLUDE {frame.exclude.upper()}" if frame.exclude else ""
    ends = f"{_bound(frame.start, 'PRECEDING')} AND {_bound(frame.end, 'FOLLOWING')}"
    return f"{frame.unit.upper()} BETWEEN {ends}{exclude}"


def _bound(value: Offset | None, unbounded: str) -> str:
    if value is None:
        return f"UNBOUNDED {unbounded}"
    if not value:
        return "CURRENT ROW"
    return f"{abs(value)} {'PRECEDING' if value < 0 else 'FOLLOWING'}"
