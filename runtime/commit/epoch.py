"""An epoch on its way into the log, and the requests that wait for its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from flowql.runtime.commit.replacement import PartitionChange, Replacement
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.output.collector import Outgoings
from flowql.runtime.state.frozen import FrozenEpoch

LatencySample = tuple[str, int, int]  # query, since when (ms) it was known, how many records


@dataclass(slots=True)
class Epoch:
    """The records and state writes of one cut, until the log has committed them."""

    records: Outgoings
    state: FrozenEpoch
    positions: dict[TopicPartition, int]
    readers: dict[TopicPartition, str]  # of which tasks these are (`flowql.runtime.commit.positions`)
    cut_ns: int
    waiting: list[CommitRequest]
    latency_samples: list[LatencySample]
    replacements: list[Replacement]
    reshapes: list[PartitionChange]
    failed: dict[str, Exception]  # queries of which some of it could not even be cut
    finished: Sequence[tuple[str, int]]  # what `Alignment.at_cut` found
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)  # of the last attempt (`Producer.ends`)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A request for a commit as soon as possible.

    `prepare` runs at the cut, under the epoch lock, and may add to the epoch. `after` runs in the commit thread when this
    commit is applied and no later one: a snapshot taken there is of exactly this commit. withdrawable: the request can be taken back.
    """

    prepare: Callable[[], None]
    after: Callable[[], None]
    done: Future[int]
    withdrawable: bool
