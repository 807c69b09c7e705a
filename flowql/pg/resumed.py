"""Tokens of SUBSCRIBE: where a subscription continues, and whether it can.

A token has the offsets up to which changes were sent. A stream continues there. A change of a table also has the row before, so a table continues
where the records before the offsets are those of then: it is read up to the offsets again. Compaction removes records that newer ones replace. The
token therefore has a digest of the files, which compaction writes again. `ENVELOPE UPSERT` shows no rows before, and needs only that no deletion has
gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.pg.errors import PgError, unsupported
from flowql.pg.pins import Files, Spans
from flowql.pg.subscribe_statement import Envelope
from flowql.query.changing import wall_ms
from flowql.query.kept import UNREAD_S_MAX
from flowql.query.relations import TopicRelation
from flowql.query.resuming import FOREIGN, GONE, Place, PlaceInTable
from flowql.runtime.log.base import Admin, TopicPartition

COMPACTED = "compaction has removed records that its next changes need"
AGAIN = "SUBSCRIBE again without RESUME, and drop the rows received so far"


def rebuilt(name: str) -> PgError:
    return PgError("55000", f"{name} was rebuilt or changed: changes until then are complete", help=AGAIN)


def lost(name: str) -> PgError:
    return PgError(
        "55000", f"{name} was rebuilt or its records were deleted: changes until then are complete", help=AGAIN
    )


def about_of(source: SourceDef, plan: Plan) -> str:
    """A digest of a relation and the generations that write it."""
    writers = sorted((q.topic, q.id, q.generation) for q in plan.queries if q.topic == source.topic)
    text = codec.line(Plan(sources=(replace(source, statement=""),))) + json.dumps(writers)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def place_in(
    about: str, tick: int, spans: Spans, offsets: Mapping[TopicPartition, int], files: Mapping[TopicPartition, Files]
) -> Place:
    """A place behind these offsets. files: those of the topic before the offsets were read."""
    return Place(about, dict(offsets), PlaceInTable(tick, _digest(spans, offsets, files), wall_ms()))


def resumable(token: str, relation: TopicRelation, about: str, envelope: Envelope) -> tuple[Place, PlaceInTable]:
    """Raises PgError if a subscription cannot continue at a token."""
    place = Place.of(token)
    if place is None:
        raise PgError("22023", "RESUME takes a value of flowql_token, and this is not one")
    offsets, commit = place.offsets, place.commit
    if place.about != about or offsets is None or commit is None:
        raise _not_resumable(relation, FOREIGN)
    spans = relation.spans
    if offsets.keys() != spans.keys() or any(not spans[tp][0] <= o <= spans[tp][1] for tp, o in offsets.items()):
        raise _not_resumable(relation, GONE)
    if relation.source.kind == "table" and envelope != "UPSERT" and not commit.files:
        title = "RESUME of a table on Kafka is not supported without ENVELOPE UPSERT: brokers do not tell which rows compaction has removed"
        raise unsupported(title, "add ENVELOPE UPSERT, or SUBSCRIBE again without RESUME")
    return place, commit


def is_whole(place: Place, commit: PlaceInTable, relation: TopicRelation, envelope: Envelope) -> bool:
    """Whether the rows of a table before a place are all known, once they have been read. Raises PgError if they have to be, and are not."""
    admin, offsets = relation.log.admin(), place.offsets or {}
    if commit.files and commit.files == _digest(relation.spans, offsets, _files(admin, offsets)):
        return True
    if envelope != "UPSERT":
        raise _not_resumable(relation, COMPACTED)
    if wall_ms() - commit.made_ms > UNREAD_S_MAX * 1_000:
        raise _not_resumable(relation, f"{COMPACTED}: deletions are kept for an hour")
    return False


def _files(admin: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Files]:
    return {tp: admin.files_of(tp) for tp in offsets}


def _digest(spans: Spans, offsets: Mapping[TopicPartition, int], files: Mapping[TopicPartition, Files]) -> str:
    """A digest of the files with records below the offsets; empty where the log does not tell."""
    found = list[object]()
    for tp, offset in sorted(offsets.items()):
        known = files.get(tp)
        if known is None:
            return ""
        found.append([tp.topic, tp.partition, spans[tp][0], sorted(f for f in known if f[0] < offset)])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _not_resumable(relation: TopicRelation, why: str) -> PgError:
    return PgError("55000", f"the subscription to {relation.name} cannot continue: {why}", help=AGAIN)
