"""Which rows an answer takes where standby copies may answer: those of owners, else of the nearest copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from flowql.compiler.plan.generations import runtime_name
from flowql.query.answer import Answer
from flowql.query.committed import Commit, Part, Wanted
from flowql.query.errors import COVERAGE, MISSING, STANDBY
from flowql.query.options import QueryOptions
from flowql.query.room import QueryMemory, Room
from flowql.query.session import answer
from flowql.query.united import parts_of
from flowql.runtime.app.standby import CopyPosition
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.server.parts import decode, encode
from tests.flowql.query.harness import QueryHarness

SQL = """
CREATE STREAM S (K STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;
"""
KEYS = 20


class OtherMember:
    """Has the second task: as its owner, or as copies of which only the nearest one has the rows."""

    def __init__(self, *, owns: bool) -> None:
        self.world, self.owns = QueryHarness(SQL), owns
        self.world.feed("s", [(f"k{n}", {"V": n}, n) for n in range(KEYS)])
        self.base = self.world.commit()
        assert isinstance(self.base.snapshot, StateSnapshot)
        self.snapshot = self.base.snapshot
        self.first, self.second = sorted(t for t in self.snapshot.tasks() if t.startswith("CTAS_T/"))
        self.is_quick = False  # it answers as an owner in the first round
        self.asked = list[tuple[bool, bool]]()

    def others(self, wanted: Sequence[Wanted], own: Room, hurried: bool) -> tuple[list[Part], list[str]]:
        self.asked.append((hurried, wanted[0].copies))
        if not wanted[0].copies and not self.is_quick:
            return [], ["the other member does not answer"]
        with self.snapshot.of_task(self.second) as there:
            (part,) = parts_of(replace(self.base, snapshot=there), wanted, own)
        if self.is_quick:
            return [part], []
        none = replace(part, rows=part.rows.slice(0, 0))
        far, near = CopyPosition(1_000, 9, 70), CopyPosition(2_000, 0 if self.owns else 3, 50)
        copies = [replace(p, copy=at) for p, at in ((none, far), (none if self.owns else part, near), (none, far))]
        return [*copies[:2], *([replace(part, version=-1)] if self.owns else []), *copies[2:]], []

    def take(self, _: Sequence[str]) -> Commit:
        return replace(self.base, snapshot=self.snapshot.of_task(self.first), others=self.others)

    def ask(self, options: QueryOptions) -> Answer:
        return answer("SELECT COUNT(*) AS N FROM T", self.take, options=options)


@pytest.fixture(params=[False, True], ids=["copies", "owner"])
def member(request: pytest.FixtureRequest) -> Iterator[OtherMember]:
    made = OtherMember(owns=request.param)
    yield made
    made.snapshot.close()


def test_an_owner_comes_before_a_copy_and_the_nearest_copy_before_others(member: OtherMember) -> None:
    found = member.ask(QueryOptions(allow_standby=True))
    metadata = found.schema.metadata
    assert found.table().to_pylist() == [{"N": KEYS}]
    assert member.asked == [(True, False), (True, True)], "copies are asked for where owners do not answer"
    assert metadata[COVERAGE] == b"2 of 2 partitions"
    assert MISSING not in metadata
    position = b"at changelog offset 2,000, at most 3 records and 50 ms behind"
    said = b"1 of 2 partitions: T of partition 1 " + position
    assert metadata.get(STANDBY) == (None if member.owns else said)


def test_copies_are_not_asked_where_all_owners_answer(member: OtherMember) -> None:
    member.is_quick = True
    assert member.ask(QueryOptions(allow_standby=True)).table().to_pylist() == [{"N": KEYS}]
    assert member.asked == [(True, False)]


def test_copies_do_not_answer_where_it_is_not_allowed(member: OtherMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.query.session.MOVING_S", 0.0)
    found = member.ask(QueryOptions())
    assert found.schema.metadata[COVERAGE] == b"1 of 2 partitions"
    assert member.asked == [(False, False)]
    found.close()


def test_the_position_of_a_copy_travels_with_its_rows(member: OtherMember) -> None:
    parts, _ = member.others([Wanted("T", _definition(member), copies=True)], Room(QueryMemory(1 << 20)), hurried=True)
    assert list(decode(encode(parts))) == parts
    assert {p.copy is None for p in parts} == ({True, False} if member.owns else {False})


def _definition(member: OtherMember) -> str:
    (query,) = (q for q in member.base.plan.queries if q.sink == "T")
    return f"{runtime_name(query)} {query.definition}"
