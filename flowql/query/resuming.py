"""Where a subscription continues: an opaque token of the offsets up to which its changes have been delivered."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from flowql.compiler.driver import PushQuery
from flowql.compiler.plan import codec
from flowql.compiler.plan.changes import Consolidate
from flowql.compiler.plan.logical import Filter, Materialise, Project, Scan, Sink
from flowql.compiler.plan.topology import Plan, stores_of
from flowql.runtime.log.base import Admin, TopicPartition

FOREIGN = "the token is of another statement, or what it reads was changed or rebuilt"
KEEPS_STATE = "the statement reads a table or keeps state, which is computed again"
GONE = "records after it were deleted"
_VERSION = 1
_MAX = 1 << 16  # characters of a token
_OF_ROWS = (Scan, Materialise, Filter, Project, Consolidate, Sink)


@dataclass(frozen=True, slots=True)
class PlaceInTable:
    """tick: the number of the commit. files: a digest of the files that have the records before the offsets; empty where the log does not tell. made_ms:
    wall clock when the place was made.
    """

    tick: int
    files: str
    made_ms: int


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the changes of a statement. about: tells its statement and generations from others. offsets: None where only a new beginning
    is possible. commit: what a place in a table needs besides.
    """

    about: str
    offsets: Mapping[TopicPartition, int] | None
    commit: PlaceInTable | None = None

    def token(self) -> str:
        offsets = (
            None if self.offsets is None else sorted([tp.topic, tp.partition, o] for tp, o in self.offsets.items())
        )
        commit = [] if self.commit is None else [[self.commit.tick, self.commit.files, self.commit.made_ms]]
        text = json.dumps([_VERSION, self.about, offsets, *commit], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def of(cls, token: str) -> Place | None:
        """None for what is no token of this version."""
        try:
            text = base64.b64decode(token[:_MAX] + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            version, about, offsets, *rest = json.loads(text)
            if version != _VERSION or not isinstance(about, str) or len(rest) > 1:
                return None
            found = None if offsets is None else {TopicPartition(str(t), int(p)): int(o) for t, p, o in offsets}
            commits = [PlaceInTable(int(tick), str(files), int(made_ms)) for tick, files, made_ms in rest]
        except (binascii.Error, ValueError, TypeError, RecursionError):
            return None
        return cls(about, found, *commits)


def about(query: PushQuery, served: Plan) -> str:
    """A digest of a statement, what it reads, and the generations that write that."""
    topics = {s.topic for s in query.reads}
    writers = sorted((q.topic, q.id, q.generation) for q in served.queries if q.topic in topics)
    text = codec.line(query.plan) + json.dumps(writers)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def can_resume(query: PushQuery) -> bool:
    """Whether later changes follow from later records alone: it reads streams, keeps no state and has one stage."""
    staged = len(query.plan.queries) == 1 and len(query.plan.queries[0].subtopologies) == 1
    return staged and all(s.kind == "stream" for s in query.reads) and not any(True for _ in stores_of(query.plan))


def can_share(query: PushQuery) -> bool:
    """Whether its changes after an offset are the same for all subscriptions, wherever they began: it can continue at offsets, or it filters and
    projects one table, whose rows follow from the records before the offsets.
    """
    if can_resume(query):
        return True
    if len(query.reads) != 1 or query.reads[0].kind != "table" or len(query.plan.queries) != 1:
        return False
    stages = query.plan.queries[0].subtopologies
    return len(stages) == 1 and all(isinstance(o.spec, _OF_ROWS) for o in stages[0].operators)


def why_not(place: Place | None, query: PushQuery, served: Plan, log: Admin) -> str:
    """Why a subscription cannot continue at a place; empty if it can."""
    if place is None or place.about != about(query, served):
        return FOREIGN
    if place.offsets is None:
        return KEEPS_STATE
    tps = list(place.offsets)
    begins, ends = log.begin_offsets(tps), log.end_offsets(tps)
    within = all(begins.get(tp, 0) <= offset <= ends.get(tp, -1) for tp, offset in place.offsets.items())
    counts = log.partition_counts(sorted({s.topic for s in query.reads}))
    complete = sum(counts.values()) == len(tps)
    return "" if within and complete else GONE
