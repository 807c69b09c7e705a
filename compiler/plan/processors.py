"""Processors of a project's own (KIP-28) in a plan: what a topology consists of. Its code is never part of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.plan.schema import Schema

RESULT_OF = (
    "__result_of_"  # in front of the name of an asynchronous processor: a column with the pickled results of its calls
)
CALL = "#"  # between the name of a topology in plans and that of such a processor: the name of its calls


@dataclass(frozen=True, slots=True)
class ProcessorStep:
    """A source, processor or sink of a topology.

    parents: the steps whose records it gets. relations: the streams and tables that a source reads, in order; the one that a sink writes.
    stores: names of the state stores that a processor uses.
    """

    name: str
    kind: Literal["source", "processor", "sink"]
    parents: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessorStore:
    """A state store of a topology.

    kind: one of STORE_KINDS. key, value: its columns. retention_ms: of window and session stores, how far behind stream time they reach.
    """

    name: str
    kind: str
    key: Schema
    value: Schema
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A stream among several that a topology writes: its records are in the STRUCT `column` of the result, with all columns of `schema`."""

    relation: str
    column: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Process:
    """Rows of all inputs go through the processors of a topology, one after the other in the order of the task.

    topology: its name in plans, with the version of its module (`TOTALS@totals:3f2a91c04b1d`). reads: the relation that each input is.
    Tables come with the row before (change kind `retract`). The node's schema is that of what the sinks write. routes: where these are
    several streams: a row has the stream's name in the first column, and its record in a column of its own. Inputs of asynchronous processors have
    the results of their calls behind their columns (RESULT_OF).
    """

    topology: str
    steps: tuple[ProcessorStep, ...]
    reads: tuple[str, ...]
    stores: tuple[ProcessorStore, ...] = ()
    routes: tuple[Route, ...] = ()
