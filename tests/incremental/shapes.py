"""Which queries are tried: each operator by itself, and views on views."""

from __future__ import annotations

from tests.incremental.check import Shape
from tests.incremental.queries import (
    Maker,
    Query,
    filtered,
    grouped,
    joined,
    projected,
    set_operation,
    topped,
    union_all,
)
from tests.incremental.windows import windowed


def moved(m: Maker) -> Query:
    """Filters, projections and UNION ALL of two tables, or of one with itself."""
    parts = [filtered(m, m.table(0)), m.table(m.rng.choice((0, 1)))]
    return projected(m, union_all(m, parts))


def aggregated(m: Maker) -> Query:
    return grouped(m, filtered(m, m.table(0)))


def totals(m: Maker) -> Query:
    return grouped(m, filtered(m, m.table(0)), global_=True)


def paired(m: Maker) -> Query:
    return joined(m, m.table(0), m.table(m.rng.choice((0, 1))))


def counted_rows(m: Maker) -> Query:
    kind = m.rng.choice(("distinct", "intersect", "except"))
    parts = [filtered(m, m.table(0)), m.table(1)][: 1 if kind == "distinct" else 2]
    return set_operation(m, parts, kind, all_=m.rng.random() < 0.4)


def ranked(m: Maker) -> Query:
    return topped(m, filtered(m, m.table(0)))


def windows(m: Maker) -> Query:
    return windowed(m, filtered(m, m.table(0)))


def near_windows(m: Maker) -> Query:
    """Frames with an offset on both sides, LAG and LEAD."""
    return windowed(m, m.table(0), reach="near")


def running_windows(m: Maker) -> Query:
    """Frames up to the current row, and ranks."""
    return windowed(m, m.table(0), reach="running")


def views(m: Maker) -> Query:
    """Two or three operators on top of each other."""
    return _view(m, m.rng.choice((2, 2, 3)))


def _view(m: Maker, depth: int) -> Query:
    """A pair of all rows with all is made of small results alone."""
    if not depth:
        return m.table()
    kind = m.rng.choice(
        ("aggregate", "aggregate", "total", "join", "join", "theta", "set", "top", "over", "over", "move", "union")
    )
    match kind:
        case "aggregate":
            return grouped(m, _view(m, depth - 1), exact=True)
        case "total":
            return grouped(m, _view(m, depth - 1), global_=True, exact=True)
        case "join":
            return joined(
                m, _view(m, depth - 1), _view(m, m.rng.randint(0, depth - 1)), equalities=m.rng.choice((1, 2))
            )
        case "theta":
            return joined(
                m,
                grouped(m, _view(m, depth - 1), exact=True),
                grouped(m, m.table(), global_=True, exact=True),
                equalities=0,
            )
        case "set":
            below = _view(m, depth - 1)
            if len(below.values) < 2 or m.rng.random() < 0.5:
                return set_operation(m, [below], "distinct", all_=False)
            return set_operation(
                m, [m.table(), m.table()], m.rng.choice(("intersect", "except")), all_=m.rng.random() < 0.5
            )
        case "top":
            return topped(m, _view(m, depth - 1))
        case "over":
            return windowed(m, _view(m, depth - 1), exact=True)
        case "union":
            below = _view(m, depth - 1)
            return union_all(m, [below, filtered(m, below)])
    return projected(m, filtered(m, _view(m, depth - 1)))


SHAPES: dict[str, Shape] = {
    f.__name__.replace("_", "-"): f
    for f in (
        moved,
        aggregated,
        totals,
        paired,
        counted_rows,
        ranked,
        windows,
        near_windows,
        running_windows,
        views,
    )
}
