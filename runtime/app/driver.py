"""A deterministic driver: the production steps of an instance, called in one thread in a fixed or seeded order."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.threads import Step
from flowql.runtime.errors import StaleMember
from flowql.runtime.task.remaining import remaining

ROUNDS_MAX = 1_000_000


class Driver:
    """Steps an instance by hand. With a seed the order of steps is shuffled anew each round (same seed, same order)."""

    def __init__(self, instance: Instance, *, seed: int | None = None, tick: Callable[[], None] = lambda: None) -> None:
        self.instance = instance
        self._random = random.Random(seed) if seed is not None else None
        self._tick = tick
        self._room: Future[int] | None = None  # the last commit that was requested to make room
        instance.await_step = self.round
        self._steps: list[Step] = [
            instance.main.loop,
            instance.restore.loop,
            instance.restoration,
            instance.polling,
            *([instance.placement] if instance.group is not None else []),
            instance.reconciler,
            *instance.processing,
            instance.commit,
            *(step for step in (instance.checkpoints, instance.uploads) if step is not None),
        ]

    def round(self) -> None:
        """Every step once."""
        steps = list(self._steps)
        if self._random is not None:
            self._random.shuffle(steps)
        self._tick()
        self.instance.polling.refresh_ends()
        for step in steps:
            step.run_once(self.instance.clock.timer_ms())

    def run_until_idle(self) -> None:
        """Process everything there is. A commit comes only on the way: when it is due, or when its results need the room."""
        for _ in range(ROUNDS_MAX):
            self.round()
            if self._drained():
                return
            self._make_room()
        msg = "the instance does not come to rest"
        raise AssertionError(msg)

    def _make_room(self) -> None:
        """Requests a commit if a query waits for one: by a clock that stands still it is never due."""
        publisher, manager = self.instance.publisher, self.instance.manager
        if not (self._room is None or self._room.done()):
            return
        waits = not publisher.has_reserve() and any(map(manager.awaits_commit, self.instance.queries))
        if waits or publisher.awaits_cut:
            self._room = self.instance.commit.request()

    def commit(self) -> None:
        """Commit what is processed. Asks again while the instance starts over."""
        while True:
            with suppress(StaleMember):
                self.instance.wait(self.instance.commit.request())
                return

    def run_until_caught_up(self, unless: Callable[[], object] = lambda: False) -> None:
        """Process and commit everything, through queries that read each other's topics. unless: ends it before."""
        for _ in range(ROUNDS_MAX):
            self.run_until_idle()
            self.commit()
            if unless() or caught_up(self.instance, source_ends(self.instance)):
                return
        msg = "the instance never catches up"
        raise AssertionError(msg)

    def _drained(self) -> bool:
        for name, q in self.instance.queries.items():
            if not self.instance.query_states.of(name).may_run:
                continue
            tasks = q.built.tasks
            if not remaining(tasks, {i.tp: i.end_of_tick for t in tasks for i in t.logs.values()}).is_nothing:
                return False
        return True
