"""Random window functions over relations, each with the SQL text of which DuckDB gives the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from flowql.compiler.plan.changes import Frame, Offset, Over, SortKey, WindowCall
from flowql.compiler.plan.logical import NamedExpr, Node, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, DOUBLE, Kind, array, duckdb_type
from tests.incremental.queries import INEXACT, SAMPLES, Maker, Query, column

NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)
_PLAIN = tuple(s for s in SAMPLES if not s.ordered and not s.function.startswith("PERCENTILE"))
_COUNTED = ("ROW_NUMBER", "RANK", "DENSE_RANK", "NTILE")
_RATIOS = ("PERCENT_RANK", "CUME_DIST")
_ORDERED = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "STRING_AGG", "ARRAY_AGG")


@dataclass(frozen=True)
class Window:
    """What all calls of a query share. total: nothing but equal rows are peers, so that DuckDB breaks ties alike."""

    keys: tuple[Field, ...]
    order: tuple[SortKey, ...]
    by: tuple[Field, ...]
    total: bool
    values: tuple[Field, ...]

    @property
    def sql(self) -> str:
        parts = [f"PARTITION BY {', '.join(k.name for k in self.keys)}"] if self.keys else []
        order = [
            f"{k.column} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}"
            for k in self.order
        ]
        return " ".join([*parts, *([f"ORDER BY {', '.join(order)}"] if order else [])])


def windowed(maker: Maker, below: Query, *, exact: bool = False, reach: str = "") -> Query:
    """Up to three calls over one window. exact: their results may be keys. reach: `near`, `running` or `whole`; empty: any."""
    rng = maker.rng
    below = _without_arrays(below)
    values = below.values
    keys = rng.sample(values, min(len(values), rng.choice((0, 1, 1, 2))))
    by = rng.sample(values, rng.choice((1, 1, 2)) if len(values) > 1 else 1)
    order = [SortKey(f.name, rng.random() < 0.5, rng.random() < 0.5) for f in by]
    total = rng.random() < 0.6
    if total:
        order += [SortKey(f.name) for f in values if f not in by]
        by += [f for f in values if f not in by]
    elif not reach and rng.random() < 0.15:
        order, by = [], []
    window = Window(tuple(keys), tuple(order), tuple(by), total, tuple(values))
    made = [_call(maker, window, exact=exact, reach=reach) for _ in range(rng.randint(1, 3))]
    calls = tuple(c for c, _ in made)
    spec = Over(tuple(k.name for k in keys), window.order, calls)
    schema = Schema((*below.node.schema, *(Field(c.name, c.type) for c in calls)))
    shown = ", ".join([*(f.name for f in values), *(text for _, text in made)])
    labels = ("over", *(f"over {c.function}" for c in calls), *(f"frame {_sort(c)}" for c in calls))
    return Query(
        Node(spec, (below.node,), schema, "retract"), f"SELECT {shown} FROM ({below.sql})", (*below.labels, *labels)
    )


def _without_arrays(below: Query) -> Query:
    """DuckDB could not break ties of rows that differ in arrays alone."""
    kept = [f for f in below.values if f.type.kind is not Kind.ARRAY]
    if len(kept) == len(below.values):
        return below
    shown = [*below.node.schema.key, *kept]
    node = Node(
        Project(tuple(NamedExpr(f.name, column(f)) for f in shown)), (below.node,), Schema(tuple(shown)), "retract"
    )
    return Query(node, f"SELECT {', '.join(f.name for f in kept)} FROM ({below.sql})", below.labels)


def _call(maker: Maker, window: Window, *, exact: bool, reach: str) -> tuple[WindowCall, str]:
    """A call and its SQL."""
    rng = maker.rng
    sort = rng.random()
    if window.order and sort < 0.35 and (window.total or sort < 0.2):
        return _ranking(maker, window, exact=exact, reach=reach)
    if window.total and sort < 0.7:
        return _ordered(maker, window, reach=reach)
    return _aggregate(maker, window, exact=exact, reach=reach)


def _ranking(maker: Maker, window: Window, *, exact: bool, reach: str) -> tuple[WindowCall, str]:
    rng = maker.rng
    near = reach in ("near", "running")
    names = [n for n in _COUNTED if window.total or n in ("RANK", "DENSE_RANK")] + [*_RATIOS] * (not exact)
    if near:
        names = [n for n in names if n not in ("NTILE", *_RATIOS)]
    if reach == "near":
        return _aggregate(maker, window, exact=exact, reach=reach)
    function = rng.choice(names)
    init = (rng.choice((1, 2, 3, 10)),) if function == "NTILE" else ()
    call = WindowCall(maker.name("w"), function, (), DOUBLE if function in _RATIOS else BIGINT, init=init)
    return call, _text(window, call, ", ".join(map(str, init)), framed=False)


def _ordered(maker: Maker, window: Window, *, reach: str) -> tuple[WindowCall, str]:
    """Functions whose result depends on the order of single rows."""
    rng = maker.rng
    f = rng.choice(window.values)
    texts = [v for v in window.values if v.type.kind is Kind.STRING]
    names = [n for n in _ORDERED if n != "STRING_AGG" or texts]
    function = rng.choice(names)
    frame = _frame(maker, window, reach=reach)
    ignore = reach != "near" and rng.random() < 0.2
    name = maker.name("w")
    if function in ("LAG", "LEAD"):
        offset = rng.choice((0, 1, 1, 2, 5, -1))
        others = [v for v in window.values if v.type == f.type]
        args = (f.name, rng.choice(others).name) if rng.random() < 0.4 else (f.name,)
        call = WindowCall(name, function, args, f.type, init=(offset,), ignore_nulls=ignore)
        inner = ", ".join([f.name, str(offset), *args[1:]])
        return call, _text(window, call, inner, framed=False)
    if function in ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"):
        init = (rng.choice((1, 2, 4)),) if function == "NTH_VALUE" else ()
        call = WindowCall(name, function, (f.name,), f.type, frame, "", init, ignore)
        return call, _text(window, call, ", ".join([f.name, *map(str, init)]))
    if function == "STRING_AGG":
        f = rng.choice(texts)
        call = WindowCall(name, function, (f.name,), f.type, frame, _filter(maker, window), (";",))
        return call, _text(window, call, f"{f.name}, ';'")
    call = WindowCall(name, function, (f.name,), array(f.type), frame, _filter(maker, window))
    return call, _text(window, call, f.name, sql="list")


def _aggregate(maker: Maker, window: Window, *, exact: bool, reach: str) -> tuple[WindowCall, str]:
    rng = maker.rng
    samples = [s for s in _PLAIN if not (exact and s.function in INEXACT)]
    frame = _frame(maker, window, reach=reach)
    sample, name = rng.choice(samples), maker.name("w")
    fitting = [f for f in window.values if f.type.kind in sample.kinds]
    if not fitting:
        call = WindowCall(name, "COUNT", (), BIGINT, frame)
        return call, _text(window, call, "*")
    f = rng.choice(fitting)
    call = WindowCall(name, sample.function, (f.name,), sample.result(f.type), frame, _filter(maker, window))
    return call, _text(window, call, f.name)


def _filter(maker: Maker, window: Window) -> str:
    flags = [v for v in window.values if v.type.kind is Kind.BOOLEAN]
    return maker.rng.choice(flags).name if flags and maker.rng.random() < 0.2 else ""


def _frame(maker: Maker, window: Window, *, reach: str) -> Frame:
    """A frame whose rows are the same in DuckDB: by rows only where ties are broken."""
    rng = maker.rng
    if not window.order:
        return rng.choice((Frame(), Frame("range", None, None)))
    units = ["range", "groups", *["rows"] * (2 * window.total)]
    unit = rng.choice(units)
    reach = reach or rng.choice(("near", "near", "running", "running", "whole"))
    if reach == "running":
        return Frame(unit, None, 0)  # type: ignore[arg-type]
    offsets = _offsets(maker, window.by) if unit == "range" else [0, 1, 2, 4]
    if reach == "near":
        pairs = [(-a, b) for a in offsets for b in offsets]
        pairs += [(a, b) for a in offsets for b in offsets if a] if 1 in offsets else []
        pairs = [(a, b) for a, b in pairs if not (a > 0 and b <= 0) and not (a == 0 and b < 0)]
        start, end = rng.choice(pairs)
        if rng.random() < 0.2 and start < 0:
            end = -rng.choice(offsets)
    else:
        start, end = rng.choice([(None, None), (0, None), (None, rng.choice(offsets)), (-rng.choice(offsets), None)])
    exclude = rng.choice(("current row", "group", "ties")) if rng.random() < 0.3 else ""
    return Frame(unit, start, end, exclude)  # type: ignore[arg-type]


def _offsets(maker: Maker, by: Sequence[Field]) -> list[Offset]:
    if len(by) != 1 or by[0].type.kind not in NUMBERS:
        return [0]
    match by[0].type.kind:
        case Kind.DOUBLE:
            return [0, 0.25, 0.6, 3.0]
        case Kind.DECIMAL:
            return [0, Decimal("0.1"), Decimal("0.25"), Decimal(2)]
    return [0, 1, 2, 5]


def _sort(c: WindowCall) -> str:
    if c.function in (*_COUNTED, *_RATIOS, "LAG", "LEAD"):
        return "none"
    frame = c.frame
    if frame.start is None or frame.end is None:
        return f"{frame.unit} {'running' if frame.end == 0 else 'whole'}"
    return f"{frame.unit} near"


def _text(window: Window, c: WindowCall, inner: str, *, sql: str = "", framed: bool = True) -> str:
    """framed: say the frame; the default one is left out."""
    nulls = " IGNORE NULLS" if c.ignore_nulls else ""
    where = f" FILTER (WHERE {c.filter})" if c.filter else ""
    frame = "" if not framed or c.frame == Frame() else f" {_frame_sql(c.frame)}"
    call = f"{sql or c.function.lower()}({inner}{nulls}){where} OVER ({window.sql}{frame})"
    return f"CAST({call} AS {duckdb_type(c.type)}) AS {c.name}"


def _frame_sql(frame: Frame) -> str:
    exclude = f" EXCLUDE {frame.exclude.upper()}" if frame.exclude else ""
    return (
        f"{frame.unit.upper()} BETWEEN {_bound(frame.start, 'PRECEDING')} AND {_bound(frame.end, 'FOLLOWING')}{exclude}"
    )


def _bound(offset: Offset | None, side: str) -> str:
    if offset is None:
        return f"UNBOUNDED {side}"
    if not offset:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"
