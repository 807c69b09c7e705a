"""How the rows of a node are spread over partitions, and which spreads can meet in a join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, SetOperation, TemporalJoin, VersionJoin
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of, conjuncts
from flowql.compiler.plan.logical import Explode, Filter, Format, Node, Project, Rekey, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind
from flowql.compiler.schemas.ref import JSON_OBJECT

# How operators over changes place rows: NULLs and zeros of either sign included, every value has its bytes (`flowql.runtime.state.keys`).
MEMCOMPARABLE = Format("MEMCOMPARABLE", wrap=False)
_KAFKA = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.STRING, Kind.BYTES)


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows lie on the partition of these columns, written in this format.

    columns: None when they follow no column of the node any more. moved: the key has changed since the rows were last
    written, and is another one than these columns, so that a keyed operator may need a repartition first. origin: the source whose topic decides, None behind an
    exchange. nulls: rows in which all of these columns are NULL may be on any partition, as records of a stream without a key are.
    equal: other columns that have the same values, in the same order.
    """

    columns: tuple[str, ...] | None
    format: Format
    moved: bool = False
    origin: str | None = None
    nulls: bool = False
    equal: tuple[str, ...] | None = None

    def renamed(self, names: Mapping[str, str]) -> Spread:
        """Under new names of columns. Columns without one are gone."""
        columns, equal = renamed(self.columns, names), renamed(self.equal, names)
        return replace(self, columns=equal if columns is None else columns, equal=None if columns is None else equal)


def exchange_format(fields: Sequence[Field]) -> Format:
    """How internal topics write keys: KAFKA where it can hold them, else JSON."""
    plain = len(fields) == 1 and fields[0].type.kind in _KAFKA
    return Format("KAFKA" if plain else "JSON", wrap=False)


def spread_of_scan(node: Node, spec: Scan, partitions: Mapping[str, int]) -> Spread:
    """partitions: of sources, where known."""
    if spec.key_format.name == JSON_OBJECT:  # whose bytes have the names of columns in them, and maybe a schema
        return Spread(None, spec.key_format, origin=spec.source)
    nulls = spec.kind == "stream" and partitions.get(spec.source) != 1
    return Spread(tuple(f.name for f in node.schema.key) or None, spec.key_format, origin=spec.source, nulls=nulls)


def spread_through(node: Node, below: Spread) -> Spread:
    """The spread after an operator with one input that moves no rows."""
    if isinstance(node.spec, Project):
        names = {c.expr.name: c.name for c in reversed(node.spec.columns) if isinstance(c.expr, Column)}
        last = {c.expr.name: c.name for c in node.spec.columns if isinstance(c.expr, Column)}
        spread = below.renamed(names)
        return spread if spread.equal is not None else replace(spread, equal=renamed(below.columns, last))
    if isinstance(node.spec, Rekey):
        names = {k.expr.name: k.name for k in node.spec.keys if isinstance(k.expr, Column)}
        kept = renamed(below.columns, names)
        same = kept is not None and kept == tuple(k.name for k in node.spec.keys)
        if node.inputs[0].schema.window is not None:  # its writer may have partitioned it by key and window together
            return replace(below, columns=None, equal=None, moved=True)
        return replace(below, columns=kept, equal=None, moved=below.moved or not same)
    if isinstance(node.spec, Filter) and below.nulls:
        return replace(below, nulls=not _is_there(node.spec.predicate, below.columns or ()))
    return below


def _is_there(predicate: Expr, columns: tuple[str, ...]) -> bool:
    """Whether a condition is true only where one of these columns is not NULL."""
    there = {c.args[0] for c in conjuncts(predicate) if isinstance(c, Call) and c.name == "is_not_null"}
    return any(isinstance(e, Column) and e.name in columns for e in there)


def _below(node: Node, columns: Sequence[str]) -> Iterator[tuple[Node, list[str | None]]]:
    """`node` and the operators below it, through those that move no rows, with the names of the columns there: None for one that is computed."""
    names: list[str | None] = list(columns)
    while True:
        yield node, names
        match node.spec:
            case Project(made_of) | Rekey(made_of):
                of = {c.name: c.expr for c in made_of}
                names = [e.name if isinstance(e := of.get(n or ""), Column) else None for n in names]
            case Filter():
                pass
            case _:
                return
        (node,) = node.inputs


def before_explode(node: Node, columns: Sequence[str]) -> tuple[Node, tuple[str, ...]] | None:
    """The Explode below `node`, and the columns of its input that become `columns`: rows placed by them move before they multiply.

    None if there is no Explode, if it makes all of these columns, or if it reads a column: then it may fail, and the bytes of the record, which its
    dead letter needs, are known only before the row moves.
    """
    for below, names in _below(node, columns):
        if isinstance(below.spec, Explode):
            functions = below.spec.functions
            made = {f.name for f in functions}
            kept = tuple(dict.fromkeys(n for n in names if n is not None and n not in made))
            return None if not kept or any(columns_of(f.expr) for f in functions) else (below, kept)
    return None


def renamed(columns: tuple[str, ...] | None, names: Mapping[str, str]) -> tuple[str, ...] | None:
    """The columns under their new names; None if one of them is gone."""
    if columns is None or not all(c in names for c in columns):
        return None
    return tuple(names[c] for c in columns)


def together(spread: Spread, columns: tuple[str, ...], schema: Schema) -> bool:
    """Whether rows that are equal in these columns are on one partition already.

    Formats of users do not say so of doubles, whose zeros have two signs.
    """
    if spread.columns is None or spread.nulls or (columns and not spread.columns):
        return False
    types = {f.name: f.type.kind for f in schema}
    exact = spread.format == MEMCOMPARABLE or all(types[c] is not Kind.DOUBLE for c in spread.columns)
    return exact and any(found is not None and set(found) <= set(columns) for found in (spread.columns, spread.equal))


def spread_of_join(node: Node, spec: EquiJoin | TemporalJoin | VersionJoin, left: Spread, right: Spread) -> Spread:
    """By the keys of a side all of whose rows are in the result. left, right: how the sides lie, by these keys."""
    side = {"right": right, "full": Spread(None, MEMCOMPARABLE)}.get(spec.kind, left)
    return replace(side.renamed({n: n for n in node.schema.names}), origin=None)


def placed_below(node: Node, columns: Sequence[str]) -> tuple[Node, tuple[str, ...]] | None:
    """The operator with state below `node` whose rows may lie by some columns of its input, so that those of `node` lie by `columns`."""
    for below, found in _below(node, columns):
        names = [n for n in found if n is not None]
        if not names or len(names) < len(found) or isinstance(below.spec, Rekey):
            return None
        if isinstance(below.spec, SetOperation) and len(below.inputs) == 1:
            return _inputs_of(below, names, tuple(f.name for f in below.inputs[0].schema if f.role != "key"))
        if isinstance(below.spec, GroupAggregate):
            return _inputs_of(below, names, below.spec.partition)
    return None


def _inputs_of(node: Node, names: Sequence[str], inputs: Sequence[str]) -> tuple[Node, tuple[str, ...]] | None:
    """inputs: the columns of the input that become the key; the rest of the output may repeat them."""
    keys, values = ([f.name for f in node.schema if (f.role == "key") is key] for key in (True, False))
    of = dict(zip(keys, inputs, strict=False))
    if isinstance(node.spec, SetOperation):
        of |= zip(values, inputs, strict=True)
    return (node, tuple(of[n] for n in names)) if all(n in of for n in names) else None


def check_copartitioned(left: Spread, right: Spread, partitions: Mapping[str, int]) -> None:
    """Two sources that are joined as they lie must have the same number of partitions, where both numbers are known."""
    if left.moved or right.moved or left.origin is None or right.origin is None:
        return
    a, b = partitions.get(left.origin), partitions.get(right.origin)
    if a is None or b is None or a == b:
        return
    title = f"can't join {left.origin} with {right.origin} since the number of partitions don't match: {left.origin} has {a}, {right.origin} has {b}"
    help_ = f"repartition one of them, for example CREATE STREAM {left.origin}_REPARTITIONED WITH (PARTITIONS={b}) AS SELECT * FROM {left.origin}"
    raise CompileError(Diagnostic("FQ2060", title, why="rows of one key would be in different tasks", help=help_))
