"""What the options of a topic mean, and what they take."""

from __future__ import annotations

import pytest

from flowql.runtime.errors import LogError
from flowql.runtime.log.policy import SEGMENT_BYTES, TopicPolicy, altered


def test_without_options_records_are_kept_for_ever_and_tombstones_for_a_day() -> None:
    policy = TopicPolicy.of({"compression.type": "zstd"})
    assert policy == TopicPolicy(frozenset({"delete"}), -1, -1, 0, 0, 24 * 3_600_000, 0.5)
    assert (policy.deletes, policy.compacts, policy.segment_limit) == (False, False, SEGMENT_BYTES)
    assert not policy.begins_segment(0, 1 << 50)


def test_every_option_is_read() -> None:
    config = {
        "cleanup.policy": "compact, delete",
        "retention.ms": "1000",
        "retention.bytes": "2000",
        "segment.ms": "300",
        "segment.bytes": "4000",
        "delete.retention.ms": "0",
        "min.cleanable.dirty.ratio": "0.25",
    }
    policy = TopicPolicy.of(config)
    assert policy == TopicPolicy(frozenset({"compact", "delete"}), 1_000, 2_000, 4_000, 300, 0, 0.25)
    assert (policy.deletes, policy.compacts, policy.segment_limit) == (True, True, 4_000)


@pytest.mark.parametrize(
    ("config", "deletes"),
    [
        ({"retention.ms": "0"}, True),
        ({"retention.bytes": "0"}, True),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, False),
        ({"retention.ms": "0", "cleanup.policy": "compact"}, False),
    ],
)
def test_records_are_dropped_where_a_limit_is_set_and_the_policy_deletes(config: dict[str, str], deletes: bool) -> None:
    assert TopicPolicy.of(config).deletes is deletes


@pytest.mark.parametrize(("before", "now", "begins"), [(0, 9, False), (9, 10, True), (10, 19, False), (25, 10, False)])
def test_a_segment_holds_one_span_of_time(before: int, now: int, begins: bool) -> None:
    assert TopicPolicy(segment_ms=10).begins_segment(before, now) is begins


@pytest.mark.parametrize(
    ("name", "least", "less"),
    [
        ("retention.ms", "-1", "-2"),
        ("retention.bytes", "-1", "-2"),
        ("segment.ms", "1", "0"),
        ("segment.bytes", "1", "0"),
        ("delete.retention.ms", "0", "-1"),
        ("min.cleanable.dirty.ratio", "0", "-0.1"),
        ("cleanup.policy", "compact", "compact,none"),
    ],
)
def test_an_option_takes_its_least_value_and_none_below(name: str, least: str, less: str) -> None:
    TopicPolicy.of({name: least})
    for wrong in (less, "x", ""):
        with pytest.raises(LogError, match=name):
            TopicPolicy.of({name: wrong})


def test_options_are_set_and_taken_back_if_the_topic_then_makes_sense() -> None:
    before = {"retention.ms": "5", "segment.bytes": "7"}
    assert altered(before, {"retention.ms": None, "segment.ms": "9"}) == {"segment.bytes": "7", "segment.ms": "9"}
    assert altered(before, {"retention.ms": "6"}) == {"retention.ms": "6", "segment.bytes": "7"}
    assert altered(before, {"none": None}) == before
    with pytest.raises(LogError, match=r"segment\.bytes"):
        altered(before, {"segment.bytes": "0"})
