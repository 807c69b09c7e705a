"""What the records of the commit log do to what the embedded log knows."""

from __future__ import annotations

from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.embedded.records import (
    AdvanceStart,
    Append,
    Commit,
    CreateTopic,
    DeleteTopic,
    GroupPosition,
    InitProducer,
    Link,
    NewShape,
    NewStart,
    Record,
    Redo,
    SetConfig,
    Skip,
    TrimRedo,
)
from flowql.runtime.log.embedded.state import LogState

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)


def append(topic: int, partition: int, base: int, rows: int) -> Append:
    return Append(topic, partition, base, 100, 50, base, rows, 7)


def commit(
    sequence: int,
    *appends: Append,
    by: str = "p",
    positions: tuple[GroupPosition, ...] = (),
    redo: Redo | None = None,
    starts: tuple[NewStart, ...] = (),
    shapes: tuple[NewShape, ...] = (),
    links: tuple[Link, ...] = (),
) -> Commit:
    return Commit(by, 1, sequence, [*appends], [*positions], redo, [*starts], [*shapes], [*links])


def state_after(*records: Record) -> LogState:
    """A (id 1) with two partitions, B (id 2) with one; what is known is the same by a snapshot."""
    found = LogState("/t")
    for record in (CreateTopic(1, "A", 2, {}), CreateTopic(2, "B", 1, {}), *records):
        found.apply(record)
    again = LogState("/t")
    again.apply(CreateTopic(9, "forgotten", 1, {}))
    again.apply(found.snapshot())
    assert again.snapshot() == found.snapshot()
    assert again.committed("g") == found.committed("g")
    return found


def bounds(state: LogState, topic: str) -> list[tuple[int, int]]:
    return [(p.start_offset, p.end_offset) for p in state.topics[topic].partitions]


def test_topics_have_ids_that_are_never_used_again() -> None:
    state = state_after(DeleteTopic(2), CreateTopic(3, "B", 4, {"x": "1"}), SetConfig(3, {"x": "2"}))
    assert [(t.id, t.info.partitions, dict(t.info.config)) for t in state.topics.values()] == [
        (1, 2, {}),
        (3, 4, {"x": "2"}),
    ]
    assert (sorted(state.by_id), state.next_topic_id) == ([1, 3], 4)
    assert state.topics["B"].partitions[3].directory == "/t/B.3"
    assert state.topics["B"].owner_name == "B.3"


def test_a_commit_counts_and_moves_positions_of_topics_that_exist() -> None:
    moved = (GroupPosition("g", 1, 0, 5, "m"), GroupPosition("g", 2, 0, 6, ""), GroupPosition("h", 2, 0, 7, ""))
    state = state_after(
        commit(1, append(1, 0, 0, 3), append(1, 0, 3, 1), positions=moved),
        DeleteTopic(2),
        commit(2, append(1, 1, 0, 2), by="q", positions=(GroupPosition("h", 2, 0, 9, ""),)),
    )
    assert bounds(state, "A") == [(0, 4), (0, 2)]
    assert [p.writers for p in state.topics["A"].partitions] == [{"p"}, {"q"}]
    assert (state.committed("g"), state.committed("h"), state.committed("i")) == ({A0: Position(5, "m")}, {}, {})
    assert {i: p.sequence for i, p in state.producers.items()} == {"p": 1, "q": 2}


def test_records_that_a_commit_replaces_take_their_writers_with_them_if_all_go() -> None:
    before = [commit(1, append(1, 0, 0, 4), append(1, 1, 0, 4))]
    some = commit(2, append(1, 0, 4, 1), by="q", starts=(NewStart(1, 0, 3), NewStart(1, 1, 4)))
    state = state_after(*before, some)
    assert bounds(state, "A") == [(3, 5), (4, 4)]
    assert [p.writers for p in state.topics["A"].partitions] == [{"p", "q"}, set()]
    state = state_after(*before, commit(2, append(1, 0, 4, 1), by="q", starts=(NewStart(1, 0, 4),)))
    assert state.topics["A"].partitions[0].writers == {"q"}
    assert bounds(state, "A")[0] == (4, 5)


def test_new_partitions_are_empty_and_who_has_the_old_ones_finds_no_records() -> None:
    state = state_after(
        commit(1, append(1, 0, 0, 4), positions=(GroupPosition("g", 1, 0, 2, ""), GroupPosition("g", 2, 0, 2, "")))
    )
    old = state.topics["A"].partitions
    state.apply(commit(2, append(1, 2, 50, 1), by="q", shapes=(NewShape(1, 3, 50, ["p"]),)))
    assert bounds(state, "A") == [(50, 50), (50, 50), (50, 51)]
    assert [p.segments for p in old] == [[], []]
    assert [p.writers for p in state.topics["A"].partitions] == [{"p"}, {"p"}, {"p", "q"}]
    assert (state.topics["A"].info.partitions, state.committed("g")) == (3, {TopicPartition("B", 0): Position(2)})


def test_what_is_linked_comes_before_what_is_appended() -> None:
    state = state_after(
        commit(1, append(2, 0, 0, 4)),
        commit(2, Append(1, 0, 4, 100, 50, 4, 1, 7), by="q", links=(Link(1, 0, 2, 0),)),
    )
    assert bounds(state, "A")[0] == (0, 5)
    assert state.topics["A"].partitions[0].writers == {"q"}
    assert [(s.base, s.shift) for s in state.topics["A"].partitions[0].segments] == [(0, 0), (4, None)]


def test_retention_and_damage_are_of_one_partition() -> None:
    state = state_after(commit(1, append(1, 1, 0, 4)), AdvanceStart(1, 1, 2), Skip(1, 1, 2, 3))
    assert bounds(state, "A") == [(0, 0), (2, 4)]
    assert [p.skipped for p in state.topics["A"].partitions] == [[], [(2, 3)]]


def test_redo_is_kept_until_it_is_trimmed_and_then_its_file_is_left() -> None:
    redo = [Redo(n, n // 3, 10 * n, 10, 0) for n in (1, 2, 3)]
    before = [InitProducer("p", 1), *(commit(r.sequence, redo=r) for r in redo)]
    state = state_after(*before)
    assert (state.redo_file, state.redo_end, state.redo_files()) == (1, 40, {0, 1})
    state = state_after(*before, TrimRedo("p", 1))
    assert (state.producers["p"].redo, state.producers["p"].redo_lost) == (redo[1:], 1)
    assert (state.redo_file, state.redo_end, state.redo_files()) == (1, 40, {0, 1})
    state = state_after(*before, TrimRedo("p", 2), TrimRedo("p", 0))
    assert (state.producers["p"].redo_lost, state.redo_files()) == (2, {1})
    state = state_after(*before, TrimRedo("p", 3))
    assert (state.redo_file, state.redo_end, state.redo_files()) == (2, 0, {2})
    state = state_after(*before, TrimRedo("p", 3), TrimRedo("q", 9))
    assert (state.redo_file, state.redo_end) == (2, 0), "nothing was written to it"
    state = state_after(*before, commit(1, by="q", redo=Redo(1, 1, 40, 5, 0)), TrimRedo("p", 3))
    assert (state.redo_file, state.redo_end, state.redo_files()) == (1, 45, {1}), "another producer has some there"


def test_a_producer_is_known_by_its_epoch_and_starts() -> None:
    state = state_after(InitProducer("p", 1, 7), commit(5), InitProducer("p", 2, 7), InitProducer("p", 3, 8))
    assert (state.producers["p"].epoch, state.producers["p"].sequence) == (3, 5)
    assert state.producers["p"].runs == [(7, 0), (8, 5)]
