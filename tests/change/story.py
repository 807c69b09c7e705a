"""The story of one seed: a project is deployed, fed, edited and killed, and compared with a fresh engine whenever it rests."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.plan.deployed import groups_of, is_serving, without
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import InsertValues, Plan
from flowql.deploy.control import NewPriority, with_priority
from flowql.deploy.decision import Deployment, decide
from flowql.deploy.request import DeployRequest
from flowql.deploy.selection import chosen as chosen_ids
from flowql.errors import CommandError
from flowql.runtime.errors import LogError, LogFull, TopicMissing
from tests.change.edits import EDITS, REFUSED_BY_BROKERS, SAFE, Edit, Editor, broken, edited
from tests.change.engine import Engine, compiled, swaps
from tests.change.feed import Feed
from tests.change.generate import Generator
from tests.change.machine import Killed
from tests.change.mixed import Texts
from tests.change.oracle import Rest, Watch, compare, results_of, run_fresh
from tests.change.places import Follower, of_relation
from tests.change.project import Project

BEGIN = ["begin"]
DEATHS_MAX = 4
MOMENTS_MAX = 120  # a death comes within so many
SWAP_ROUNDS, BETWEEN_ROUNDS = 400, 12  # in which a swap may come, and a commit after it with rows between tasks
FEED_EVERY = 8  # of these rounds: with more input what is built would not come up with what serves


@dataclass(frozen=True, slots=True)
class Options:
    """What a story may do.

    edits: `all` or `safe`. kills: the engine dies at random moments. kill_at: it dies at this moment, counted from the first rest on.
    queries: of the first project; None for a random number. records: of a round, at most. disk: the log is the embedded one, on a disk
    that loses power; else one in memory. kafka: `alone` or `member`: the log can do what brokers can. processes: see `processes`.
    """

    edits: str = "all"
    kills: bool = False
    turns: int = 4
    records: int = 60
    queries: int | None = None
    kill_at: int | None = None
    disk: bool = False
    kafka: str = ""
    processes: bool = False

    @property
    def choices(self) -> tuple[Edit, ...]:
        found = SAFE if self.edits == "safe" else EDITS
        return tuple(e for e in found if not (self.kafka and e in REFUSED_BY_BROKERS))


class Story:
    """trace: what happened, one line each."""

    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.rng = random.Random(f"story {seed}")
        self._chance = random.Random(f"deaths {seed}")  # apart, so that a story with deaths is else the same
        self._whim = random.Random(f"whims {seed}")  # apart as well: what is held back
        self.served = self._chance.random() < 0.5  # deployments and commands go through the service, as people's do
        self.make = Generator(self.rng)
        self.trace: list[str] = []
        self.engine = self._engine(seed)
        self.feed = Feed(self.rng, self.engine.log, records=options.records)
        self.project: Project = self.make.project(options.queries)
        self._texts = Texts()
        self.history: list[Project] = []
        self.running = Plan()  # what was deployed last
        self.reference: Plan | str = Plan()  # what a fresh engine is given, or files to compile for it
        self.followers: dict[str, Follower] = {}
        self._rows = set[InsertValues]()  # that had been inserted at the last rest
        self._reshaped = False  # whether topics may have got other partitions
        self._watch: Watch | None = None
        self._last = Rest()

    def _engine(self, seed: int) -> Engine:
        return Engine(random.Random(f"engine {seed}"), on_disk=self.options.disk, kafka=self.options.kafka)

    def run(self) -> list[str]:
        """What is wrong, or nothing."""
        with swaps(near_records=self.rng.choice((0, 5, 50_000)), together_ms=self.rng.choice((60, 5_000, 5_000))):
            return self._run()

    def _run(self) -> list[str]:
        for source in self.project.sources:
            self.engine.log.create_topic(source.topic, self.project.partitions)
        self._feed()
        self._deploy(self.project, BEGIN)
        wrong = self._rest()
        self.engine.life.moments = 0
        self.engine.life.at = self.options.kill_at
        for _ in range(self.options.turns):
            if wrong:
                break
            turn = self.rng.choice((self._quiet_turn, self._turn, self._busy_turn))
            self._swap_turn() if self._dies_after_swaps and self._chance.random() < 0.3 else turn()
            wrong = self._rest()
        return wrong

    # -- turns

    def _turn(self) -> None:
        """Anything may come while something else is under way."""
        rng = self.rng
        if rng.random() < 0.8:
            self._feed()
            if rng.random() < 0.5:
                self._some_rounds(6)
        if rng.random() < 0.1:
            self._restart()
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            self._edit()
            if rng.random() < 0.5:
                self._some_rounds(5)
            if rng.random() < 0.15:
                self._command()
        if rng.random() < 0.4:
            self._feed()

    def _quiet_turn(self) -> None:
        """One change at rest, with nothing fed before the next: what can be seen of it is looked at all the time."""
        self._deploy(*self._edited(), watch=True)
        for _ in range(self.rng.choice((0, 0, 2, 5))):
            self._some_rounds(2)
            self._mortal(self._ask)
        if self.rng.random() < 0.2:
            self._some_rounds(4)
            self._restart()

    def _ask(self) -> None:
        if self._watch is not None:
            with self.engine.life.running():
                self._watch.ask(self.rng)

    def _busy_turn(self) -> None:
        """A few records all the time, and changes one into the other."""
        for _ in range(self.rng.randint(3, 10)):
            self._feed(6)
            self._some_rounds(3)
            if self.rng.random() < 0.35:
                self._edit()

    @property
    def _dies_after_swaps(self) -> bool:
        return self.options.kills and not self.options.processes

    def _swap_turn(self) -> None:
        """Input comes while results are rebuilt, and the engine dies after the first commit that holds rows between tasks of a
        generation that has swapped in: they are nowhere else, and their tasks have just been opened.
        """
        repartitioned = [q.id for q in self.running.queries if q.repartitions]
        if repartitioned:
            self._deploy(self.project, ["refresh"], again=[self._chance.choice(repartitioned)])
        else:
            self._edit()
        with self.engine.clock.slow():  # so that rows wait between tasks when a commit comes
            self._until_rows_between()

    def _until_rows_between(self) -> None:
        before, rounds, swapped = self.engine.record.serving, SWAP_ROUNDS, False
        known = self.engine.channels
        while rounds:
            rounds -= 1
            if swapped or rounds % FEED_EVERY == 0:
                self._feed(None if swapped else 6)
            self.engine.turn(1)
            if self.engine.record.serving != before:
                before, rounds, swapped = self.engine.record.serving, BETWEEN_ROUNDS, True
            elif not swapped:
                known = self.engine.channels
            if swapped and self.engine.has_rows_between(known) and self.engine.deaths < DEATHS_MAX:
                return self._boot()

    def _some_rounds(self, most: int) -> None:
        rounds = self.rng.randint(0, most)
        self._mortal(lambda: self.engine.turn(rounds))

    def _restart(self) -> None:
        self.trace.append("restart")
        if self._mortal(self.engine.restart):
            self._opened_again()

    def _command(self) -> None:
        """What no file says: another priority, or a query stands still for a while."""
        rng, served = self.rng, self.served
        if not self.running.queries:
            return
        query = rng.choice(self.running.queries).id
        if rng.random() < 0.5:
            priority = rng.choice(("critical", "high", "normal", "batch"))
            self.trace.append(f"priority {query} {priority}")
            self._again(lambda: self.engine.set_priority(query, priority, served=served))
            self.running = with_priority(self.running, NewPriority(query, priority))
            return
        self.trace.append(f"pause {query} and resume it")
        self._again(lambda: self.engine.pause(query, paused=True, served=served))
        if rng.random() < 0.5:
            self._feed()
        self._some_rounds(6)
        self._again(lambda: self.engine.pause(query, paused=False, served=served))

    def _feed(self, most: int | None = None) -> None:
        count = self.feed.round(self.project.sources, most)
        self.trace.append(f"feed {count} records")

    def _edit(self) -> None:
        if self.rng.random() < 0.1:
            self._fill_log(self.rng.randint(1, 40))
        if self.rng.random() < 0.08:
            self._break_file()
            return
        self._deploy(*self._edited())

    def _fill_log(self, rounds: int) -> None:
        self.engine.life.full = rounds
        self.trace.append(f"the log is full for {rounds} rounds")

    def _break_file(self) -> None:
        found = compiled(broken(self.project), self._partitions(), self.engine.plan)
        assert isinstance(found, str)
        self.trace.append("a broken file")

    def _edited(self) -> tuple[Project, list[str]]:
        editor = Editor(self.make, self.project, self.history, self.feed.now_ms)
        return edited(editor, self.options.choices, self.rng.choice((1, 1, 1, 2, 4)))

    # -- deployment

    def _deploy(
        self, project: Project, names: list[str], *, watch: bool = False, again: list[str] | None = None
    ) -> None:
        """Compile and deploy, as `flowql deploy` does it; sometimes what is rebuilt is held back.

        again: ids of queries that are computed anew; by default sometimes one.
        """
        may_hold = self.options.edits != "safe" and not watch and names != BEGIN and again is None
        shadow = may_hold and self._whim.random() < 0.3
        prune, chosen = self.rng.random() < 0.6, [] if again else self._chosen(project, names)
        again = self._again_whole(project, names) if again is None else again
        said = " ".join(["deploy", *(["--prune"] if prune else []), *(f"--select {c}" for c in chosen)])
        said += "".join(f" --refresh {q}" for q in again) + " --shadow" * shadow + f": {', '.join(names)}"
        while True:  # until it is done, or given up after a death
            wanted, asked = self._wanted(project, chosen, again, prune=prune)
            asked = replace(asked, shadow=shadow)
            try:
                deployment = decide(self.engine.record, wanted, asked, partitions=self._partitions())
            except CommandError as error:
                self.trace.append(f"{said}: refused, {error}")
                return
            if not prune and _reads_nothing(
                deployment.plan
            ):  # what goes on running would read a topic that nobody writes any more
                prune, said = True, f"{said} (--prune)"
                continue
            if (chosen or not prune) and not self._texts.fit(deployment.plan, project.partitions):
                prune, chosen, said = True, [], f"{said} (all, --prune)"
                continue
            changes = ", ".join(
                f"{c.query} {c.action}"
                for c in deployment.changes
                if c.action != "none" and c.query not in deployment.withheld
            )
            self.trace.append(f"{said} [{changes}]")
            if watch:
                self._watch = self._watching(deployment.plan)
            self._follow(deployment.plan)
            if {"partitions", "shards", "roll_back"} & set(names):
                self._reshaped = True
            for follower in self.followers.values():
                follower.reshaped = self._reshaped
            try:
                done = self._mortal(
                    lambda plan=wanted, asked=asked, chosen=chosen: self._carry_out(project, chosen, plan, asked)
                )
            except LogFull as error:  # on Kafka it is for whoever deploys to repeat it
                self.trace.append(f"refused, {error}")
                self._some_rounds(20)
                continue
            except (TopicMissing, LogError) as error:
                # Of a stream over the topic of a result that is not selected, or of topics that are joined and would differ in partitions.
                self.trace.append(f"refused, {error}")
                if prune and not chosen:
                    raise
                return
            if done or _same(self.engine.deployed, deployment.plan):
                break
            if names != BEGIN and self._chance.random() < 0.5:
                self.trace.append("given up")
                return
        self._follow(deployment.plan)
        whole = not deployment.withheld and not chosen
        self.reference = project.sql() if whole else self._with_rows(deployment)
        if self.project is not project:
            self.history.append(self.project)
        self.project, self.running = project, deployment.plan

    def _carry_out(self, project: Project, chosen: list[str], wanted: Plan, asked: DeployRequest) -> None:
        del project, chosen  # asked says what of it
        self.engine.deploy(wanted, asked, served=self.served or asked.shadow)

    def _watching(self, plan: Plan) -> Watch:
        watch = Watch(self.engine, self.running, plan, self._last)
        self.engine.look = watch.look
        return watch

    def _wanted(
        self, project: Project, chosen: list[str], again: list[str], *, prune: bool
    ) -> tuple[Plan, DeployRequest]:
        running = self.engine.deployed
        compiled_plan = compiled(project.sql(), self._partitions(), running if running.queries else None)
        assert isinstance(compiled_plan, Plan), f"{compiled_plan}\n{project.sql()}"
        self._texts.remember(project, compiled_plan)
        ids = chosen_ids(chosen, compiled_plan, running)
        known = tuple(q for q in again if q in running.by_id and (ids is None or q in ids))
        return compiled_plan, DeployRequest(None if ids is None else tuple(ids), prune, known)

    def _with_rows(self, deployment: Deployment) -> Plan:
        """Rows that were inserted into what goes on running as it was are there, whatever the files say."""
        plan, before = deployment.plan, self._reference_plan().inserts
        kept = {s.name for s in plan.sources if s.query in deployment.withheld}
        return replace(
            plan, inserts=(*plan.inserts, *(i for i in before if i.target in kept and i not in plan.inserts))
        )

    def _reference_plan(self) -> Plan:
        if isinstance(self.reference, str):
            partitions = {s.topic: self.project.partitions for s in self.project.sources}
            found = compiled(self.reference, partitions, None)
            assert isinstance(found, Plan)
            self.reference = found
        return self.reference

    def _chosen(self, project: Project, names: list[str]) -> list[str]:
        if self.options.edits == "safe" or names == BEGIN or self.rng.random() < 0.9 or not project.results:
            return []
        return [self.rng.choice(project.results)]

    def _again_whole(self, project: Project, names: list[str]) -> list[str]:
        """The id of a query that is to be computed from the beginning although nothing changed."""
        if self.options.edits == "safe" or names == BEGIN or self.rng.random() < 0.85:
            return []
        return [self.rng.choice(self.running.queries).id] if self.running.queries else []

    def _partitions(self) -> Mapping[str, int]:
        return self.engine.partitions()

    def _follow(self, plan: Plan) -> None:
        known = self.engine.log.topics()
        for source in results_of(plan).values():
            if source.topic in known:
                self.followers.setdefault(source.topic, Follower.of(self.engine.log, source.topic)).kinds.add(
                    source.kind
                )

    # -- rest and death

    def _rest(self) -> list[str]:
        return self._held() or self._compared()

    def _held(self) -> list[str]:
        """What is held back changes nothing of what serves, until it is promoted or abandoned."""
        if not self.engine.record.held:
            return []
        if self._whim.random() < 0.5:
            self._again(self.engine.rest)
            self.trace.append(f"rest after {self.engine.rounds} rounds, {', '.join(self.engine.record.held)} held back")
            topics = [s.topic for s in self.project.sources]
            plan = self.engine.plan
            if not self._stuck():
                _, wrong = self._compare(plan, self._whim, built=True)
                if wrong or (wrong := self._side_by_side(topics)):
                    return wrong
        record = self.engine.record
        promote = self._stuck() or self._whim.random() < 0.5
        self.trace.append("promote" if promote else "abandon")

        def settle() -> None:
            nonlocal promote
            now = self.engine.record
            promote = promote or bool(now.held and now.lost)  # what served has no state since a death on the way
            self.engine.settle(promote=promote)

        self._again(settle)
        if not promote and record.held:
            serving = self.engine.record.serving  # what was not held back may have swapped in first
            gone = [g for g in groups_of(record) if not all(is_serving(serving, q) for q in g.queries)]
            self.running = self.reference = without(record, gone)
        return []

    def _stuck(self) -> bool:
        """Whether what serves stands still, or old texts have met new rows, which they may find late or make others late by."""
        record = self.engine.record
        return bool(record.lost) or not self._rows >= set(record.serving.inserts)

    def _side_by_side(self, topics: list[str]) -> list[str]:
        """What `flowql diff` says of a result that is built, against two fresh runs."""
        record = self.engine.record
        known = results_of(record.serving)
        names = [q.sink for q in record.building if q.sink in known]
        if not names:
            return []
        name = self._whim.choice(sorted(names))
        told: dict[str, Any] = {}

        def asked() -> None:
            if not self.engine.record.lost:  # else what serves stands still, and is compared with nothing
                told.update(self.engine.diff(name))

        self._again(asked)
        if not told:
            return []
        self.trace.append(f"diff {name}: {told['serving']} rows serve, {told['built']} are built")
        counts = []
        for plan in (record.serving, record.plan):
            fresh = run_fresh(self.engine, plan, topics, seed=self._whim.randrange(1 << 30))
            counts.append(of_relation(fresh.front, name).total())
            fresh.close()
        if counts != [told["serving"], told["built"]] or told["ahead"]:
            return [
                f"diff of {name} says {told['serving']} and {told['built']}, ahead {told['ahead']}; there are {counts}"
            ]
        return []

    def _compared(self) -> list[str]:
        self._again(self.engine.rest)
        self.trace.append(f"rest after {self.engine.rounds} rounds")
        self.engine.look = lambda: None
        self._rows = set(self._reference_plan().inserts)
        self._last, wrong = self._compare(self._reference_plan(), self.rng, built=False)
        watch, self._watch = self._watch, None
        return wrong or (watch.wrong(self._last) if watch is not None else [])

    def _compare(self, plan: Plan, rng: random.Random, *, built: bool) -> tuple[Rest, list[str]]:
        topics = [s.topic for s in self.project.sources]
        return compare(self.engine, plan, topics, self.followers, rng, built=built)

    def _again(self, act: Callable[[], None]) -> None:
        """Until it is done, whoever dies."""
        while not self._done(act):
            pass

    def _done(self, act: Callable[[], None]) -> bool:
        try:
            return self._mortal(act)
        except LogFull:
            self._some_rounds(20)
            return False

    def _mortal(self, act: Callable[[], None]) -> bool:
        """Whether it was done; else the engine died on the way and was opened again."""
        life = self.engine.life
        if self.options.kills and self.engine.deaths < DEATHS_MAX:
            life.at = life.moments + self._chance.randint(1, MOMENTS_MAX)
        try:
            act()
        except Killed:
            self._boot()
            return False
        finally:
            if self.options.kills:
                life.at = None
        return True

    def _boot(self) -> None:
        while True:
            loses = self._watch is None and self.options.edits != "safe" and self._chance.random() < 0.1
            self.engine.kill(loses_state=loses)
            self.trace.append(f"killed at moment {self.engine.life.moments}{', its state is lost' if loses else ''}")
            try:
                self.engine.reopen()
            except Killed:
                continue
            return self._opened_again()

    def _opened_again(self) -> None:
        """Who reads or writes the log goes on where it was."""
        self.feed.log = self.engine.log
        for follower in self.followers.values():
            follower.moved(self.engine.log)


def _reads_nothing(plan: Plan) -> bool:
    """Whether a query reads a topic that no stream or table of the plan is in."""
    topics = {s.topic for s in plan.sources if s.query is not None or s.topic.startswith("in_")}
    scanned = {n.spec.topic for q in plan.queries for n in walk_nodes(q.logical) if isinstance(n.spec, Scan)}
    return bool(scanned - topics)


def _same(running: Plan, wanted: Plan) -> bool:
    """Whether what runs is what was wanted."""

    def facts(plan: Plan) -> object:
        queries = sorted((q.id, q.definition, q.priority, q.weight) for q in plan.queries)
        sources = sorted((s.name, s.partitions or 0) for s in plan.sources)
        return queries, sources, sorted(map(repr, plan.inserts)), sorted(plan.paused)

    return facts(running) == facts(wanted)
