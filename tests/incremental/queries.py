"""Random plans, each with the SQL text of which DuckDB gives the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, GroupCall, SetOperation, SortKey, TopN
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Filter, NamedExpr, Node, Project, Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, Kind, SqlType, array, decimal, duckdb_type
from tests.incremental.tables import Table


@dataclass
class Query:
    """A node, and the same as SQL. label: which operators it is of."""

    node: Node
    sql: str
    labels: tuple[str, ...] = ()

    @property
    def values(self) -> list[Field]:
        return [f for f in self.node.schema if f.role != "key"]


@dataclass
class Maker:
    """Random queries over some tables; names that it gives are unique."""

    tables: Sequence[Table]
    rng: random.Random
    _count: int = field(default=0)

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def table(self, which: int | None = None) -> Query:
        table = self.rng.choice(self.tables) if which is None else self.tables[which]
        return renamed(self, Query(table.node(), f"SELECT * FROM {table.name}"))

    def pick(self, query: Query, *kinds: Kind) -> Field:
        """A random column, of one of these kinds."""
        found = [f for f in query.values if not kinds or f.type.kind in kinds]
        return self.rng.choice(found or query.values)


def column(f: Field) -> Column:
    return Column(f.type, f.name)


def renamed(maker: Maker, below: Query) -> Query:
    """All columns under new names, so that a relation can meet itself."""
    pairs = [(f, maker.name("c" if f.role != "key" else "__i")) for f in below.node.schema]
    columns = tuple(NamedExpr(new, column(f)) for f, new in pairs)
    schema = Schema(tuple(Field(new, f.type, f.role) for f, new in pairs))
    selected = ", ".join(f"{f.name} AS {new}" for f, new in pairs if f.role != "key")
    return Query(
        Node(Project(columns), (below.node,), schema, "retract"), f"SELECT {selected} FROM ({below.sql})", below.labels
    )


def filtered(maker: Maker, below: Query) -> Query:
    """A comparison with a constant."""
    f = maker.pick(below, Kind.INT, Kind.BIGINT)
    n, sign, text = maker.rng.randint(-1, 2), *maker.rng.choice((("le", "<="), ("ne", "<>"), ("ge", ">=")))
    if f.type.kind not in (Kind.INT, Kind.BIGINT):
        return below
    predicate = Call(BOOLEAN, sign, (column(f), Literal(f.type, n)))
    sql = f"SELECT * FROM ({below.sql}) WHERE {f.name} {text} {n}"
    return Query(Node(Filter(predicate), (below.node,), below.node.schema, "retract"), sql, (*below.labels, "filter"))


def projected(maker: Maker, below: Query) -> Query:
    """Some columns in another order, and a computed one; the row identity goes along."""
    chosen = [f for f in below.values if maker.rng.random() < 0.7] or below.values[:1]
    maker.rng.shuffle(chosen)
    pairs: list[tuple[Field, Expr, str]] = [(Field(maker.name("p"), f.type), column(f), f.name) for f in chosen]
    f = maker.pick(below, Kind.INT, Kind.BIGINT)
    if f.type.kind in (Kind.INT, Kind.BIGINT):
        pairs.append(
            (Field(maker.name("p"), f.type), Call(f.type, "add", (column(f), Literal(f.type, 1))), f"{f.name} + 1")
        )
    keys = [(f, column(f)) for f in below.node.schema.key]
    exprs = tuple(NamedExpr(f.name, e) for f, e in [*keys, *((f, e) for f, e, _ in pairs)])
    schema = Schema((*(f for f, _ in keys), *(f for f, _, _ in pairs)))
    selected = ", ".join(f"CAST({text} AS {duckdb_type(f.type)}) AS {f.name}" for f, _, text in pairs)
    sql = f"SELECT {selected} FROM ({below.sql})"
    return Query(Node(Project(exprs), (below.node,), schema, "retract"), sql, (*below.labels, "project"))


def union_all(maker: Maker, parts: Sequence[Query]) -> Query:
    """(branch, row identity): each branch has its own identity columns, NULL in the others."""
    width = min(len(p.values) for p in parts)
    names = [maker.name("u") for _ in range(width)]
    branch = Field(maker.name("__b"), INT, "key")
    identity = [[Field(maker.name("__u"), f.type, "key") for f in p.node.schema.key] for p in parts]
    types = [f.type for f in parts[0].values[:width]]
    schema = Schema(
        (branch, *(f for of in identity for f in of), *(Field(n, t) for n, t in zip(names, types, strict=True)))
    )
    nodes, texts = [], []
    for i, part in enumerate(parts):
        values = part.values[:width]
        if [f.type for f in values] != types:
            return parts[0]
        exprs = [NamedExpr(branch.name, Literal(INT, i))]
        for j, of in enumerate(identity):
            own = zip(of, part.node.schema.key, strict=True) if i == j else ((f, None) for f in of)
            exprs += [NamedExpr(f.name, Literal(f.type, None) if k is None else column(k)) for f, k in own]
        exprs += [NamedExpr(n, column(f)) for n, f in zip(names, values, strict=True)]
        nodes.append(Node(Project(tuple(exprs)), (part.node,), schema, "retract"))
        texts.append(
            "SELECT "
            + ", ".join(f"{f.name} AS {n}" for n, f in zip(names, values, strict=True))
            + f" FROM ({part.sql})"
        )
    labels = tuple(x for p in parts for x in p.labels)
    return Query(Node(Union(), tuple(nodes), schema, "retract"), " UNION ALL ".join(texts), (*labels, "union all"))


# Aggregates: (function, kinds of the argument, result, SQL with {x}: the argument, {d}: DISTINCT, {o}: ORDER BY).
_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)
_WHOLE = (Kind.INT, Kind.BIGINT)
_ANY = (*_NUMBERS, Kind.STRING, Kind.BOOLEAN)


def _sum_type(t: SqlType) -> SqlType:
    if t.kind is Kind.DOUBLE:
        return DOUBLE
    return decimal(38, t.scale)


@dataclass(frozen=True)
class Sample:
    function: str
    kinds: tuple[Kind, ...]
    result: Callable[[SqlType], SqlType]
    sql: str
    init: tuple[str | float, ...] = ()
    ordered: bool = False
    distinct: bool = True


def _same(t: SqlType) -> SqlType:
    return t


_LATER = "NULLS LAST"
SAMPLES = (
    Sample("COUNT", _ANY, lambda t: BIGINT, "count({d}{x})"),
    Sample("SUM", _NUMBERS, _sum_type, "sum({d}{x})"),
    Sample("AVG", _NUMBERS, lambda t: DOUBLE, "avg({d}{x})"),
    Sample("VAR_SAMP", _NUMBERS, lambda t: DOUBLE, "var_samp({d}{x})"),
    Sample("STDDEV_POP", _NUMBERS, lambda t: DOUBLE, "stddev_pop({d}{x})"),
    Sample("BOOL_AND", (Kind.BOOLEAN,), _same, "bool_and({d}{x})"),
    Sample("BOOL_OR", (Kind.BOOLEAN,), _same, "bool_or({d}{x})"),
    Sample("MIN", _ANY, _same, "min({d}{x})"),
    Sample("MAX", _ANY, _same, "max({d}{x})"),
    Sample("FIRST_VALUE", _ANY, _same, "first({x}{o})", ordered=True, distinct=False),
    Sample("LAST_VALUE", _ANY, _same, "last({x}{o})", ordered=True, distinct=False),
    Sample("STRING_AGG", (Kind.STRING,), _same, "string_agg({d}{x}, ';'{o})", (";",), ordered=True),
    Sample("ARRAY_AGG", _ANY, array, "list({d}{x}{o})", ordered=True),
    Sample("PERCENTILE_DISC", _NUMBERS, _same, "quantile_disc({d}{x}, {p})", (0.3,)),
    Sample("PERCENTILE_CONT", (*_WHOLE, Kind.DOUBLE), lambda t: DOUBLE, "quantile_cont({d}{x}, {p})", (0.5,)),
)


# Their last digits depend on how they are computed, so nothing may be grouped or joined by them.
INEXACT = ("AVG", "VAR_SAMP", "STDDEV_POP")


def grouped(maker: Maker, below: Query, *, global_: bool = False, exact: bool = False) -> Query:
    """Up to two keys and up to four aggregates; exact: their results may be keys."""
    rng = maker.rng
    samples = [s for s in SAMPLES if not (exact and s.function in INEXACT)]
    values = [f for f in below.values if f.type.kind is not Kind.ARRAY]
    keys = [] if global_ else rng.sample(values, min(len(values), rng.choice((1, 1, 2))))
    schema = [Field(maker.name("__g"), k.type, "key") for k in keys]
    calls = [GroupCall(maker.name("a"), "COUNT", (), BIGINT)]
    texts = [f"count(*) AS {calls[0].name}"]
    for _ in range(rng.randint(1, 3)):
        sample = rng.choice(samples)
        fitting = [f for f in values if f.type.kind in sample.kinds]
        if not fitting:
            continue
        call, text = _call(maker, sample, rng.choice(fitting), values)
        calls.append(call)
        texts.append(text)
    key_names = [maker.name("k") for _ in keys]
    node = Node(
        GroupAggregate(tuple(k.name for k in keys), tuple(calls)),
        (below.node,),
        Schema((*schema, *(Field(c.name, c.type) for c in calls))),
        "retract",
    )
    shown = [*((NamedExpr(f.name, column(f)), f) for f in schema)]
    shown += [(NamedExpr(n, column(f)), Field(n, f.type)) for n, f in zip(key_names, schema, strict=True)]
    shown += [(NamedExpr(c.name, Column(c.type, c.name)), Field(c.name, c.type)) for c in calls]
    project = Node(Project(tuple(e for e, _ in shown)), (node,), Schema(tuple(f for _, f in shown)), "retract")
    selected = [f"{k.name} AS {n}" for k, n in zip(keys, key_names, strict=True)]
    by = f" GROUP BY {', '.join(k.name for k in keys)}" if keys else ""
    sql = f"SELECT {', '.join([*selected, *texts])} FROM ({below.sql}){by}"
    labels = (*below.labels, "global aggregate" if global_ else "aggregate", *(c.function for c in calls))
    return Query(project, sql, labels)


def _call(maker: Maker, sample: Sample, f: Field, values: Sequence[Field]) -> tuple[GroupCall, str]:
    rng = maker.rng
    distinct = sample.distinct and rng.random() < 0.35
    order: tuple[SortKey, ...] = ()
    text = ""
    if sample.ordered:
        if not distinct and rng.random() < 0.6:
            by = rng.choice(values)
            order = (SortKey(by.name, rng.random() < 0.5, rng.random() < 0.5),)
        parts = [
            f"{k.column} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}"
            for k in order
        ]
        text = f" ORDER BY {', '.join([*parts, f'{f.name} ASC {_LATER}'])}"
    flags = [v for v in values if v.type.kind is Kind.BOOLEAN]
    flag = rng.choice(flags).name if flags and rng.random() < 0.25 else ""
    result = sample.result(f.type)
    x = sample.sql.format(x=f.name, d="DISTINCT " if distinct else "", o=text, p=sample.init[0] if sample.init else "")
    where = f" FILTER (WHERE {flag})" if flag else ""
    call = GroupCall(maker.name("a"), sample.function, (f.name,), result, distinct, flag, order, sample.init)
    return call, f"CAST({x}{where} AS {duckdb_type(result)}) AS {call.name}"


_KINDS = ("inner", "left", "right", "full", "semi", "anti")
_SQL_JOINS = {"inner": "INNER JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}


def joined(maker: Maker, left: Query, right: Query, *, kind: str = "", equalities: int | None = None) -> Query:
    """Any kind of join on up to two pairs of columns and maybe a residual; both sides have been renamed apart."""
    rng = maker.rng
    kind = kind or rng.choice(_KINDS)
    n = rng.choice((0, 1, 1, 1, 2)) if equalities is None else equalities
    pairs = [(a, b) for a in left.values for b in right.values if a.type == b.type and a.type.kind is not Kind.ARRAY]
    few = [(a, b) for a, b in pairs if a.type.kind in (Kind.INT, Kind.STRING, Kind.BOOLEAN)] or pairs
    chosen = rng.sample(few, min(n, len(few)))
    null_safe = bool(chosen) and rng.random() < 0.25
    residual, residual_sql = None, ""
    numbers = [(a, b) for a, b in pairs if a.type.kind in (Kind.BIGINT, Kind.INT, Kind.DOUBLE)]
    if numbers and rng.random() < 0.5:
        a, b = rng.choice(numbers)
        sign, text = rng.choice((("lt", "<"), ("ge", ">="), ("ne", "<>")))
        residual, residual_sql = Call(BOOLEAN, sign, (column(a), column(b))), f"{a.name} {text} {b.name}"
    spec = EquiJoin(
        kind,  # type: ignore[arg-type]
        tuple(a.name for a, _ in chosen),
        tuple(b.name for _, b in chosen),
        residual,
        null_safe,
    )
    one_side = kind in ("semi", "anti")
    sides = [left] if one_side else [left, right]
    keys = [f for s in sides for f in s.node.schema.key]
    if kind == "full":
        keys.append(Field(maker.name("__side"), INT, "key"))
    shown = [f for s in sides for f in s.values if rng.random() < 0.8] or sides[0].values[:1]
    node = Node(spec, (left.node, right.node), Schema((*keys, *shown)), "retract")
    equal = "IS NOT DISTINCT FROM" if null_safe else "="
    on = " AND ".join([*(f"{a.name} {equal} {b.name}" for a, b in chosen), *filter(None, [residual_sql])]) or "TRUE"
    names = ", ".join(f.name for f in shown)
    if one_side:
        sign = "" if kind == "semi" else "NOT "
        sql = f"SELECT {names} FROM ({left.sql}) WHERE {sign}EXISTS (SELECT 1 FROM ({right.sql}) WHERE {on})"
    else:
        sql = f"SELECT {names} FROM ({left.sql}) {_SQL_JOINS[kind]} ({right.sql}) ON {on}"
    labels = [f"{kind} join", *(["cross join"] if not chosen else []), *(["residual"] if residual else [])]
    return Query(node, sql, (*left.labels, *right.labels, *labels))


def set_operation(maker: Maker, parts: Sequence[Query], kind: str, *, all_: bool) -> Query:
    """DISTINCT of the first, or INTERSECT or EXCEPT of two, over columns of the same types."""
    width = maker.rng.randint(1, 3)
    chosen = [p.values[1 : 1 + width] or p.values[:1] for p in parts]
    names = [maker.name("s") for _ in chosen[0]]
    inputs, texts = [], []
    for part, fields in zip(parts, chosen, strict=True):
        own = [Field(maker.name("s"), f.type) for f in fields]
        exprs = [NamedExpr(f.name, column(f)) for f in part.node.schema.key]
        exprs += [NamedExpr(o.name, column(f)) for o, f in zip(own, fields, strict=True)]
        schema = Schema((*part.node.schema.key, *own))
        inputs.append(Node(Project(tuple(exprs)), (part.node,), schema, "retract"))
        texts.append(
            "SELECT "
            + ", ".join(f"{f.name} AS {n}" for f, n in zip(fields, names, strict=True))
            + f" FROM ({part.sql})"
        )
    keys = [Field(maker.name("__s"), f.type, "key") for f in chosen[0]]
    copies = [Field(maker.name("__n"), INT, "key")] if all_ else []
    out = Schema((*keys, *copies, *(Field(n, f.type) for n, f in zip(names, chosen[0], strict=True))))
    node = Node(SetOperation(kind, all_), tuple(inputs), out, "retract")  # type: ignore[arg-type]
    if kind == "distinct":
        sql = f"SELECT {'' if all_ else 'DISTINCT '}* FROM ({texts[0]})"
    else:
        sql = f" {kind.upper()}{' ALL' if all_ else ''} ".join(f"({t})" for t in texts)
    labels = [x for p in parts for x in p.labels]
    return Query(node, sql, (*labels, f"{kind}{' all' if all_ else ''}"))


def topped(maker: Maker, below: Query) -> Query:
    """Ranks per up to one column; ties of ROW_NUMBER are broken by all columns, so that DuckDB breaks them alike."""
    rng = maker.rng
    plain = [f for f in below.values if f.type.kind is not Kind.ARRAY]
    keys = rng.sample(plain, rng.choice((0, 1, 1)))
    function = rng.choice(("row_number", "row_number", "rank", "dense_rank"))
    by = rng.sample(plain, rng.choice((1, 2)) if len(plain) > 1 else 1)
    order = [SortKey(f.name, rng.random() < 0.5, rng.random() < 0.5) for f in by]
    if function == "row_number":
        order += [SortKey(f.name) for f in plain if f not in by]
    limit, offset = rng.choice((1, 1, 3, 30, None)), rng.choice((0, 0, 2))
    rank = maker.name("r")
    spec = TopN(tuple(k.name for k in keys), tuple(order), limit, offset, function, rank)  # type: ignore[arg-type]
    node = Node(spec, (below.node,), Schema((*below.node.schema, Field(rank, BIGINT))), "retract")
    partition = f"PARTITION BY {', '.join(k.name for k in keys)} " if keys else ""
    parts = [
        f"{k.column} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}" for k in order
    ]
    names = ", ".join(f.name for f in below.values)
    inner = f"SELECT {names}, {function}() OVER ({partition}ORDER BY {', '.join(parts)}) AS {rank} FROM ({below.sql})"
    until = "" if limit is None else f" AND {rank} <= {offset + limit}"
    sql = f"SELECT * FROM ({inner}) WHERE {rank} > {offset}{until}"
    return Query(node, sql, (*below.labels, function))
