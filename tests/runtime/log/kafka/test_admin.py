"""What an admin client asks, asks again and answers, with brokers that answer as they are told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigResource, ConfigSource, OffsetSpec

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import NewTopic, TopicInfo, TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka.admin import EndOffsets, KafkaAdmin
from flowql.runtime.log.kafka.connection import Connection

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
SETTLING = KafkaError.NOT_LEADER_FOR_PARTITION


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def answer(what: object) -> Future[Any]:
    """What a broker says: an error where it is a number of one."""
    future: Future[Any] = Future()
    if isinstance(what, int):
        future.set_exception(failed(what))
    else:
        future.set_result(what)
    return future


def dynamic(value: str) -> SimpleNamespace:
    return SimpleNamespace(value=value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


class Library:
    """topics: partitions of each, or the error of asking. ends: of partitions, each a list of answers, the last one for ever."""

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        self.settings, self.asked = settings, list[tuple[str, Any]]()
        self.topics: dict[str, int] = {}
        self.refused: dict[str, int] = {}  # errors of describing a topic
        self.rights: dict[str, list[AclOperation] | None] = {}
        self.configs: dict[str, Any] = {}
        self.ends: dict[TopicPartition, list[Any]] = {}
        self.creating: object = None
        self.deleting: object = None
        self.changing: object = None
        self.away: list[KafkaException] = []
        self.on_poll: Callable[[], None] = lambda: None

    def told(self, name: str) -> list[Any]:
        return [what for call, what in self.asked if call == name]

    def poll(self, seconds: float) -> int:
        self.asked.append(("poll", seconds))
        self.on_poll()
        return 0

    def list_topics(self, timeout: float) -> SimpleNamespace:
        self.asked.append(("list_topics", timeout))
        if self.away:
            raise self.away.pop(0)
        partition = SimpleNamespace(replicas=[1, 2, 3])
        alone = SimpleNamespace(replicas=[1])
        found = {
            name: SimpleNamespace(partitions={p: partition if p else alone for p in range(n)}, error=None)
            for name, n in self.topics.items()
        }
        return SimpleNamespace(topics={**found, "odd": SimpleNamespace(partitions={}, error=KafkaError(DENIED))})

    def describe_topics(self, topics: Any, request_timeout: float, **more: bool) -> Mapping[str, Future[Any]]:
        self.asked.append(("describe_topics", (sorted(topics.topic_names), more)))
        found = {}
        for name in topics.topic_names:
            n, rights = self.topics.get(name), self.rights.get(name)
            about = SimpleNamespace(partitions=list(range(n or 0)), authorized_operations=rights)
            found[name] = answer(self.refused.get(name, MISSING if n is None else about))
        return found

    def describe_configs(self, resources: list[ConfigResource], request_timeout: float) -> Mapping[Any, Future[Any]]:
        self.asked.append(("describe_configs", [r.name for r in resources]))
        return {r: answer(self.configs.get(r.name, {})) for r in resources}

    def create_topics(self, wanted: list[Any], operation_timeout: float) -> Mapping[str, Future[Any]]:
        for topic in wanted:
            self.asked.append(
                ("create_topics", (topic.topic, topic.num_partitions, topic.replication_factor, topic.config))
            )
            if self.creating is None:
                self.topics[topic.topic] = topic.num_partitions
        return {topic.topic: answer(self.creating) for topic in wanted}

    def delete_topics(self, names: list[str], operation_timeout: float) -> Mapping[str, Future[Any]]:
        self.asked.append(("delete_topics", names))
        return {names[0]: answer(self.deleting)}

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> Mapping[Any, Future[Any]]:
        (resource,) = resources
        entries = [(e.name, e.value, e.incremental_operation) for e in resource.incremental_configs]
        self.asked.append(("incremental_alter_configs", (resource.name, entries)))
        return {resource: answer(self.changing)}

    def list_offsets(self, asked: Mapping[Any, Any], isolation_level: Any, request_timeout: float) -> Mapping[Any, Any]:
        tps = {TopicPartition(p.topic, p.partition): p for p in asked}
        spec = next(iter(asked.values()), None)
        self.asked.append(("list_offsets", (sorted(tps), type(spec).__name__, isolation_level)))
        found = {}
        for tp, place in tps.items():
            waiting = self.ends.get(tp, [MISSING])
            what = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            found[place] = answer(what if isinstance(what, int) else SimpleNamespace(offset=int(what)))
        return found

    def delete_records(self, asked: list[KafkaPartition], request_timeout: float) -> Mapping[Any, Future[Any]]:
        self.asked.append(("delete_records", [(p.topic, p.partition, p.offset) for p in asked]))
        return {0: answer(self.changing)}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    monkeypatch.setattr(admins, "AdminClient", Library)
    client = KafkaAdmin(Connection("nowhere:1"), "app-admin")
    clock = VirtualClock(1_000_000)
    client._clock, client._known = clock, True  # type: ignore[assignment]
    library(client).on_poll = lambda: clock.advance(5_000)
    return client


def library(admin: KafkaAdmin) -> Library:
    made = admin._library()
    assert isinstance(made, Library)
    return made


def made(admin: KafkaAdmin, name: str, new: NewTopic) -> TopicInfo:
    return admin.create_topics({name: new})[name]


# Brokers


def test_brokers_are_greeted_once(admin: KafkaAdmin) -> None:
    admin._known = False
    library(admin).away = [failed(KafkaError._TRANSPORT)] * 2
    admin.greet()
    admin.greet()
    assert library(admin).told("list_topics") == [admins.GREET_S] * 3
    assert library(admin).told("poll") == [0, 0]


def test_brokers_that_do_not_answer_are_greeted_until_there_is_no_more_time(admin: KafkaAdmin) -> None:
    admin._known = False
    library(admin).away = [failed(KafkaError._TRANSPORT)] * 1_000
    with pytest.raises(LogUnavailable, match="brokers cannot be reached"):
        admin.greet()
    assert len(library(admin).told("poll")) == admins.TIMEOUT_S / 5 + 1


@pytest.mark.parametrize(
    ("code", "denied"), [(KafkaError._AUTHENTICATION, True), (KafkaError._SSL, True), (KafkaError._TRANSPORT, False)]
)
def test_brokers_that_do_not_let_us_in_are_told_at_once(code: int, denied: bool, admin: KafkaAdmin) -> None:
    """Other errors of a connection the client mends by itself."""
    admin._known = False
    library(admin).away = [failed(KafkaError._TRANSPORT)] * 3
    library(admin).on_poll = lambda: library(admin).settings["error_cb"](KafkaError(code, "wrong password"))
    if denied:
        with pytest.raises(LogDenied, match="brokers do not let us in: wrong password"):
            admin.greet()
        assert len(library(admin).told("list_topics")) == 1
    else:
        admin.greet()


# Topics


def test_a_topic_is_made_once_and_waited_for_until_it_has_leaders(admin: KafkaAdmin) -> None:
    library(admin).ends = {A0: [SETTLING, "0"], A1: ["0"]}
    library(admin).configs = {"A": {"x": SimpleNamespace(name="x", **vars(dynamic("1")))}}
    assert made(admin, "A", NewTopic(2, {"x": "1"})) == TopicInfo("A", 2, {"x": "1"})
    assert library(admin).told("create_topics") == [("A", 2, -1, {"message.timestamp.type": "CreateTime", "x": "1"})]
    assert made(admin, "A", NewTopic(2)).partitions == 2
    assert len(library(admin).told("create_topics")) == 1
    with pytest.raises(LogError, match="topic A exists with 2 partitions, not 3"):
        made(admin, "A", NewTopic(3))
    with pytest.raises(LogError, match="topic B: 0 partitions"):
        made(admin, "B", NewTopic(0))


def test_many_topics_are_made_and_waited_for_at_once(admin: KafkaAdmin) -> None:
    library(admin).topics, library(admin).ends = {"A": 2}, {B0: [SETTLING, "0"], TopicPartition("C", 0): ["0"]}
    known = admin.create_topics({"A": NewTopic(2), "B": NewTopic(1, {"x": "1"}), "C": NewTopic(1)})
    assert {name: info.partitions for name, info in known.items()} == {"A": 2, "B": 1, "C": 1}
    asked = [call for call, _ in library(admin).asked]
    # All are looked at, two are made, and then each round looks at both together.
    assert [call for call in asked if call not in ("create_topics", "poll")] == [
        "describe_topics",
        "describe_topics",
        "list_offsets",
        "describe_topics",
        "list_offsets",
    ]
    assert [name for name, *_ in library(admin).told("create_topics")] == ["B", "C"]
    before = len(library(admin).asked)
    assert admin.create_topics({}) == {}
    assert len(library(admin).asked) == before


def test_a_topic_that_another_client_makes_at_the_same_time_is_that_one(admin: KafkaAdmin) -> None:
    def made_by_another() -> None:
        library(admin).topics["B"] = 1

    library(admin).creating, library(admin).on_poll = int(KafkaError.TOPIC_ALREADY_EXISTS), made_by_another
    library(admin).ends = {B0: ["0"]}
    assert made(admin, "B", NewTopic(1)) == TopicInfo("B", 1, {})
    library(admin).creating = DENIED
    with pytest.raises(LogDenied, match="topic C cannot be made"):
        made(admin, "C", NewTopic(1))


def test_a_topic_without_leaders_is_not_waited_for_for_ever(admin: KafkaAdmin) -> None:
    admin._led = lambda topics: False  # type: ignore[method-assign]
    with pytest.raises(LogUnavailable, match="topic A was made, and has no leaders after 30 s"):
        made(admin, "A", NewTopic(1))
    assert len(library(admin).told("poll")) == admins.TIMEOUT_S / 5


def test_options_are_set_or_deleted_by_their_names(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    own = SimpleNamespace(name="retention.ms", **vars(dynamic("5")))
    default = SimpleNamespace(name="segment.ms", value="9", source=ConfigSource.DEFAULT_CONFIG.value)
    library(admin).configs = {"A": {"retention.ms": own, "segment.ms": default}}
    assert admin.alter_topic("A", {"retention.ms": "5", "x": None}) == TopicInfo("A", 2, {"retention.ms": "5"})
    ((name, entries),) = library(admin).told("incremental_alter_configs")
    assert (name, entries) == (
        "A",
        [("retention.ms", "5", AlterConfigOpType.SET), ("x", None, AlterConfigOpType.DELETE)],
    )
    library(admin).changing = DENIED
    with pytest.raises(LogDenied, match="topic A cannot be changed"):
        admin.alter_topic("A", {"retention.ms": "5"})
    with pytest.raises(TopicMissing):
        admin.alter_topic("B", {"retention.ms": "5"})


def test_a_deleted_topic_is_waited_for_until_brokers_forget_it(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    assert admin.partitions("A") == 2
    library(admin).on_poll = lambda: library(admin).topics.clear()
    admin.delete_topic("A")
    assert (library(admin).told("delete_topics"), len(library(admin).told("poll"))) == ([["A"]], 1)
    with pytest.raises(TopicMissing, match="there is no topic A"):
        admin.partitions("A")
    library(admin).topics, library(admin).on_poll = {"A": 2}, lambda: admin._clock.advance(5_000)  # type: ignore[attr-defined]
    admin.delete_topic("A")
    assert len(library(admin).told("poll")) == 1 + admins.TIMEOUT_S / 5, "not for ever"
    library(admin).deleting = DENIED
    with pytest.raises(LogDenied, match="topic A cannot be deleted"):
        admin.delete_topic("A")


def test_topics_of_the_brokers_own_and_those_that_may_not_be_seen_are_left_out(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2, "B": 1, "__consumer_offsets": 50}
    library(admin).configs = {"A": {"x": SimpleNamespace(name="x", **vars(dynamic("1")))}, "B": MISSING}
    assert admin.topics() == {"A": TopicInfo("A", 2, {"x": "1"}, 3), "B": TopicInfo("B", 1, {}, 1)}
    before = len(library(admin).told("describe_topics"))
    assert (admin.partitions("A"), admin.partitions("B")) == (2, 1)
    assert len(library(admin).told("describe_topics")) == before, "what was seen is not asked again"
    library(admin).away = [failed(KafkaError._TRANSPORT)]
    with pytest.raises(LogUnavailable, match="topics cannot be listed"):
        admin.topics()
    library(admin).topics = {}
    assert admin.topics() == {}


def test_options_of_listed_topics_are_asked_for_at_the_first_read_of_one_and_once(admin: KafkaAdmin) -> None:
    """Each list asked for the options of all topics: a start on a cluster with 320 topics took 3 s of processor time for that."""
    told = library(admin).told
    library(admin).topics = {"A": 2, "B": 1, "C": 1}
    library(admin).configs = {"A": {"x": SimpleNamespace(name="x", **vars(dynamic("1")))}, "B": {}, "C": DENIED}
    listed = admin.topics()
    assert (sorted(listed), told("describe_configs")) == (["A", "B", "C"], [])
    with pytest.raises(LogDenied, match="topic C"):
        len(listed["B"].config)
    library(admin).configs["C"] = MISSING
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: listed["A"].config == {"x": "1"}, range(20))) == [True] * 20
    assert listed["A"].config.items() >= {"x": "1"}.items()
    assert (dict(listed["C"].config), listed["B"].config.get("x")) == ({}, None)
    assert told("describe_configs") == [["A", "B", "C"]] * 2, "the one that was refused, and one more"
    copied = pickle.loads(pickle.dumps(listed["A"]))
    assert (copied, type(copied.config), repr(copied.config)) == (listed["A"], dict, repr(listed["A"].config))
    again = admin.topics()["A"]
    library(admin).configs = {}
    assert (made(admin, "B", NewTopic(1)).partitions, dict(again.config)) == (1, {})
    assert told("describe_configs")[2:] == [["A", "B", "C"]], (
        "one that is there is described, its options are not asked for"
    )


def test_numbers_of_partitions_are_those_of_this_moment(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    assert admin.partition_counts(["A", "B"]) == {"A": 2}
    library(admin).topics["A"] = 3
    assert admin.partition_counts(["A"]) == {"A": 3}
    asked = len(library(admin).told("describe_topics"))
    assert admin.partition_counts([]) == {}
    assert len(library(admin).told("describe_topics")) == asked
    library(admin).refused["A"] = DENIED
    with pytest.raises(LogDenied, match="topic A"):
        admin.partition_counts(["A"])


def test_a_partition_is_one_of_those_that_a_topic_has(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    admin.check_partition(A0)
    admin.check_partition(A1)
    for number in (-1, 2):
        with pytest.raises(LogError, match=f"topic A has 2 partitions, none with number {number}"):
            admin.check_partition(TopicPartition("A", number))
    assert len(library(admin).told("describe_topics")) == 1
    admin.forget("A")
    admin.forget("A")
    admin.check_partition(A0)
    assert len(library(admin).told("describe_topics")) == 2


def test_rights_are_those_that_brokers_report(admin: KafkaAdmin) -> None:
    """Brokers without an authorizer report none."""
    library(admin).topics = dict.fromkeys(("r", "w", "all", "none"), 1)
    library(admin).rights = {
        "r": [AclOperation.READ],
        "w": [AclOperation.WRITE],
        "all": [AclOperation.ALL],
        "none": None,
    }
    library(admin).topics["denied"] = 1
    library(admin).refused["denied"] = DENIED
    names = ["r", "w", "all", "none", "denied", "gone"]
    assert admin.writable(names) == {"w", "all", "none"}
    assert admin.readable(names) == {"r", "all", "none"}
    assert library(admin).told("describe_topics")[-1][1] == {"include_authorized_operations": True}
    library(admin).refused["denied"] = int(KafkaError._TRANSPORT)
    with pytest.raises(LogUnavailable, match="topic denied"):
        admin.readable(names)


# Offsets


def test_offsets_are_asked_for_at_the_right_end_and_isolation(admin: KafkaAdmin) -> None:
    library(admin).topics, library(admin).ends = {"A": 2}, {A0: ["7"], A1: ["8"]}
    for ask, spec, isolation in (
        (admin.begin_offsets, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED),
        (admin.end_offsets, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        (admin.written_offsets, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    ):
        assert ask([]) == {}
        assert ask([A0, A1]) == {A0: 7, A1: 8}
        assert library(admin).told("list_offsets")[-1] == ([A0, A1], type(spec).__name__, isolation)
    assert len(library(admin).told("list_offsets")) == 3
    assert (admin.begin_offset(A0), admin.end_offset(A1)) == (7, 8)
    assert [spec for _, spec, _ in library(admin).told("list_offsets")[-2:]] == [
        type(OffsetSpec.earliest()).__name__,
        type(OffsetSpec.latest()).__name__,
    ]


def test_offsets_of_one_partition_are_those_of_a_partition_that_exists(
    admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(admin).topics, library(admin).ends = {"A": 1}, {A0: ["9"]}
    assert admin.written_offset(A0) == 9
    assert library(admin).told("list_offsets")[-1][2] is IsolationLevel.READ_UNCOMMITTED
    monkeypatch.setattr(admin, "_offsets", lambda *_: {})  # the topic is deleted meanwhile
    for offset in (admin.written_offset, admin.end_offset, admin.begin_offset):
        with pytest.raises(TopicMissing, match="there is no topic partition A-0"):
            offset(A0)
    with pytest.raises(TopicMissing, match="there is no topic B"):
        admin.written_offset(B0)


def test_partitions_whose_leader_is_changing_are_asked_again_and_no_others(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    library(admin).ends = {A0: ["7"], A1: [SETTLING, MISSING, "8"], B0: [MISSING]}
    admin._partitions["B"] = 1
    assert admin.end_offsets([A0, A1, B0]) == {A0: 7, A1: 8}, "what does not exist is left out"
    assert [tps for tps, _, _ in library(admin).told("list_offsets")] == [[A0, A1, B0], [A1], [A1]]
    assert admin._partitions == {}, "and what was known of it forgotten"
    assert library(admin).told("poll") == [admins._SETTLE_S, 2 * admins._SETTLE_S]
    admin._partitions["B"] = 1
    with pytest.raises(TopicMissing, match="there is no topic partition B-0"):
        admin.end_offset(B0)
    with pytest.raises(LogError, match="none with number 7"):
        admin.end_offset(TopicPartition("A", 7))


def test_a_partition_above_those_of_its_topic_is_left_out(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 1}
    library(admin).ends = {A0: ["7"], A1: [MISSING]}
    assert admin.end_offsets([A0, A1]) == {A0: 7}


def test_a_leader_that_changes_for_long_and_other_errors_name_the_partition(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    for code, kind, asked in ((SETTLING, LogUnavailable, admins.TIMEOUT_S / 5 + 1), (DENIED, LogDenied, 1)):
        library(admin).ends, library(admin).asked = {A0: ["7"], A1: [code]}, []
        with pytest.raises(kind, match="offsets of A-1") as raised:
            admin.end_offsets([A0, A1])
        assert raised.value.partition == A1
        assert len(library(admin).told("list_offsets")) == asked
    library(admin).ends, library(admin).refused = {A1: [SETTLING]}, {"A": DENIED}
    with pytest.raises(LogDenied, match="topic A") as raised:
        admin.end_offsets([A1])
    assert raised.value.partition == A1


def test_an_offset_that_brokers_do_not_know_yet_is_none(admin: KafkaAdmin) -> None:
    library(admin).topics, library(admin).ends = {"A": 1}, {A0: ["-1001"]}
    with pytest.raises(LogUnavailable, match="A-0: brokers do not know its end yet"):
        admin.end_offset(A0)
    library(admin).ends = {A0: ["0"]}
    assert admin.end_offset(A0) == 0


def test_ends_are_there_when_all_are_and_fail_for_partitions_that_exist(admin: KafkaAdmin) -> None:
    library(admin).topics = {"A": 2}
    library(admin).ends = {A0: ["7"], A1: ["8"], B0: [MISSING]}
    assert admin.ask_end_offsets([A0, A1, B0]).result() == {A0: 7, A1: 8}
    nothing = admin.ask_end_offsets([])
    assert (nothing.done(), nothing.result()) == (True, {})
    library(admin).ends[A1] = [SETTLING]
    with pytest.raises(LogUnavailable, match="the end of A-1"):
        admin.ask_end_offsets([A0, A1]).result()
    library(admin).ends[A1] = [DENIED]
    with pytest.raises(LogDenied, match="the end of A-1") as raised:
        admin.ask_end_offsets([A0, A1]).result()
    assert raised.value.partition == A1
    late: Future[Any] = Future()
    ends = EndOffsets({A0: answer(SimpleNamespace(offset=7)), A1: late}, lambda tps: [])
    assert not ends.done()
    late.set_result(SimpleNamespace(offset=8))
    assert ends.done()


def test_records_are_deleted_up_to_an_offset(admin: KafkaAdmin) -> None:
    library(admin).topics, library(admin).ends = {"A": 1}, {A0: ["9"]}
    admin.drop_before(A0, 9)  # all records, as 9 is the end
    with pytest.raises(LogError, match="A-0: 10 is above the end 9"):
        admin.drop_before(A0, 10)
    assert library(admin).told("delete_records") == [[("A", 0, 9)]]
    with pytest.raises(LogError, match="none with number 1"):
        admin.drop_before(A1, 9)
    library(admin).changing = int(KafkaError.POLICY_VIOLATION)
    with pytest.raises(LogError, match="A-0: records before 9 cannot be deleted"):
        admin.drop_before(A0, 9)


def test_topics_are_described_only_where_there_are_any(admin: KafkaAdmin) -> None:
    assert admin.describe_topics([]).result() == {}
    assert library(admin).told("describe_topics") == []


def test_topics_made_here_keep_the_times_of_records_whatever_the_brokers_default_is(admin: KafkaAdmin) -> None:
    """Under LogAppendTime every result would have the time of its commit. What every topic has is not shown as its config."""
    library(admin).ends = {A0: ["0"]}
    library(admin).configs = {"A": {"t": SimpleNamespace(name="message.timestamp.type", **vars(dynamic("CreateTime")))}}
    assert made(admin, "A", NewTopic(1)).config == {}
    assert library(admin).told("create_topics")[0][3] == {"message.timestamp.type": "CreateTime"}
