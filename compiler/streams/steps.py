"""The steps of streams in Python, each with its inputs. Plain data; identity tells one step from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, WindowClause, WithinClause
from flowql.compiler.plan.priorities import OnChange, Priority
from flowql.compiler.streams.callables import RowAggregate, RowFunction
from flowql.compiler.streams.rows import RowType

JoinKind = Literal["inner", "left", "full"]
RelationKind = Literal["stream", "table"]


class Label(str):
    """A name that no other step of its builder has, for the topic of its rows if they need one. method: what the user called."""

    method: str

    def __new__(cls, text: str, method: str) -> Label:
        made = super().__new__(cls, text)
        made.method = method
        return made


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result, and what it is. name: as written."""

    name: str
    expr: Ast


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """at: in the user's program."""

    label: Label
    at: Span
    inputs: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Read(Step):
    """The rows of a stream or table, by its name as written. kind: what it was read as."""

    relation: str
    kind: RelationKind


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Step):
    """Rows for which the condition is true. others: those for which it is not, NULL included."""

    condition: Ast | RowFunction
    others: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Select(Step):
    """Other values. keep: those that are there stay, unless a column of that name is given; else only the key does."""

    columns: tuple[Column, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Step):
    """A step that calls a function of the user for each row. It says whether it gives a key, and whether several rows."""

    function: RowFunction


@dataclass(frozen=True, slots=True, eq=False)
class Rekey(Step):
    """Another key. values: None keeps all columns, the old key among them."""

    keys: tuple[Column, ...]
    values: tuple[Column, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Merge(Step):
    """The rows of several streams with the same columns."""


@dataclass(frozen=True, slots=True, eq=False)
class Join(Step):
    """The rows of two inputs with equal keys. on: what is equal, per side; None for the key. prior: the right row is the older one."""

    kind: JoinKind
    on: tuple[Ast | None, Ast | None] = (None, None)
    within: WithinClause | None = None
    suffix: str = "_RIGHT"
    prior: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Step):
    """A row per group. keys: None for the key of the input. values: expressions over aggregates, or a function of the user."""

    keys: tuple[Column, ...] | None
    values: tuple[Column, ...] | RowAggregate
    window: WindowClause | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """How the query of an output is scheduled. None: not given."""

    priority: Priority | None = None
    latency_target_ms: int | None = None
    on_change: OnChange | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A step that writes rows to a topic. properties: of the WITH clause of a stream or table that it creates."""

    name: str
    kind: RelationKind
    step: Step
    at: Span
    properties: tuple[tuple[str, str | int], ...] = ()
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class Declared:
    """A stream or table over a topic. key, value: None for those of the stream `like`. topic: None for that of `like`."""

    name: str
    kind: RelationKind
    at: Span
    key: RowType | None
    value: RowType | None
    properties: tuple[tuple[str, str | int], ...] = ()
    like: str = ""


def shown(step: Step) -> str:
    """The sources and the methods that lead to it: `ORDERS -> filter -> count`."""
    if isinstance(step, Read):
        return step.relation
    ways = [shown(i) for i in step.inputs]
    begin = ways[0] if len(ways) == 1 else "(" + ", ".join(ways) + ")"
    return f"{begin} -> {step.label.method}"
