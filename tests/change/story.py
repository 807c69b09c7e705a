"""The story of one seed: a project is deployed, fed, edited and killed, and compared with a fresh engine whenever it rests."""

from __future__ import annotations

import random
from dataclasses import dataclass

from compiler.plan.topology import Plan
from flowql.deploy.stages import decide, select
from flowql.errors import CommandError
from tests.change.edits import EDITS, SAFE, Edit, Editor, broken, edited
from tests.change.engine import Engine, Killed, compiled
from tests.change.feed import Feed
from tests.change.generate import Generator
from tests.change.oracle import compare, results_of
from tests.change.places import Follower
from tests.change.project import Project

DEATHS_MAX = 4
MOMENTS_MAX = 120  # a death comes within so many


@dataclass(frozen=True, slots=True)
class Options:
    """What a story may do. edits: `all` or `safe`."""

    edits: str = "all"
    kills: bool = False
    turns: int = 4
    records: int = 60

    @property
    def choices(self) -> tuple[Edit, ...]:
        return SAFE if self.edits == "safe" else EDITS


class Story:
    """trace: what happened, one line each."""

    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.rng = random.Random(f"story {seed}")
        self.make = Generator(self.rng)
        self.trace: list[str] = []
        self.engine = Engine(self.rng)
        self.feed = Feed(self.rng, self.engine.log, records=options.records)
        self.project: Project = self.make.project()
        self.history: list[Project] = []
        self.reference = Plan()  # what a fresh engine is given
        self.followers: dict[str, Follower] = {}

    def run(self) -> list[str]:
        """What is wrong, or nothing."""
        for source in self.project.sources:
            self.engine.log.create_topic(source.topic, self.project.partitions)
        self._feed()
        self._deploy(self.project, ["begin"])
        for turn in range(self.options.turns):
            wrong = self._rest()
            if wrong:
                return wrong
            self._turn(turn)
        return self._rest()

    # -- turns

    def _turn(self, turn: int) -> None:
        rng = self.rng
        if rng.random() < 0.7:
            self._feed()
            if rng.random() < 0.5:
                self._mortal(lambda: self.engine.turn(rng.randint(0, 6)))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            self._edit()
            if rng.random() < 0.5:
                self._mortal(lambda: self.engine.turn(rng.randint(0, 5)))
        if rng.random() < 0.4:
            self._feed()

    def _feed(self) -> None:
        count = self.feed.round(self.project.sources)
        self.feed.end_of_round()
        self.trace.append(f"feed {count} records")

    def _edit(self) -> None:
        rng = self.rng
        if rng.random() < 0.08:
            found = compiled(broken(self.project), self._partitions(), self.engine.plan)
            assert isinstance(found, str)
            self.trace.append("a broken file")
            return
        editor = Editor(self.make, self.project, self.history, self.feed.now_ms)
        project, names = edited(editor, self.options.choices, rng.choice((1, 1, 1, 2, 4)))
        self._deploy(project, names)

    def _deploy(self, project: Project, names: list[str]) -> None:
        """Compile and deploy, as `flowql deploy` does it."""
        running = self.engine.plan
        wanted = compiled(project.sql(), self._partitions(), running if running.queries else None)
        if isinstance(wanted, str):
            raise AssertionError(f"{names}: {wanted}\n{project.sql()}")
        prune = self.rng.random() < 0.6
        chosen = self._chosen(project, names)
        try:
            deployment = decide(running, select(wanted, chosen), prune=prune)
        except CommandError as error:
            self.trace.append(f"{', '.join(names)}: refused, {error}")
            return
        whole = not deployment.withheld and not chosen
        reference = compiled(project.sql(), self._partitions(project), None) if whole else deployment.plan
        assert isinstance(reference, Plan)
        options = (" --prune" if prune else "") + (f" --select {chosen}" if chosen else "")
        changes = ", ".join(f"{c.query} {c.action}" for c in deployment.applicable)
        self.trace.append(f"deploy{options}: {', '.join(names)} [{changes}]")
        self._follow(deployment.plan)
        while not self._mortal(lambda: self.engine.deploy(deployment.plan)):
            self.trace.append("deploy again")
        self._follow(deployment.plan)
        if self.project is not project:
            self.history.append(self.project)
        self.project, self.reference = project, reference

    def _chosen(self, project: Project, names: list[str]) -> list[str]:
        if self.options.edits == "safe" or names == ["begin"] or self.rng.random() < 0.9 or not project.results:
            return []
        return [self.rng.choice(project.results)]

    def _partitions(self, project: Project | None = None) -> dict[str, int]:
        if project is not None:
            return {s.topic: project.partitions for s in project.sources}
        return {name: info.partitions for name, info in self.engine.log.topics().items()}

    def _follow(self, plan: Plan) -> None:
        known = self.engine.log.topics()
        for source in results_of(plan).values():
            if source.topic in known and source.topic not in self.followers:
                self.followers[source.topic] = Follower.of(self.engine.log, source)

    # -- rest

    def _rest(self) -> list[str]:
        while not self._mortal(self.engine.rest):
            pass
        self.trace.append(f"rest after {self.engine.rounds} rounds")
        topics = [s.topic for s in self.project.sources]
        return compare(self.engine, self.reference, topics, self.followers, self.rng)

    def _mortal(self, act) -> bool:
        """Whether it was done; else the engine died on the way and was opened again."""
        life, rng = self.engine.life, self.rng
        if not self.options.kills or self.engine.deaths >= DEATHS_MAX:
            act()
            return True
        life.at = life.moments + rng.randint(1, MOMENTS_MAX)
        try:
            act()
        except Killed:
            self._boot()
            return False
        finally:
            life.at = None
        return True

    def _boot(self) -> None:
        while True:
            self.engine.kill()
            self.trace.append(f"killed at moment {self.engine.life.moments}")
            try:
                self.engine.reopen()
            except Killed:
                continue
            return
