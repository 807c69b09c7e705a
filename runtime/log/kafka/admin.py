"""Topics and offsets of a Kafka cluster: one admin client for all of an instance, safe from any thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from confluent_kafka.admin import NewTopic as TopicToMake

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import NewTopic, TopicDescription, TopicInfo, TopicPartition
from flowql.runtime.log.clients import check_topic_name
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.settings import KafkaSettings

Ask = Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]


class Listed:
    """Topics that were listed together: the first read of an option of any asks for those of all, once. Safe from any thread."""

    def __init__(self, topics: Collection[str], ask: Ask) -> None:
        self._topics, self._ask, self._lock = topics, ask, Lock()
        self._found: Mapping[str, Mapping[str, str]] | None = None

    def options(self, topic: str) -> Mapping[str, str]:
        """Empty for a topic that has been deleted. LogDenied, LogUnavailable: the next call asks again."""
        with self._lock:
            if self._found is None:
                self._found = self._ask(self._topics)
            return self._found.get(topic, {})


class TopicOptions(Mapping[str, str]):
    """The options of one topic; a copy or a pickle of it is a dict."""

    def __init__(self, listed: Listed, topic: str) -> None:
        self._listed, self._topic = listed, topic

    def __getitem__(self, option: str) -> str:
        return self._listed.options(self._topic)[option]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed.options(self._topic))

    def __len__(self) -> int:
        return len(self._listed.options(self._topic))

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (dict(self),)


TIMEOUT_S = 30.0  # of a call whose caller waits for the answer
GREET_S = 1.0  # between two looks whether brokers have refused us
_SETTLE_S, _SETTLE_MAX_S = 0.01, 0.2
# Topics that are made here keep the event times of their records, also where the brokers' `log.message.timestamp.type` is LogAppendTime.
AHEAD_MAX = "message.timestamp.after.max.ms"  # since Kafka 3.6, an hour from Kafka 4.0 on (KIP-937)
OWN_TIMES: Mapping[str, str] = {"message.timestamp.type": "CreateTime"}
_Part = TypeVar("_Part")
_Answer = TypeVar("_Answer")
_NO_ID = {"None", "", "A" * 22}  # the last is all zeros in base 64


class KafkaAdmin:
    """The Admin of a Kafka log. Calls block for a round trip, up to TIMEOUT_S when brokers do not answer: LogUnavailable."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        self._refusals: list[str] = []  # why brokers would not let us in
        self._connection, self._client_id = connection, client_id
        self._made: AdminClient | None = None
        self._known = False  # brokers have answered
        self._replication = connection.replication or -1
        self._clock = SystemClock()
        # Topics are seldom made and never get fewer partitions: what was seen once is asked again only when it is not there.
        self._partitions: dict[str, int] = {}

    # Brokers

    @property
    def is_connected(self) -> bool:
        """Whether the client has been made, which happens at the first call."""
        return self._made is not None

    @property
    def _client(self) -> AdminClient:
        """The client, once brokers have answered."""
        self.greet()
        return self._library()

    def _library(self) -> AdminClient:
        if self._made is None:
            told = {**self._connection.admin(self._client_id), "error_cb": partial(_note, self._refusals)}
            self._made = AdminClient(told, logger=LOGGER)
        return self._made

    def greet(self, seconds: float | None = None) -> None:
        """Before anything is asked: LogDenied at once if brokers do not let us in, which to other calls is a long silence.

        seconds: how long to wait for an answer until LogUnavailable is raised; TIMEOUT_S by default.
        """
        limit = self._clock.timer_ms() + (TIMEOUT_S if seconds is None else seconds) * 1000
        while not self._known:
            try:
                self._library().list_topics(timeout=GREET_S)
                self._known = True
            except KafkaException as error:
                self._library().poll(0)
                if self._refusals:
                    raise LogDenied(f"brokers do not let us in: {self._refusals[-1]}") from error
                if self._clock.timer_ms() > limit:
                    raise errors.failure(errors.of(error), "brokers cannot be reached") from error

    # Topics

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        return self.create_topics({name: NewTopic(partitions, config or {})})[name]

    def create_topics(self, topics: Mapping[str, NewTopic]) -> dict[str, TopicInfo]:
        for name, new in topics.items():
            check_topic_name(name)
            if new.partitions < 1:
                raise LogError(f"topic {name}: {new.partitions} partitions")
        known = self._describe(topics) if topics else {}
        if missing := {name: new for name, new in topics.items() if name not in known}:
            known |= self._create(missing)
        for name, new in topics.items():
            if known[name] != new.partitions:
                raise LogError(f"topic {name} exists with {known[name]} partitions, not {new.partitions}")
        listed = Listed(topics, self.options_of)
        return {name: TopicInfo(name, known[name], TopicOptions(listed, name)) for name in topics}

    def _create(self, topics: Mapping[str, NewTopic]) -> dict[str, int]:
        """The partitions they then have: another client may have been quicker."""
        wanted = [
            TopicToMake(name, new.partitions, self._replication, config={**OWN_TIMES, **new.config})
            for name, new in topics.items()
        ]
        failed: LogError | None = None
        for name, future in self._client.create_topics(wanted, operation_timeout=TIMEOUT_S).items():
            try:
                _result(future)
            except KafkaException as error:
                if errors.of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    failed = failed or errors.failure(errors.of(error), f"topic {name} cannot be made")
        if failed is not None:
            raise failed
        return self._await(topics)

    def _await(self, names: Collection[str]) -> dict[str, int]:
        """Brokers learn of a new topic a moment after it is made: until then nothing can be done with it."""
        limit = self._clock.timer_ms() + TIMEOUT_S * 1000
        known: dict[str, int] = {}
        while self._clock.timer_ms() < limit:
            known = self._describe(names)
            if len(known) == len(names) and self._led(known):
                return known
            self._client.poll(_SETTLE_S)
        missing = next((name for name in names if name not in known), next(iter(names)))
        raise LogUnavailable(f"topic {missing} was made, and has no leaders after {TIMEOUT_S:.0f} s")

    def _led(self, topics: Mapping[str, int]) -> bool:
        """Whether every partition can be asked for its end."""
        tps = [TopicPartition(name, p) for name, n in topics.items() for p in range(n)]
        return len(self.end_offsets(tps)) == len(tps)

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        partitions = self.partitions(name)
        entries = [
            ConfigEntry(
                option,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for option, value in changes.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        with errors.naming(f"topic {name} cannot be changed"):
            for future in self._client.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
                _result(future)
        return self._info(name, partitions)

    def _info(self, name: str, partitions: int) -> TopicInfo:
        return TopicInfo(name, partitions, TopicOptions(Listed([name], self.options_of), name))

    def delete_topic(self, name: str) -> None:
        self._partitions.pop(name, None)
        with errors.naming(f"topic {name} cannot be deleted"):
            _result(self._client.delete_topics([name], operation_timeout=TIMEOUT_S)[name])
        limit = self._clock.timer_ms() + TIMEOUT_S * 1000
        while self._describe([name]) and self._clock.timer_ms() < limit:  # brokers forget it a moment later
            self._client.poll(_SETTLE_S)

    def topics(self) -> dict[str, TopicInfo]:
        with errors.naming("topics cannot be listed"):
            listed = self._client.list_topics(timeout=TIMEOUT_S).topics
        found = {name: len(t.partitions) for name, t in listed.items() if t.error is None and not name.startswith("__")}
        copies = {name: max((len(p.replicas) for p in t.partitions.values()), default=1) for name, t in listed.items()}
        self._partitions = dict(found)
        all_of = Listed(found, self.options_of)
        return {name: TopicInfo(name, n, TopicOptions(all_of, name), copies[name]) for name, n in found.items()}

    def with_replaced_times(self, topics: Collection[str]) -> set[str]:
        (name, ours), *_ = OWN_TIMES.items()
        return {topic for topic, config in self.configs_of(topics).items() if config.get(name, ours) != ours}

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        return self._describe(topics) if topics else {}

    def partitions(self, topic: str) -> int:
        """How many a topic has. TopicMissing."""
        known = self._partitions.get(topic)
        if known is None:
            known = self._describe([topic]).get(topic)
            if known is None:
                raise TopicMissing(f"there is no topic {topic}")
            self._partitions[topic] = known
        return known

    def check_partition(self, tp: TopicPartition) -> None:
        """TopicMissing, or LogError if the topic has no such partition."""
        count = self.partitions(tp.topic)
        if not 0 <= tp.partition < count:
            raise LogError(f"topic {tp.topic} has {count} partitions, none with number {tp.partition}")

    def forget(self, topic: str) -> None:
        """Drops cached facts of a topic that may have been deleted."""
        self._partitions.pop(topic, None)

    def _describe(self, names: Collection[str]) -> dict[str, int]:
        """Partition counts of those that exist. Unlike a metadata request, this never makes a topic."""
        found: dict[str, int] = {}
        asked = self._client.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
        for name, future in asked.items():
            try:
                found[name] = len(_result(future).partitions)
            except KafkaException as error:
                failed = errors.failure(errors.of(error), f"topic {name}")
                if not isinstance(failed, TopicMissing):
                    failed.partition = TopicPartition(name, 0)
                    raise failed from error
        return found

    def writable(self, topics: Collection[str]) -> set[str]:
        """The topics that exist and that this user may write to."""
        return self._permitted(topics, AclOperation.WRITE)

    def readable(self, topics: Collection[str]) -> set[str]:
        """The topics that exist and that this user may read."""
        return self._permitted(topics, AclOperation.READ)

    def _permitted(self, topics: Collection[str], operation: AclOperation) -> set[str]:
        asked = self._client.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=TIMEOUT_S
        )
        told = {name: topic.authorized_operations for name, topic in _answers(asked)}
        # Brokers without an authorizer report no rights.
        return {name for name, rights in told.items() if not rights or {operation, AclOperation.ALL} & set(rights)}

    def options_of(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The options with which each topic was made, without those that the broker adds."""
        found: dict[str, dict[str, str]] = {}
        for name, entries in self._configs(names, TopicMissing):  # those may be deleted meanwhile
            said = (e for e in entries.values() if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
            own = {e.name: str(e.value) for e in said}
            found[name] = {k: v for k, v in own.items() if OWN_TIMES.get(k) != v}
        return found

    def configs_of(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Whole configs, with defaults of the brokers; topics that do not exist, or may not be described, are left out."""
        told = self._configs(topics)
        return {name: {e.name: str(e.value) for e in entries.values()} for name, entries in told}

    def _configs(self, topics: Iterable[str], *left_out: type[LogError]) -> Iterator[tuple[str, Any]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        asked = self._client.describe_configs(resources, request_timeout=TIMEOUT_S) if resources else {}
        return _answers({resource.name: future for resource, future in asked.items()}, *left_out)

    # Offsets

    def begin_offset(self, tp: TopicPartition) -> int:
        return self._offset(tp, OffsetSpec.earliest())

    def end_offset(self, tp: TopicPartition) -> int:
        return self._offset(tp, OffsetSpec.latest())

    def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(tps, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED) if tps else {}

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of committed records: before records of transactions that are still open."""
        return self._offsets(tps, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) if tps else {}

    def written_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The same with records of open transactions."""
        return self._offsets(tps, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED) if tps else {}

    def written_offset(self, tp: TopicPartition) -> int:
        return self._offset(tp, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def _offset(
        self, tp: TopicPartition, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> int:
        self.check_partition(tp)
        found = self._offsets([tp], spec, isolation)
        if tp not in found:
            raise TopicMissing(f"there is no topic partition {tp}")
        return found[tp]

    def _offsets(
        self, tps: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """The offsets of existing partitions; those whose leader is just changing are asked again."""
        found: dict[TopicPartition, int] = {}
        left, pause_s = list(tps), _SETTLE_S
        limit = self._clock.timer_ms() + TIMEOUT_S * 1000
        while left:
            again: list[TopicPartition] = []
            for tp, future in self._ask(left, spec, isolation).items():
                try:
                    found[tp] = _known(int(_result(future).offset), tp)
                except KafkaException as error:
                    failed = errors.failure(errors.of(error), f"offsets of {tp}")
                    gone = isinstance(failed, TopicMissing)
                    if gone or (errors.settling(errors.of(error)) and self._clock.timer_ms() < limit):
                        again.append(tp)
                    else:
                        failed.partition = tp
                        raise failed from error
            left = self._existing(again)  # brokers that just came back may not know all topics yet
            if left:  # hundreds of new topics get their leaders one after the other
                self._client.poll(pause_s)
                pause_s = min(2 * pause_s, _SETTLE_MAX_S)
        return found

    def _existing(self, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Keeps existing partitions. For a deleted topic the client finds no leader, as for one whose leader is changing."""
        topics = {tp.topic: tp for tp in tps}
        try:
            counts = self._describe(topics) if topics else {}
        except LogError as error:
            error.partition = topics.get(error.partition[0]) if error.partition is not None else None
            raise
        for tp in tps:
            if tp.topic not in counts:
                self.forget(tp.topic)
        return [tp for tp in tps if tp.partition < counts.get(tp.topic, 0)]

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """Partitions that do not exist are left out, those whose leader is just changing fail the whole: ask again."""
        return self._ask_ends(tps, IsolationLevel.READ_COMMITTED)

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return self._ask_ends(tps, IsolationLevel.READ_UNCOMMITTED)

    def _ask_ends(self, tps: Sequence[TopicPartition], isolation: IsolationLevel) -> Future[dict[TopicPartition, int]]:
        if not tps:
            nothing: Future[dict[TopicPartition, int]] = Future()
            nothing.set_result({})
            return nothing
        return EndOffsets(self._ask(tps, OffsetSpec.latest(), isolation), self._existing)

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        """Brokers older than 2.8, and some that are not Kafka, do not tell ids."""
        asked = (
            self._client.describe_topics(TopicCollection(sorted(topics)), request_timeout=TIMEOUT_S) if topics else {}
        )
        return TopicDescriptions(asked)

    def _ask(
        self, tps: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, Future[Any]]:
        asked = {KafkaPartition(tp.topic, tp.partition): spec for tp in tps}
        found = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
        return {TopicPartition(k.topic, k.partition): future for k, future in found.items()}

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        """Deletes records below `offset` (retention)."""
        if offset > (end := self.end_offset(tp)):
            raise LogError(f"{tp}: {offset} is above the end {end}")
        asked = KafkaPartition(tp.topic, tp.partition, offset)
        with errors.naming(f"{tp}: records before {offset} cannot be deleted"):
            for future in self._client.delete_records([asked], request_timeout=TIMEOUT_S).values():
                _result(future)

    # Groups

    def groups(self, prefix: str) -> list[str]:
        """LogUnavailable where a broker does not answer: its groups would be missing."""
        with errors.naming("consumer groups cannot be listed"):
            found = _result(self._client.list_consumer_groups(request_timeout=TIMEOUT_S))
        if found.errors:
            raise errors.failure(errors.of(found.errors[0]), "consumer groups cannot be listed")
        return sorted(g.group_id for g in found.valid if g.group_id.startswith(prefix))


def _result(future: Future[Any]) -> Any:
    """The client's own timeout comes first, unless this process was suspended meanwhile."""
    try:
        return future.result(TIMEOUT_S + 5)
    except TimeoutError as error:
        raise LogUnavailable("the client has given no answer of the brokers in time") from error


def _answers(asked: Mapping[str, Future[Any]], *left_out: type[LogError]) -> Iterator[tuple[str, Any]]:
    """Topics with the answers about them. left_out: errors of a topic that leave it out; by default that it is gone, or may not be described."""
    for name, future in asked.items():
        try:
            yield name, _result(future)
        except KafkaException as error:
            failed = errors.failure(errors.of(error), f"topic {name}")
            if not isinstance(failed, left_out or (TopicMissing, LogDenied)):
                raise failed from error


class _OfParts(Future[_Answer], Generic[_Part, _Answer]):
    """Done when all its parts are. Not a callback of theirs: those run in the client's own thread."""

    def __init__(self, parts: Mapping[_Part, Future[Any]]) -> None:
        super().__init__()
        self._parts = parts

    def done(self) -> bool:
        return all(part.done() for part in self._parts.values())


class EndOffsets(_OfParts[TopicPartition, dict[TopicPartition, int]]):
    """existing: of some partitions those that are not gone."""

    def __init__(
        self,
        parts: dict[TopicPartition, Future[Any]],
        existing: Callable[[Sequence[TopicPartition]], list[TopicPartition]],
    ) -> None:
        super().__init__(parts)
        self._existing = existing

    def result(self, timeout: float | None = None) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        failures: dict[TopicPartition, LogError] = {}
        for tp, part in self._parts.items():
            try:
                found[tp] = _known(int(part.result(timeout).offset), tp)
            except KafkaException as error:
                failed = errors.failure(errors.of(error), f"the end of {tp}")
                if not isinstance(failed, TopicMissing) and not errors.settling(errors.of(error)):
                    failed.partition = tp
                    raise failed from error
                failures[tp] = failed
        for tp in self._existing(list(failures)):
            raise failures[tp]
        return found


class TopicDescriptions(_OfParts[str, dict[str, TopicDescription]]):
    """Topics that are gone or may not be described are left out."""

    def result(self, timeout: float | None = None) -> dict[str, TopicDescription]:
        """LogUnavailable where brokers do not answer within TIMEOUT_S."""
        found = {name: (str(told.topic_id), len(told.partitions)) for name, told in _answers(self._parts)}
        return {name: TopicDescription("" if i in _NO_ID else i, n) for name, (i, n) in found.items()}


def _note(refusals: list[str], error: KafkaError) -> None:
    """No method: a client that knows its owner would not go with it."""
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        refusals.append(error.str())


def _known(offset: int, tp: TopicPartition) -> int:
    """The offset. A broker may answer -1001 (unknown) without an error just after its restart; this raises LogUnavailable."""
    if offset < 0:
        raise LogUnavailable(f"{tp}: brokers do not know its end yet")
    return offset


_GONE = KafkaError.GROUP_ID_NOT_FOUND


class GroupAdmin:
    """Calls block up to TIMEOUT_S. LogDenied, LogUnavailable."""

    def __init__(self, settings: KafkaSettings, application_id: str) -> None:
        self._client = AdminClient(Connection.to(settings).admin(f"{application_id}-groups"), logger=LOGGER)

    def delete(self, groups: Sequence[str]) -> None:
        """Deletes groups without members, with their positions. Groups that do not exist are left out."""
        asked = self._client.delete_consumer_groups(list(groups), request_timeout=TIMEOUT_S) if groups else {}
        for group, future in asked.items():
            with errors.naming(f"group {group} cannot be deleted"):
                try:
                    future.result(TIMEOUT_S)
                except KafkaException as error:
                    if errors.of(error).code() != _GONE:
                        raise
