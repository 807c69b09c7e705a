"""TUMBLE, HOP and CUMULATE in FROM over relations that change: each row with the windows that its time falls into.

All append `window_start` and `window_end`. A row is in one window of TUMBLE, in as many of HOP as slides fit into its size, and in those
of CUMULATE that begin where one of its size does and end, step by step, behind it. Windows begin at 1970-01-01 plus the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.analyze.mistakes import mistake
from compiler.analyze.relations.expressions import RelBinder
from compiler.analyze.relations.relation import Names, Rel, RelColumn, WindowBound, extended, filtered
from compiler.catalog.catalog import Catalog
from compiler.dialect.ast import Ast, Func, Lit, Name
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.lower_expressions import lower_duration
from compiler.dialect.standard.refuse import fail, unsupported
from compiler.functions.coercion import convert
from compiler.plan.expr import Column
from compiler.plan.logical import NamedExpr
from compiler.plan.types import Kind

WINDOWS_MAX = 100  # windows that one row may be in
_NAMED = {"tumble": ("size",), "hop": ("slide", "size"), "cumulate": ("step", "size"), "session": ("gap",)}
_EXAMPLES = {
    "tumble": "write  TUMBLE(t, ts, INTERVAL '1' MINUTE)",
    "hop": "write  HOP(t, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
    "cumulate": "write  CUMULATE(t, ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    "session": "",
}


def is_time_window(function: t.TableFunction) -> bool:
    return function.call.name[-1].lower() in _NAMED


def source_of(function: t.TableFunction) -> t.Table:
    """The relation that the function reads."""
    named = [a.value for a in function.call.args if isinstance(a, t.Named) and a.name.lower() == "data"]
    positional = [a for a in function.call.args if not isinstance(a, t.Named)]
    (data,) = (*named, *positional, None)[:1]
    parts = data.name if isinstance(data, t.TableArgument) else data.parts if isinstance(data, t.ColumnRef) else ()
    if not parts:
        fail("FQ1001", "expected the name of a table", function.call.span, help=_example(function))
    return t.Table(parts, span=function.call.span)


def in_windows(
    function: t.TableFunction, rel: Rel, catalog: Catalog, names: Names, united: Callable[[Sequence[Rel]], Rel]
) -> Rel:
    """The rows of `rel` with the windows they are in. united: UNION ALL of relations."""
    name = function.call.name[-1].lower()
    if name == "session":
        unsupported("SESSION over a relation", function.span, "make a table of a stream with WINDOW SESSION")
    time, durations = _arguments(function, _NAMED[name])
    binder = RelBinder(rel.columns, catalog, name.upper())
    at = binder.bound(time)
    if at.type.kind is not Kind.TIMESTAMP:
        raise mistake(
            "FQ2005", f"the time column of {name.upper()} is {at.type}, not TIMESTAMP", time.span, "not a time"
        )
    size, slide, offset = durations["size"], durations.get("slide", durations["size"]), durations["offset"]
    step = durations.get("step")
    if step is not None and size % step:
        raise mistake(
            "FQ2005", "the size of CUMULATE is not a multiple of its step", function.call.span, help=_example(function)
        )
    count = size // step if step is not None else -(-size // slide)
    if count > WINDOWS_MAX:
        raise mistake(
            "FQ2005",
            f"a row would be in {count} windows, more than {WINDOWS_MAX}",
            function.call.span,
            help="let the window slide further",
        )
    binder.given = {_MARK: at}
    if step is not None:
        made = [_with_window(rel, binder, names, (step * (k + 1), size, offset, 0)) for k in range(count)]
    else:
        made = [_with_window(rel, binder, names, (size, slide, offset, k)) for k in range(count)]
    return made[0] if count == 1 and slide >= size else united(made)


_MARK = "\0window\0time"


def _with_window(rel: Rel, binder: RelBinder, names: Names, window: tuple[int, int, int, int]) -> Rel:
    """The window that began `k` slides before the newest one that the row may be in; rows that are not in it are left out."""
    size, slide, offset, k = window
    at = binder.given[_MARK]
    ms = Func("UNIX_TIMESTAMP", (Name((_MARK,)),))
    since = Func("mod", (Func("add", (Func("mod", (_less(ms, offset % slide), _ms(slide))), _ms(slide))), _ms(slide)))
    start = _less(Func("sub", (ms, since)), k * slide)
    inside = binder.condition(Func("lt", (ms, Func("add", (start, _ms(size))))))
    columns = [
        (name, binder.bind(Func("FROM_UNIXTIME", (value,))))
        for name, value in (("window_start", start), ("window_end", Func("add", (start, _ms(size)))))
    ]
    computed = [NamedExpr(names.fresh(name), convert(e, at.type)) for name, e in columns]
    if isinstance(at, Column):
        for c, last_ms in zip(computed, (size - 1, -1), strict=True):
            names.windows[c.name] = WindowBound(at.name, last_ms)
    if size % slide or k:
        rel = filtered(rel, [inside])
    made = extended(rel, computed)
    bounds = tuple(RelColumn("", n, at.type, c.name) for (n, _), c in zip(columns, computed, strict=True))
    return replace(made, columns=(*rel.columns, *bounds))


def _ms(n: int) -> Lit:
    return Lit("bigint", n)


def _less(value: Ast, n: int) -> Ast:
    return Func("sub", (value, _ms(n))) if n else value


def _arguments(function: t.TableFunction, places: Sequence[str]) -> tuple[t.Expr, dict[str, int]]:
    """The time column, and durations in ms by name."""
    if function.ordinality:
        unsupported("WITH ORDINALITY of a window function", function.span)
    given: dict[str, t.Expr] = {}
    for place, arg in zip(("data", "timecol", *places, "offset"), function.call.args, strict=False):
        given[arg.name.lower() if isinstance(arg, t.Named) else place] = arg.value if isinstance(arg, t.Named) else arg
    missing = [p for p in ("timecol", *places) if p not in given]
    if missing or len(function.call.args) > len(places) + 3:
        fail(
            "FQ1009",
            f"{function.call.name[-1].upper()} lacks {', '.join(missing) or 'nothing'}",
            function.call.span,
            help=_example(function),
        )
    durations = {"offset": 0}
    for place in (*places, *(["offset"] if "offset" in given else [])):
        node = given[place]
        if isinstance(node, t.Constant) and node.kind == "string":
            node = t.Interval(node.value, span=node.span)
        if not isinstance(node, t.Interval):
            fail("FQ1001", f"expected the {place} as an interval", node.span, help=_example(function))
        durations[place] = lower_duration(node)
        if durations[place] <= 0 and place != "offset":
            fail("FQ1009", f"the {place} must be longer than nothing", node.span, help=_example(function))
    time = given["timecol"]
    if isinstance(time, t.Call) and time.name == ("descriptor",) and len(time.args) == 1:
        time = time.args[0]
    return time, durations


def _example(function: t.TableFunction) -> str:
    return _EXAMPLES[function.call.name[-1].lower()]
