"""Feeds read the changes of subscriptions: one reader, in one thread, for all subscribers of the same statement.

A feed keeps its last changes as pieces, each with the bytes of the forms in use. A subscriber has a cursor in a feed: the number of the piece it takes
next. A new subscriber joins where its changes begin, if the pieces reach so far back. Otherwise it gets a feed of its own, which hands its cursors
over once it has read as far as the feed that others share.

A cursor that is not moved while its feed has no room holds up the others for a moment, and then loses its place. Its subscriber continues with a feed
of its own, at its token. A feed whose cursors all wait waits for them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.arrow_changes import to_batch
from flowql.query.change import Rebuilt
from flowql.query.resuming import Place, can_resume, can_share
from flowql.server.change_stream import Form
from flowql.server.failures import INTERNAL, Failure
from flowql.server.following import Following, Mark, Point

if TYPE_CHECKING:
    from flowql.compiler.driver import PushQuery
    from flowql.query.push import Start
    from flowql.runtime.log.base import TopicPartition

KEPT_BYTES, KEPT_PIECES = 4 << 20, 1_024
SLOW_S = 5.0  # for which a cursor may hold up others
JOIN_S = 2.0  # for which a new cursor waits for a feed to reach the present
THREADS = 2  # compile statements, and encode what has not been
ASK_S, ANSWER_S = 0.2, 1.0  # between two questions of a feed to another one, and for the answer
TOO_MANY = "FQ5308"
Key = tuple[str, frozenset[str] | None, str]


class LeftBehind(Exception):
    """The changes at a cursor are no longer kept."""


@dataclass(slots=True)
class Piece:
    """Changes, a rebuild, or the end, with its failure if it has one. moved: the cursors continue in another feed. counted: its bytes as the feed
    counts them; None if no feed keeps it.
    """

    found: pa.RecordBatch | Rebuilt | None
    after: Point
    failure: Failure | None = None
    moved: bool = False
    counted: int | None = None
    _forms: dict[type[Form], bytes] = field(default_factory=dict)

    def is_encoded(self, form: Form) -> bool:
        return type(form) in self._forms

    def encoded(self, form: Form) -> bytes:
        if (made := self._forms.get(type(form))) is None:
            if isinstance(self.found, Rebuilt):
                made = form.rebuilt(self.found, self.after)
            elif self.found is not None:
                made = form.rows(self.found, self.after)
            else:
                made = form.end if self.failure is None else form.error(self.failure)
            self._forms[type(form)] = made
        return made

    @property
    def bytes(self) -> int:
        rows = self.found.nbytes if isinstance(self.found, pa.RecordBatch) else 0
        return rows + sum(map(len, self._forms.values()))


@dataclass(frozen=True, slots=True)
class Asked:
    """A subscription that is to begin. what, visible: its text and what it may read. about: see `Following.about`. begin: makes
    its reader, which has `stopped`, `wait` and `token`. alone: it shares no feed at first.
    is_slow: it has lost its place.
    """

    what: str
    visible: frozenset[str] | None
    start: Start
    token: str | None
    query: PushQuery
    about: str
    begin: Callable[..., Following]
    alone: bool = False
    is_slow: bool = False

    @property
    def key(self) -> Key:
        return self.what, self.visible, self.about


class Cursor:
    """A place in a feed. The lock of the feeds guards it."""

    def __init__(self, form: Form, loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
        """told: set, in its loop, when there may be something to take."""
        self.form, self.loop, self.told = form, loop, told
        self.feed: Feed | None = None
        self.at = 0
        self.held_s = 0.0  # for which others have waited for it
        self.is_closed = self.is_left_behind = False
        self.next: Cursor | None = None  # after a piece that is moved


@dataclass(slots=True, eq=False)
class _Join:
    """cursor: that wants to join; None for another feed that asks, with its mark and cursors."""

    answer: Future[Point | None]
    asked: Asked | None = None
    cursor: Cursor | None = None
    mark: Mark | None = None
    cursors: tuple[Cursor, ...] = ()
    ends: dict[TopicPartition, int] | None = None
    since: float = 0.0


class Feeds:
    """The feeds of an instance. readers_max: gives the largest number of them."""

    def __init__(self, readers_max: Callable[[], int]) -> None:
        self._readers_max = readers_max
        self.lock = threading.RLock()  # guards cursors, pieces, joins, and which feeds others may join
        self._feeds: set[Feed] = set()  # those that read
        self.shared: dict[Key, Feed] = {}
        self._is_stopped = False
        self.threads = ThreadPoolExecutor(THREADS, "subscribing")

    def open(self, asked: Asked, cursor: Cursor) -> Future[Point | None]:
        """Begins a subscription: the point where its changes begin. None: repeat it with `alone`. Raises CommandError if there are too many readers."""
        answer: Future[Point | None] = Future()
        with self.lock:
            is_over = self._is_stopped or cursor.is_closed
            feed = None if asked.alone or is_over else self.shared.get(asked.key)
            if feed is not None:
                feed.join(_Join(answer, asked, cursor))
                return answer
            if len(self._feeds) >= self._readers_max() or is_over:
                title = f"the instance serves at most {self._readers_max():,} different subscriptions over the network"
                help_ = "end one of them, set `subscriptions` of `api`, or subscribe on its machine"
                raise CommandError(title, code=TOO_MANY, help=help_)
            feed = Feed(self, asked, answer)
            self._feeds.add(feed)
            feed.add(cursor, 0)
            if feed.shares:
                self.shared.setdefault(asked.key, feed)
        feed.start()
        return answer

    def leave(self, cursor: Cursor, then: Callable[[], None]) -> None:
        """Any thread. then: called once nothing is held for it."""
        left = None
        with self.lock:
            here: Cursor | None = cursor
            while here is not None:
                here.is_closed = True
                if here.feed is not None and here.feed.leave(here):
                    left = here.feed
                here = here.next
            if left is not None:
                left.then.append(then)
                return
        then()

    def forget(self, feed: Feed) -> None:
        """It reads no more."""
        with self.lock:
            self._feeds.discard(feed)
            self.hide(feed)

    def hide(self, feed: Feed) -> None:
        """Nothing joins it from here on."""
        if self.shared.get(feed.key) is feed:
            del self.shared[feed.key]

    def stop(self) -> None:
        """Nothing begins from here on."""
        self._is_stopped = True

    def close(self) -> None:
        """Waits for the end of all feeds, whose cursors have been left."""
        with self.lock:
            feeds = list(self._feeds)
        for feed in feeds:
            feed.join_thread()
        self.threads.shutdown()


class Feed:
    """A reader and its last pieces."""

    def __init__(self, feeds: Feeds, asked: Asked, begun: Future[Point | None]) -> None:
        """begun: told where the changes begin."""
        self._begun = begun
        self._feeds, self._asked, self.key = feeds, asked, asked.key
        self.shares = can_share(asked.query) and (can_resume(asked.query) or not asked.is_slow)
        self._thread = ThreadPoolExecutor(1, "changes")
        self._poked = threading.Event()
        self._room = threading.Condition(feeds.lock)  # notified when a cursor has moved
        self._cursors: set[Cursor] = set()
        self._pieces: deque[Piece] = deque()
        self._first = self._bytes = 0  # number of the first piece; of all pieces
        self._begins: tuple[int, Point] | None = None  # the piece, by number, from which on all rows follow
        self._before: Point | None = None  # before the first piece
        self._joins: list[_Join] = []
        self._is_stopped = self._is_over = False
        self._ask_at = 0.0  # when it asks next for a feed to move to
        self.then: list[Callable[[], None]] = []

    # Any thread, with the lock of the feeds.

    def add(self, cursor: Cursor, at: int) -> None:
        cursor.feed, cursor.at = self, at
        self._cursors.add(cursor)

    def join(self, join: _Join) -> None:
        if self._is_over or self._is_stopped:
            _resolve(join.answer, None)
            return
        self._joins.append(join)
        self._poked.set()

    def leave(self, cursor: Cursor) -> bool:
        """Whether the last one has left a feed that still has to end."""
        self._cursors.discard(cursor)
        self._room.notify_all()
        if self._cursors:
            return False
        if not self._is_stopped:
            self._is_stopped = True
            self._feeds.hide(self)
            self._poked.set()
        return not self._is_over

    def take(self, cursor: Cursor) -> Piece | None:
        """The next piece of a cursor; None while it has taken all. Raises LeftBehind."""
        if cursor.is_left_behind:
            raise LeftBehind
        at = cursor.at - self._first
        if at == len(self._pieces):
            return None
        if at == 0 or at == len(self._pieces) - 1:
            self._room.notify_all()
        cursor.at += 1
        if cursor.at - self._first == len(self._pieces):
            cursor.held_s = 0.0
        return self._pieces[at]

    def encoded(self, piece: Piece, form: Form) -> bytes:
        """Any thread, without the lock. The feed counts the bytes if it keeps the piece."""
        made = piece.encoded(form)
        with self._feeds.lock:
            if piece.counted is not None:
                self._count(piece, piece.counted)
        return made

    # Its own thread.

    def start(self) -> None:
        self._thread.submit(self._run)
        self._thread.shutdown(wait=False)

    def join_thread(self) -> None:
        self._thread.shutdown()

    def _run(self) -> None:
        following, failure = None, None
        try:
            try:
                following = self._asked.begin(
                    stopped=lambda: self._is_stopped, wait=self._wait, token=self._asked.token
                )
                if (about := following.about()) != self.key[2]:  # another plan serves than the instance knows
                    self._rekey(about)
                self._before = begun = replace(following.point(), reset=following.reset)
                if following.reset or (self._asked.start == "earliest" and self._asked.token is None):
                    self._begins = 0, begun
            except BaseException as error:
                if self._begun.set_running_or_notify_cancel():
                    self._begun.set_exception(error)
                return
            self._tell_begun(following, begun)
            failure = self._read(following)
        finally:
            self._end(following, failure)

    def _tell_begun(self, following: Following, point: Point) -> None:
        """Once it is ready: changes that come before are not told."""
        if not self._begun.done() and following.is_ready:
            self._before = point
            _resolve(self._begun, point)

    def _read(self, following: Following) -> Failure | None:
        try:
            for found in following:
                if not self._begun.done():
                    self._tell_begun(following, following.point())
                if isinstance(found, Rebuilt):
                    self._rekey(following.about())
                    point = following.point()
                    self._publish(Piece(found, point))
                    self._begins = self._first + len(self._pieces), point
                elif found:
                    self._publish(Piece(to_batch(found, following.query.result.schema), following.point()))
                self._serve(following)
                if self._is_moved(following):
                    return None
        except (CommandError, CompileError, RuntimeFailure) as error:
            return error
        except Exception as error:  # the instance continues, and the subscribers get the error
            return CommandError(f"internal error: {type(error).__name__}: {error}", code=INTERNAL)
        return None

    def _end(self, following: Following | None, failure: Failure | None) -> None:
        try:
            if following is not None:
                following.close()
        finally:
            with self._feeds.lock:
                self._is_over = True
                self._feeds.forget(self)
                for join in self._joins:
                    _resolve(join.answer, None)
                if not self._begun.done():
                    _resolve(self._begun, failure)
                if following is not None and not (self._pieces and self._pieces[-1].moved):
                    self._add(Piece(None, self._last(), failure))
                then, self.then = self.then, []
            for call in then:
                call()

    def _last(self) -> Point:
        """The point after the last piece."""
        last = self._pieces[-1].after if self._pieces else self._before
        assert last is not None, "begun"
        return last

    def _wait(self, seconds: float) -> None:
        self._poked.wait(seconds)
        self._poked.clear()

    def _rekey(self, about: str) -> None:
        """Its statement is about other generations."""
        with self._feeds.lock:
            self._feeds.hide(self)
            self.key = (*self.key[:2], about)
            if self.shares and not self._is_stopped:
                self._feeds.shared.setdefault(self.key, self)

    def _publish(self, piece: Piece) -> None:
        with self._feeds.lock:
            forms = {type(s.form): s.form for s in self._cursors}
        for form in forms.values():
            piece.encoded(form)
        with self._feeds.lock:
            self._make_room(piece.bytes)
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._count(piece, 0)
        _wake(self._cursors)

    def _count(self, piece: Piece, before: int) -> None:
        piece.counted = piece.bytes
        self._bytes += piece.counted - before

    def _make_room(self, size: int) -> None:
        while self._pieces and (self._bytes + size > KEPT_BYTES or len(self._pieces) >= KEPT_PIECES):
            late = [cursor for cursor in self._cursors if cursor.at == self._first]
            if late and not self._is_stopped:
                if len(late) < len(self._cursors) and (behind := [s for s in late if s.held_s >= SLOW_S]):
                    for cursor in behind:
                        cursor.is_left_behind = True
                        self._cursors.discard(cursor)
                    _wake(behind)
                    continue
                self._wait_for(late)
                continue
            gone = self._pieces.popleft()
            assert gone.counted is not None, "kept"
            self._bytes -= gone.counted
            gone.counted = None
            self._first += 1
            self._before = gone.after

    def _wait_for(self, late: Iterable[Cursor]) -> None:
        began = time.monotonic()
        self._room.wait(0.1)
        for cursor in late:
            cursor.held_s += time.monotonic() - began
        if all(cursor.held_s >= SLOW_S for cursor in self._cursors):
            self._feeds.hide(self)  # others get feeds that are read
        for join in self._joins:
            _resolve(join.answer, None)
        self._joins.clear()

    def _serve(self, following: Following) -> None:
        """Admits those whose changes begin at a point that is still kept."""
        with self._feeds.lock:
            joins = list(self._joins)
        if not joins:
            return
        now, point = time.monotonic(), following.point()
        for join in joins:
            if (found := self._place_of(join, following, point, now)) is not None:
                with self._feeds.lock:
                    self._joins.remove(join)
                    self._admit(join, found)

    def _place_of(self, join: _Join, following: Following, point: Point, now: float) -> tuple[int, Point] | bool | None:
        """Where a join begins: the number of a piece and the point before it. False if it begins nowhere; None if that is not known yet."""
        asked = join.asked
        if asked is None:
            return self._at(join.mark, point) or False
        if asked.token is None and asked.start == "latest":
            if join.ends is None:
                join.ends, join.since = following.subscription.ends(), now
            if not following.is_ready:
                join.since = now
            reached = dict(point.mark[1]) if point.mark is not None and following.is_ready else {}
            if all(reached.get(tp, -1) >= end for tp, end in join.ends.items()):
                return self._first + len(self._pieces), point
            return False if now - join.since > JOIN_S else None
        place = None if asked.token is None else Place.of(asked.token)
        why = "" if asked.token is None else following.why_not(place)
        if place is not None and place.offsets is not None and not why:
            return self._at((place.about, tuple(sorted(place.offsets.items()))), point) or False
        if self._begins is None or self._begins[0] < self._first:
            return False
        return self._begins[0], replace(self._begins[1], reset=why)

    def _at(self, mark: Mark | None, point: Point) -> tuple[int, Point] | None:
        """Where the kept pieces have a mark."""
        if mark is None:
            return None
        end = self._first + len(self._pieces)
        if mark == point.mark:
            return end, point
        for n, piece in enumerate(reversed(self._pieces)):
            if piece.after.mark == mark:
                return end - n, piece.after
        return (self._first, self._before) if self._before is not None and self._before.mark == mark else None

    def _admit(self, join: _Join, found: tuple[int, Point] | bool) -> None:
        if isinstance(found, bool) or self._is_stopped or (join.cursor is not None and join.cursor.is_closed):
            _resolve(join.answer, None)
        elif join.answer.set_running_or_notify_cancel():
            at, point = found
            for cursor in join.cursors if join.cursor is None else (join.cursor,):
                self.add(cursor, at)
            join.answer.set_result(point)

    def _is_moved(self, following: Following) -> bool:
        """Hands its cursors over to the feed that others share, if that has the same point, or becomes that one itself."""
        if not self.shares or time.monotonic() < self._ask_at:
            return False
        with self._feeds.lock:
            other = self._feeds.shared.setdefault(self.key, self) if not self._is_stopped else self
            if other is self:
                return False
            self._ask_at = time.monotonic() + ASK_S
            made = {cursor: Cursor(cursor.form, cursor.loop, cursor.told) for cursor in self._cursors}
            answer: Future[Point | None] = Future()
            other.join(_Join(answer, mark=following.point().mark, cursors=tuple(made.values())))
        wait((answer,), ANSWER_S)
        if answer.cancel() or answer.result() is None:
            return False
        with self._feeds.lock:
            for cursor, there in made.items():
                cursor.next = there
                if cursor.is_closed:
                    other.leave(there)
            self._add(Piece(None, self._last(), moved=True))
        return True


def _resolve(answer: Future[Point | None], point: Point | Failure | None) -> None:
    if answer.set_running_or_notify_cancel():
        if isinstance(point, Exception):
            answer.set_exception(point)
        else:
            answer.set_result(point)


def _wake(cursors: Iterable[Cursor]) -> None:
    """One call for each loop: each is a system call."""
    by_loop = dict[asyncio.AbstractEventLoop, list[asyncio.Event]]()
    for cursor in cursors:
        by_loop.setdefault(cursor.loop, []).append(cursor.told)
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(_set, told)


def _set(told: Iterable[asyncio.Event]) -> None:
    for event in told:
        event.set()
