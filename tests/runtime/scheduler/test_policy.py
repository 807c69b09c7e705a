"""Who runs next, of queries whose accounts are equal."""

from __future__ import annotations

from flowql.runtime.scheduler.policy import QueryFacts, TaskFacts, weighted_fair

SLICE_NS = 5_000_000


def chosen(virtual_time: float = 1.0, /, **queries: QueryFacts) -> str:
    tasks = [TaskFacts(f"{name}_0_0", name, 10, rows_ahead=0) for name in queries]
    found = weighted_fair(tasks, queries, virtual_time)
    assert found is not None
    return found.query


def test_of_equal_accounts_the_query_of_more_weight_is_first() -> None:
    """Its virtual deadline is earlier: the same slice is less of its share."""
    assert chosen(a=QueryFacts(1, SLICE_NS), z=QueryFacts(64, SLICE_NS)) == "z"
    assert chosen(a=QueryFacts(64, SLICE_NS), z=QueryFacts(1, SLICE_NS)) == "a"


def test_at_the_start_all_are_within_their_share() -> None:
    """Virtual time and all accounts are 0: a query that is not ahead of virtual time is eligible."""
    assert chosen(0.0, a=QueryFacts(1, SLICE_NS), z=QueryFacts(64, SLICE_NS)) == "z"


def test_of_equal_weights_the_shorter_slice_is_first() -> None:
    """So a latency target is met without more weight."""
    assert chosen(a=QueryFacts(4, SLICE_NS), z=QueryFacts(4, SLICE_NS // 5)) == "z"


def test_a_query_ahead_of_its_share_waits_whatever_its_weight() -> None:
    assert chosen(a=QueryFacts(64, SLICE_NS, virtual_runtime=2.0), z=QueryFacts(1, SLICE_NS)) == "z"


def test_where_nobody_is_within_its_share_the_least_served_goes_on() -> None:
    assert chosen(a=QueryFacts(64, SLICE_NS, 9.0), z=QueryFacts(1, SLICE_NS, 3.0)) == "z"


def test_equal_queries_go_by_name_and_of_one_query_the_task_with_more_rows() -> None:
    assert chosen(b=QueryFacts(4, SLICE_NS), a=QueryFacts(4, SLICE_NS)) == "a"
    facts = {"q": QueryFacts(4, SLICE_NS)}
    tasks = [TaskFacts("q_0_0", "q", 10, 0), TaskFacts("q_0_1", "q", 30, rows_ahead=25), TaskFacts("q_0_2", "q", 20, 0)]
    found = weighted_fair(tasks, facts, 1.0)
    assert found is not None
    assert found.task == "q_0_2", "rows that others have not taken count against it"
