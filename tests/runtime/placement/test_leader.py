"""From one placement to the next: no partition ever has two members that may run its task."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.placement.balance import units_of
from flowql.runtime.placement.heartbeats import MISSED_MAX, Heartbeat, Heartbeats
from flowql.runtime.placement.leader import DEAD_RECORDS, Wanted, giving_up, next_placement
from flowql.runtime.placement.record import Place, Placement
from flowql.runtime.placement.step import LOOK_MS, QUIET_AFTER_MS, QUIET_MS, PlacementStep

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


def beat(member: str, applied: int = 0, joined: int = 0) -> Heartbeat:
    return Heartbeat(member, joined, applied, 1)


def alive(*beats: Heartbeat) -> dict[str, Heartbeat]:
    return {b.member: b for b in beats}


def wanted(*reads: set[TopicPartition], plan: int = 1) -> Wanted:
    return Wanted(plan, tuple(units_of(reads)), frozenset(tp.topic for of in reads for tp in of))


def following(now: Placement, beats: dict[str, Heartbeat], want: Wanted | None) -> Placement:
    found = next_placement(now, beats, want, "a")
    assert found is not None, "something changes"
    assert found.number == now.number + 1
    return found


def test_a_record_says_the_same_after_it_was_written_and_read() -> None:
    places = {A0: Place("a", "a"), A1: Place("a", "b"), B0: Place("b", "")}
    placement = Placement(7, "a", 3, places, {A0: ("b", "c")}, {"c": 5}, frozenset({"d"}))
    assert Placement.decode(placement.encode()) == placement


def test_a_partition_moves_when_its_owner_has_applied_that_it_leaves() -> None:
    want = wanted({A0}, {A1})
    first = following(Placement(), alive(beat("a")), want)
    assert first.granted_to("a") == {A0, A1}
    second = following(first, alive(beat("a", 1), beat("b")), want)
    assert (second.granted_to("a"), second.owned_by("a"), second.granted_to("b")) == ({A0}, {A0, A1}, set())
    assert next_placement(second, alive(beat("a", 1), beat("b")), want, "a") is None, "it has not released it"
    third = following(second, alive(beat("a", 2), beat("b")), want)
    assert (third.granted_to("a"), third.granted_to("b")) == ({A0}, {A1})


def test_what_a_silent_member_had_is_nobodys_until_it_is_fenced() -> None:
    want = wanted({A0}, {A1})
    now = Placement(4, "a", 1, {A0: Place("a", "a"), A1: Place("b", "b")})
    given_up = giving_up(now, alive(beat("a")))
    assert given_up is not None
    assert (given_up.fencing, given_up.dead, given_up.granted_to("b")) == ({"b"}, {"b": 5}, set())
    assert giving_up(given_up, alive(beat("a"))) is None
    after = following(given_up, alive(beat("a")), want)
    assert (after.granted_to("a"), after.fencing, after.dead) == ({A0, A1}, frozenset(), {"b": 5})
    back = following(after, alive(beat("a", 6), beat("b", joined=6)), want)
    assert (back.dead, back.owned_by("b"), back.places[A1]) == ({}, set(), Place("a", "b"))


def test_who_never_comes_back_is_forgotten() -> None:
    now = Placement(DEAD_RECORDS + 3, "a", 1, {A0: Place("a", "a")}, dead={"b": 2, "c": 9})
    assert following(now, alive(beat("a")), wanted({A0})).dead == {"c": 9}


def test_a_leader_that_does_not_know_the_plan_moves_nothing_of_the_living() -> None:
    now = Placement(
        4, "b", 2, {A0: Place("a", "a"), A1: Place("b", "b"), B0: Place("a", "a")}, fencing=frozenset({"b"})
    )
    for want in (None, wanted({A0}, plan=1)):
        after = following(now, alive(beat("a"), beat("c")), want)
        assert after.places == {A0: Place("a", "a"), A1: Place("c", "c"), B0: Place("a", "a")}
        assert after.plan == 2


def test_partitions_that_no_query_reads_any_more_are_released_first() -> None:
    now = Placement(4, "a", 1, {A0: Place("a", "a"), B0: Place("a", "a")})
    after = following(now, alive(beat("a", 4)), wanted({A0}, plan=2))
    assert after.places[B0] == Place("a", "")
    assert B0 not in following(after, alive(beat("a", 5)), wanted({A0}, plan=2)).places


def test_partitions_of_a_query_that_is_stopped_keep_an_owner() -> None:
    now = Placement(4, "a", 1, {A0: Place("b", "b"), B0: Place("b", "b")}, fencing=frozenset({"b"}))
    want = replace(wanted({A0}), topics=frozenset({"A", "B"}))
    assert following(now, alive(beat("a")), want).granted_to("a") == {A0, B0}


def test_state_moves_when_its_next_owner_is_near_the_end_of_it() -> None:
    want = replace(wanted({A0}, {A1}), stateful=frozenset({A1}))
    now = Placement(4, "a", 1, {A0: Place("a", "a"), A1: Place("a", "a")})
    after = following(now, alive(beat("a", 4), beat("b")), want)
    assert (after.granted_to("a"), after.copied_by("b")) == ({A0, A1}, {A1})
    assert next_placement(after, alive(beat("a", 5), beat("b", 5)), want, "a") is None
    warm = replace(beat("b", 5), warm=(A1,))
    assert following(after, alive(beat("a", 5), warm), want).places[A1] == Place("a", "b")


def test_a_second_copy_that_gets_warm_does_not_keep_the_first_partition_in_transit() -> None:
    tps = [TopicPartition("A", p) for p in range(4)]
    want = replace(wanted(*({tp} for tp in tps)), stateful=frozenset(tps))
    now = Placement(4, "a", 1, {tp: Place("a", "a") for tp in tps})
    now = following(now, alive(beat("a", 4), beat("b")), want)
    first, second = sorted(now.copied_by("b"))
    now = following(now, alive(beat("a", 5), replace(beat("b", 5), warm=(first,))), want)
    assert now.places[first] == Place("a", "b")
    both = replace(beat("b", 6), warm=(first, second))
    assert next_placement(now, alive(beat("a", 5), both), want, "a") is None, "a new record would delay the release"
    now = following(now, alive(beat("a", 6), both), want)
    assert (now.places[first], now.places[second]) == (Place("b", "b"), Place("a", "b"))


def test_standbys_keep_copies_and_follow_their_owner() -> None:
    want = replace(wanted({A0}, {A1}), stateful=frozenset({A0, A1}), standbys=1)
    now = Placement(4, "a", 1, {A0: Place("a", "a"), A1: Place("b", "b")})
    beats = alive(beat("a", 4), beat("b", 4), beat("c", 4))
    after = following(now, beats, want)
    assert {tp: len(members) for tp, members in after.copies.items()} == {A0: 1, A1: 1}
    assert all(after.places[tp].owner not in members for tp, members in after.copies.items())
    (holder,) = after.copies[A1]
    lost = replace(after, fencing=frozenset({"b"}), dead={"b": 6})
    given = following(lost, {m: b for m, b in beats.items() if m != "b"}, want)
    assert given.places[A1] == Place(holder, holder)


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_whatever_members_do(seed: int) -> None:
    """Members hold what they were granted until they have applied a later record, or are fenced."""
    rng = random.Random(seed)
    now, holds, applied, dead = Placement(), dict[str, set[TopicPartition]](), dict[str, int](), set[str]()
    joined: dict[str, int] = {}
    plan = 1
    for _ in range(120):
        member = rng.choice("abcd")
        act = rng.choice(("join", "die", "apply", "apply", "lead", "lead", "plan"))
        if act == "join" and member not in holds:
            holds[member], applied[member], joined[member] = set(), 0, now.number
            dead.discard(member)
        elif act == "die" and member in holds and len(holds) - len(dead) > 1:
            dead.add(member)
        elif act == "apply" and member in holds and member not in dead:
            holds[member] = (holds[member] & now.owned_by(member)) & now.granted_to(member) | now.granted_to(member)
            applied[member] = now.number
        elif act == "plan":
            plan += 1
        elif act == "lead" and (living := sorted(set(holds) - dead)):
            beats = alive(*(beat(m, applied[m], joined[m]) for m in living))
            if (lost := giving_up(now, beats)) is not None:
                now = lost
            for fenced in now.fencing:
                holds.pop(fenced, None)
                dead.discard(fenced)
            reads = [{TopicPartition(t, p)} for t in "AB"[: 1 + plan % 2] for p in range(4)]
            now = next_placement(now, beats, wanted(*reads, plan=plan), living[0]) or now
        held = [tp for m, of in holds.items() if m not in dead or m not in now.fencing for tp in of]
        granted = [tp for m in "abcd" for tp in now.granted_to(m)]
        assert len(granted) == len(set(granted))
        for m, of in holds.items():
            assert not of & {tp for other in "abcd" if other != m for tp in now.granted_to(other)}, (m, held, now)


def test_a_member_is_silent_by_the_heartbeats_of_who_reads_them() -> None:
    heard, n = Heartbeats("me"), iter(range(100))

    def tick(*members: str) -> None:
        heard.take([Heartbeat(m, 0, 0, next(n)).encode()[1] for m in members])

    tick("me", "you")
    for _ in range(MISSED_MAX - 1):
        tick("me")
        assert not heard.is_silent("you")
    tick("me")
    assert heard.is_silent("you")
    assert heard.is_silent("never heard")
    tick("you")
    assert not heard.is_silent("you")


def test_heartbeats_of_a_newer_version_that_say_more_are_heard() -> None:
    """They told nothing, so members of the older version declared those of the newer one dead."""
    heard = Heartbeats("me")
    _, value = Heartbeat("you", 5, 5, 1).encode()
    heard.take([value[:-1] + b',"formats":{"plan":[1,2]}}'])
    assert heard.members() == {"you"}


def test_heartbeats_of_a_process_that_was_replaced_tell_nothing() -> None:
    heard = Heartbeats("me")
    heard.take([Heartbeat("you", 5, 5, 1).encode()[1], Heartbeat("you", 3, 4, 9).encode()[1], b"{}", b"no JSON", None])
    last = heard.last("you")
    assert last is not None
    assert (last.joined, last.applied) == (5, 5)


def of_racks(racks: dict[str, str], applied: int = 0) -> dict[str, Heartbeat]:
    return {m: replace(beat(m, applied), rack=rack) for m, rack in racks.items()}


@pytest.mark.parametrize("seed", range(60))
def test_copies_are_in_other_racks_than_their_owner_while_there_are_others(seed: int) -> None:
    """Members come and go, and warm up; what follows holds as soon as nothing changes any more."""
    rng, now = random.Random(seed), Placement()
    racks: dict[str, str] = {}
    reads = [{TopicPartition("A", p)} for p in range(rng.randint(1, 9))]
    want = replace(wanted(*reads), stateful=frozenset(tp for of in reads for tp in of), standbys=rng.randint(1, 3))
    for _ in range(12):
        racks = {m: racks.get(m, rng.choice("xyz")) for m in "abcdef" if rng.random() < 0.8} or {"a": "x"}
        for _ in range(12):
            warm = {m: tuple(tp for tp in now.copies if m in now.copies[tp]) for m in racks}
            beats = {m: replace(b, warm=warm[m]) for m, b in of_racks(racks, now.number).items()}
            now = giving_up(now, beats) or now
            if (after := next_placement(now, beats, want, "a")) is None:
                break
            now = after
        else:
            pytest.fail("the placement never comes to rest")
        owned = [len(now.owned_by(m)) for m in racks]
        assert max(owned) - min(owned) <= 1
        for tp, place in now.places.items():
            copies = now.copies.get(tp, ())
            assert len(copies) == min(want.standbys, len(racks) - 1)
            elsewhere = {racks[m] for m in copies} - {racks[place.owner]}
            others = set(racks.values()) - {racks[place.owner]}
            assert len(elsewhere) == min(len(others), len(copies)), (place, copies, racks)


def test_a_copy_in_the_rack_of_its_owner_stays_until_one_elsewhere_is_warm() -> None:
    want = replace(wanted({A0}), stateful=frozenset({A0}), standbys=1)
    now = Placement(4, "a", 1, {A0: Place("a", "a")}, {A0: ("b",)})
    beats = of_racks({"a": "x", "b": "x", "c": "y"}, 4)
    beats["b"] = replace(beats["b"], warm=(A0,))
    both = following(now, beats, want)
    assert both.copies[A0] == ("c", "b")
    beats["c"] = replace(beats["c"], warm=(A0,))
    assert following(both, beats, want).copies[A0] == ("c",)


def test_a_heartbeat_tells_the_rack() -> None:
    said = replace(beat("a"), rack="eu-1")
    assert Heartbeat.decode(said.encode()[1]) == said
    older = said.encode()[1].replace(b',"rack":"eu-1"', b"")
    assert Heartbeat.decode(older).rack == ""


def test_only_heartbeats_that_say_something_new_are_news() -> None:
    heard = Heartbeats("a")
    assert heard.take([beat("a").encode()[1], beat("b").encode()[1]])
    assert not heard.take([replace(beat("b"), beat=2).encode()[1]])
    assert heard.take([replace(beat("b", applied=3), beat=2).encode()[1]])
    late = []
    for n in range(2, 4 + 2 * MISSED_MAX):
        assert not heard.take([replace(beat("a"), beat=n).encode()[1]])
        late.append(heard.is_late)
    assert [n for n, is_late in enumerate(late, 1) if is_late] == list(range(MISSED_MAX // 2, 2 * MISSED_MAX + 1))


def test_a_member_looks_rarely_while_no_member_says_anything_new() -> None:
    place = PlacementStep(MemoryLog(), "app", "a", lambda: 0, str)
    assert place.run_once(0) == LOOK_MS
    rests = 0
    while place.run_once(rests) == LOOK_MS:
        rests += LOOK_MS
    assert QUIET_AFTER_MS <= rests <= 2 * QUIET_AFTER_MS
    assert place.run_once(rests) == QUIET_MS
    place.want(1, [{A0}], ["A"], [], 0)
    waits = [place.run_once(rests + n) for n in range(1, 4)]
    assert waits[-1] == LOOK_MS, "its placement is news"
