"""The placement step of one member: heartbeats, what it owns, and the leader's work where this member is the leader.

It replaces the membership that Kafka's brokers keep: a member that dies is noticed after three seconds, whatever sessions the brokers permit, a
member that comes back with its data finds its partitions, and nothing moves that need not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flowql.runtime import formats
from flowql.runtime.errors import Fenced, LogError, NewerVersion, StaleMember
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import LATEST, Log, Producer, Reader, TopicPartition
from flowql.runtime.placement.balance import units_of
from flowql.runtime.placement.heartbeats import BEAT_MS, TOPIC, Heartbeat, Heartbeats, heartbeat_topic
from flowql.runtime.placement.leader import Wanted, giving_up, next_placement
from flowql.runtime.placement.reading import PlacementReader, read_placement
from flowql.runtime.placement.record import KEY, Placement, PlacementChange, PlacementEvent, placement_topic
from flowql.runtime.state.changelog import COMPACTED, records_of

LOOK_MS, RETRY_MS = 50, 200
# Between two looks while no member says anything new, and how long after that.
QUIET_MS, QUIET_AFTER_MS = 150, 5_000
AGAIN_MS = 500  # until a leader that was replaced looks again whether it is one
_READ_ROWS, _READ_BYTES = 10_000, 1 << 24


@dataclass(frozen=True, slots=True)
class _Decided:
    """The inputs of the leader's last decision, which stands until one of them changes."""

    number: int
    alive: tuple[
        tuple[str, int, int, tuple[TopicPartition, ...], formats.Ranges, str], ...
    ]  # joined, applied, warm, formats, rack
    wanted: Wanted | None


class PlacementStep:
    """Owned by its thread, but for the calls of the first part, which any thread may make.

    transactional_id: of a member, whose producer is fenced before others get its partitions. rack: where this member runs.
    """

    def __init__(
        self,
        log: Log,
        application_id: str,
        member: str,
        wall_ms: Callable[[], int],
        transactional_id: Callable[[str], str],
        rack: str = "",
    ) -> None:
        self._log, self._app, self.member, self._wall_ms, self._rack = log, application_id, member, wall_ms, rack
        self._transactional_id = transactional_id
        self._placed, self._heard = placement_topic(application_id), heartbeat_topic(application_id)
        self._lock = threading.Lock()  # guards what follows, up to the empty line; never held while the log is asked
        self.placement = Placement()  # the newest; any thread may read it
        self._joined = self._applied = 0
        self._held: set[TopicPartition] = set()
        self._leaving: set[TopicPartition] = set()  # of them: a REVOKE that is not acknowledged
        self._recovering = False  # a LOST is not acknowledged
        self._away = False
        self._is_open = False  # everything was read once

        self._placements: PlacementReader | None = None
        self._beats: Reader | None = None
        self._heartbeats = Heartbeats(member)
        self._events: deque[PlacementEvent] = deque()
        self._wanted: Wanted | None = None
        self._warm: tuple[TopicPartition, ...] = ()
        self._writer: Producer | None = None
        self._decided: _Decided | None = None
        self._beat, self._said = 0, Heartbeat(member, 0, 0, 0)
        self._beat_at_ms = self._lead_at_ms = self._quiet_at_ms = 0
        self._is_news = False  # something else than heartbeats at intervals was read
        self.trouble = ""  # why placement does not go on, for status
        self.wake: Callable[[], None] = lambda: None
        self.notify: Callable[[], None] = lambda: None  # there are events
        # Done at each step, with the producer that only the leader has; returns in how many ms it is to be done again.
        self.also: Callable[[int, Producer | None], int | None] = lambda now_ms, writer: None

    # -- any thread

    def want(
        self,
        plan: int,
        reads: Iterable[Collection[TopicPartition]],
        topics: Iterable[str],
        stateful: Iterable[TopicPartition],
        standbys: int,
    ) -> None:
        """Partitions that tasks of the plan read, those of one task together; all topics that its queries read; the partitions
        that tasks with state read; and how many copies of state other members keep.
        """
        self._wanted = Wanted(plan, tuple(units_of(reads)), frozenset(topics), frozenset(stateful), standbys)
        self.wake()

    @property
    def copied(self) -> set[TopicPartition]:
        """Partitions of others, of whose tasks this member keeps copies."""
        placement = self.placement
        return placement.copied_by(self.member) - self._held if placement.copies else set()

    def tell_warm(self, tps: Iterable[TopicPartition]) -> None:
        """Partitions of `copied` whose copies are near the end of their changelogs."""
        if (warm := tuple(sorted(tps))) != self._warm:
            self._warm = warm
            self.wake()

    def events(self) -> list[PlacementEvent]:
        """Changes since the last call, in order. One thread."""
        out: list[PlacementEvent] = []
        while self._events:
            out.append(self._events.popleft())
        return out

    def acknowledge(self) -> None:
        """Completes the pending REVOKE: its partitions are committed, and no task of this member reads them. Or a LOST: nothing of
        what was held can be committed any more. The thread that takes events calls it.
        """
        if any(event.change is PlacementChange.LOST for event in self._events):
            return  # it has to be taken first
        with self._lock:
            self._held -= self._leaving
            self._leaving, self._recovering = set(), False
            self._learn(None)
        self.wake()

    def stay_away(self, *, away: bool) -> None:
        """Leaves: others get its partitions after they have fenced it. Or joins again."""
        with self._lock:
            if away and not self._away:
                self._lose()
            self._away = away
        self.wake()

    def confirm(self) -> None:
        """Called after this member has made a new producer, before anything is committed with it. StaleMember if the member
        was given up meanwhile and has not acknowledged that: the new producer has escaped the fence of its predecessor. LogError.
        """
        newest = read_placement(self._log, self._app)
        with self._lock:
            self._learn(newest)
            if self._recovering or self._is_given_up():
                raise StaleMember("this member was declared dead: it was silent for too long")

    def written(self, kind: str) -> int:
        """The format in which this instance writes records of a kind: the newest one that all members read."""
        now = self.placement
        newest = formats.newest(kind)
        return min(newest, now.formats.get(kind, formats.FIRST)) if now.number else newest

    def check_formats(self) -> None:
        """NewerVersion if this version cannot read what the other members write."""
        agreed = self.placement.formats
        for kind in formats.unread_by(formats.read(), agreed):
            low, high = formats.read().get(kind, (formats.FIRST, formats.FIRST))
            raise NewerVersion(
                f"the members of {self._app} write {kind} format {agreed.get(kind, formats.FIRST)}; this version of FlowQL reads {low} to {high}: "
                "install the version of the other members"
            )

    @property
    def owned(self) -> int:
        """How many partitions this member owns."""
        return len(self._held)

    # -- the step

    def run_once(self, now_ms: int) -> int:
        try:
            if not self._open():
                self._read()
            if self._events:
                self.notify()
            self._tell(now_ms)
            self._lead(now_ms)
            again_ms = self._do_also(now_ms)
        except LogError as error:
            self.trouble = str(error)
            return RETRY_MS
        self.trouble = ""
        if self._is_news or self._heartbeats.is_late:
            self._quiet_at_ms, self._is_news = now_ms + QUIET_AFTER_MS, False
        look_ms = LOOK_MS if now_ms < self._quiet_at_ms else QUIET_MS
        return look_ms if again_ms is None else min(look_ms, again_ms)

    def close(self) -> None:
        """Leaves, after the threads of the instance have ended and what they did is committed. Raises nothing."""
        self._away = True
        try:
            if self._is_open:
                self._append(self._heartbeat())
            self._resign()
        except LogError as error:
            say(WARNING, "log.trouble", f"the others learn only from its silence that this member has left: {error}")

    def _open(self) -> bool:
        """Reads everything for the first time: this member joins as of then. False if that was done before."""
        if self._is_open:
            return False
        admin = self._log.admin()
        admin.create_topic(self._placed.topic, 1, COMPACTED)
        admin.create_topic(self._heard.topic, 1, TOPIC)
        self._beats = self._beats or self._log.reader(self._heard, LATEST)
        self._placements = self._placements or PlacementReader(self._log, self._app)
        self._read(to_end=True)
        with self._lock:
            self._joined, self._is_open = self.placement.number, True
            self._judge()
        return True

    def _read(self, *, to_end: bool = False) -> None:
        """to_end: everything that was committed before this call. LogUnavailable while some of it is not visible yet."""
        assert self._placements is not None, "nothing is open"
        assert self._beats is not None, "nothing is open"
        end = self._log.admin().written_offset(self._placed) if to_end else 0
        while (batch := self._beats.take(_READ_ROWS, _READ_BYTES)) is not None:
            self._is_news |= self._heartbeats.take(batch.records.column("value").to_pylist())
        newest = self._placements.newer(to_end=to_end)
        self._is_news |= newest is not None
        with self._lock:
            self._learn(newest)
        self._placements.check_end(end)

    def _learn(self, newest: Placement | None) -> None:
        """The lock is held."""
        if newest is not None and newest.number > self.placement.number:
            self.placement = newest
        if self._is_open:
            self._judge()

    def _is_given_up(self) -> bool:
        now = self.placement
        given_up = self.member in now.fencing or now.dead.get(self.member, 0) > self._joined
        return given_up or not self._held <= now.owned_by(self.member)

    def _judge(self) -> None:
        """Compares the newest placement with what this member holds. The lock is held."""
        now = self.placement
        if self._is_given_up():
            if self._held or now.dead.get(self.member, 0) > self._joined:
                self._lose()
            return
        if self._leaving or self._recovering or self._away:
            return  # what is assigned comes after that
        granted = now.granted_to(self.member)
        if gone := self._held - granted:
            self._leaving = gone
            self._add(PlacementChange.REVOKE, gone)
            return
        if new := granted - self._held:
            self._held |= new
            self._add(PlacementChange.ASSIGN, new)
        self._applied = now.number

    def _lose(self) -> None:
        """Nothing that was held may be committed. The lock is held."""
        lost, self._held, self._leaving = self._held, set(), set()
        self._joined, self._applied, self._recovering = self.placement.number, 0, True
        self._add(PlacementChange.LOST, lost)

    def _add(self, change: PlacementChange, tps: Collection[TopicPartition]) -> None:
        say(INFO, "placement.changed", f"{len(tps)} partitions", change=change.value, number=self.placement.number)
        self._events.append(PlacementEvent(change, tuple(sorted(tps))))

    # -- heartbeats

    def _heartbeat(self) -> Heartbeat:
        said = self._joined, self._applied, self._beat, self._away, self._warm
        return Heartbeat(self.member, *said, formats.read(), self.written("heartbeat"), self._rack)

    def _tell(self, now_ms: int) -> None:
        """At intervals, and at once when there is something to tell."""
        if now_ms >= self._beat_at_ms:
            self._beat += 1
            self._beat_at_ms = now_ms + BEAT_MS
        beat = self._heartbeat()
        if beat != self._said:
            self._append(beat)
            self._said = beat

    def _append(self, beat: Heartbeat) -> None:
        key, value = beat.encode()
        self._log.append(self._heard, records_of([key], [value], self._wall_ms()))

    # -- the leader

    def _alive(self) -> dict[str, Heartbeat]:
        """Members that may own partitions, this one included if it does not leave."""
        found = {self.member: self._heartbeat()}
        for member in self._heartbeats.members() - {self.member}:
            beat = self._heartbeats.last(member)
            assert beat is not None, "it was heard"
            if not self._heartbeats.is_silent(member):
                found[member] = beat
        dead, agreed = self.placement.dead, self.placement.formats
        here = {m: b for m, b in sorted(found.items()) if not b.leaving and b.joined >= dead.get(m, 0)}
        return {m: b for m, b in here.items() if not formats.unread_by(b.formats, agreed)}

    def _is_leader(self, alive: Collection[str]) -> bool:
        """The last one goes on while it is alive; then the first of those that are. A member that was never heard may be it for a while."""
        last = self.placement.leader
        if (
            last
            and last not in alive
            and last not in self._heartbeats.members()
            and not self._heartbeats.is_silent(last)
        ):
            return False
        return bool(alive) and (last if last in alive else min(alive)) == self.member

    def _lead(self, now_ms: int) -> None:
        if now_ms < self._lead_at_ms:
            return
        alive = self._alive()
        if not self._is_leader(alive):
            self._resign()
            return
        with self._writing(now_ms):
            if self._writer is None:
                self._writer = self._log.producer(f"{self._app}-placement")
                self._read(to_end=True)  # of the last leader, which writes nothing any more
                return  # the next look sees who is alive and leads
            self._decide(alive)

    def _do_also(self, now_ms: int) -> int | None:
        again_ms: int | None = None
        with self._writing(now_ms):
            again_ms = self.also(now_ms, self._writer)
        return again_ms

    @contextmanager
    def _writing(self, now_ms: int) -> Iterator[None]:
        """Another leader ends this one's time without an error."""
        try:
            yield
        except Fenced:
            self._resign()
            self._lead_at_ms = now_ms + AGAIN_MS
        except LogError:
            self._resign()  # a new producer finds out what was written
            raise

    def _resign(self) -> None:
        writer, self._writer, self._decided = self._writer, None, None
        if writer is not None:
            writer.close()

    def _decide(self, alive: dict[str, Heartbeat]) -> None:
        said = tuple((m, beat.joined, beat.applied, beat.warm, beat.formats, beat.rack) for m, beat in alive.items())
        decided = _Decided(self.placement.number, said, self._wanted)
        if decided == self._decided or self._unheard():
            return
        if (following := giving_up(self.placement, alive)) is not None:
            self._write(following)
            return
        for member in sorted(self.placement.fencing):
            self._log.producer(self._transactional_id(member)).close()
            say(
                WARNING,
                "placement.fenced",
                f"member {member} was silent or has left; others get its partitions",
                member=member,
            )
        following = next_placement(self.placement, alive, self._wanted, self.member)
        if following is not None:
            self._write(following)
        else:
            self._decided = decided

    def _unheard(self) -> set[str]:
        """Owners that this member has not heard yet, and that are not silent for long enough either."""
        known = self._heartbeats.members() | {self.member}
        return {m for m in self.placement.owners() - known if not self._heartbeats.is_silent(m)}

    def _write(self, following: Placement) -> None:
        assert self._writer is not None, "only the leader writes"
        self._writer.begin()
        self._writer.send(self._placed, records_of([KEY], [following.encode()], self._wall_ms()))
        self._writer.commit()
        with self._lock:
            self._learn(following)
        if self._events:
            self.notify()
