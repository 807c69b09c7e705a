"""The story of one seed with a real process: fed all the time, edited by its HTTP and by the command, killed with SIGKILL, and compared
at each rest. Of the same seed edits and records are made alike, but what falls into which moment is the machine's.
"""

from __future__ import annotations

import io
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from flowql.cli import main as flowql
from flowql.compiler.plan.topology import Plan
from flowql.deploy.request import DeployRequest
from flowql.runtime.errors import LogError
from flowql.server.address import LOST
from tests.change.edits import broken
from tests.change.feed import Feed
from tests.change.machine import Killed
from tests.change.oracle import Rest, Watch, results_of
from tests.change.places import of_topic
from tests.change.process import ProcessEngine
from tests.change.project import Project, Source
from tests.change.repeated import Repeated
from tests.change.story import DEATHS_MAX, Options, Story

FED, FED_MAX = (
    6,
    90,
)  # records of a round at most, while something else goes on; of a turn: lists of aggregates hold 1,000 values
FEED_S, LOOK_S = 0.15, 0.03
DEATH_S = 0.7  # a death comes within so long
DEATHS, EARLY, LOSSES, COMMANDS = 0.45, 0.15, 0.1, 0.25  # how often
FILE = "project.sql"
CONFIG = f"""name: change
sql: [{FILE}]
targets:
  default:
    data_dir: data
    threads: 2
    memory: 256 MB
"""


class ProcessStory(Story):
    """As `Story`. folder: for its files; none: one that is removed, unless something is wrong."""

    engine: ProcessEngine

    def __init__(self, seed: int, options: Options, plant: str | None = None, folder: Path | None = None) -> None:
        self._plant = plant
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"change-{seed}-"))
        super().__init__(seed, options)
        self.feed = SharedFeed(random.Random(f"feed {seed}"), self.engine.log, records=options.records)
        self._command_chance = random.Random(f"commands {seed}")
        self._fed = 0  # by who feeds beside, in this turn
        self._feeding = Repeated(self._feed_few)
        self._looking = Repeated(self._look)
        (self.folder / "flowql.yaml").write_text(CONFIG)

    def _engine(self, seed: int) -> ProcessEngine:  # type: ignore[override]
        return ProcessEngine(random.Random(f"engine {seed}"), self.folder, self._plant)

    def run(self) -> list[str]:
        engine, wrong = self.engine, list[str]()
        whole = False
        engine.near_records, engine.together_ms = self.rng.choice((0, 5, 50_000)), self.rng.choice((400, 5_000, 5_000))
        try:
            engine.reopen()
            engine.shot_early = EARLY if self.options.kills else 0.0
            with self._looking.going_on():
                wrong = self._run()
            self._looking.check()
            self._feeding.check()
            whole = True
        finally:
            wrong += engine.close()
            if wrong or not whole:
                self.trace += [f"in {self.folder}", engine.last_words()]
            elif self._own_folder:
                shutil.rmtree(self.folder)
        return wrong

    # -- what goes on beside

    def _turn(self) -> None:
        self._fed = 0
        with self._feeding.going_on():
            super()._turn()

    def _busy_turn(self) -> None:
        self._fed = 0
        with self._feeding.going_on():
            super()._busy_turn()

    def _feed_few(self) -> float:
        if self._fed < FED_MAX:
            with suppress(LogError):  # its topics are getting other partitions just now
                self._fed += self.feed.round(self.project.sources, FED)
        return self.feed.chance.uniform(0, FEED_S)

    def _look(self) -> float:
        """Who follows topics reads on, and what is watched is looked at."""
        for follower in list(self.followers.values()):
            with suppress(LogError):  # as above
                follower.read(self.engine.log)
        if self._watch is not None:
            self._watch.look()
        return LOOK_S

    def _compare(self, plan: Plan, rng: random.Random, *, built: bool) -> tuple[Rest, list[str]]:
        with self._looking.paused():
            return super()._compare(plan, rng, built=built)

    def _watching(self, plan: Plan) -> ProcessWatch:
        return ProcessWatch(self.engine, self.running, plan, self._last)

    # -- edits

    def _fill_log(self, rounds: int) -> None:
        """Not of a disk that others use."""

    def _break_file(self) -> None:
        """The command refuses it, and nothing is changed."""
        (self.folder / FILE).write_text(broken(self.project))
        before = self.engine.deployed
        code, said = self._flowql("deploy", "--prune", "--no-wait")
        assert code != 0, said
        assert self.engine.deployed == before, said
        self.trace.append("a broken file")

    def _carry_out(self, project: Project, chosen: list[str], wanted: Plan, asked: DeployRequest) -> None:
        """By the instance's HTTP, or by the command that is based on it."""
        if self._plant is not None or self._command_chance.random() >= COMMANDS:
            self.engine.deploy(wanted, asked, served=True)
            return
        (self.folder / FILE).write_text(project.sql())
        refreshed = [
            query for query in asked.refresh if query in wanted.by_id
        ]  # the command refuses the name of a removed one
        given = [*(f"--select={name}" for name in chosen), *(f"--full-refresh={query}" for query in refreshed)]
        given += ["--prune"] * asked.prune + ["--shadow"] * asked.shadow
        code, said = self._flowql("deploy", "--no-wait", *given)
        self.engine.check_ours()
        if LOST in said:
            self.engine.await_end()
        if code != 0:
            raise LogError(said)

    def _flowql(self, *arguments: str) -> tuple[int, str]:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            try:
                flowql([*arguments, "--project", str(self.folder)])
            except SystemExit as end:
                return int(end.code or 0), said.getvalue()
        return 0, said.getvalue()

    # -- death

    def _mortal(self, act: Callable[[], None]) -> bool:
        engine, chance = self.engine, self._chance
        dies = self.options.kills and engine.deaths < DEATHS_MAX and chance.random() < DEATHS
        try:
            with engine.mortal(chance.uniform(0, DEATH_S) if dies else None):
                act()
        except Killed:
            self._boot()
            return False
        except LogError:
            if not engine.alive:
                self._boot()
            raise
        if not engine.alive:  # it was done by then
            self._boot()
        return True

    def _boot(self) -> None:
        engine = self.engine
        while True:
            loses = self._watch is None and self._chance.random() < LOSSES
            engine.kill(loses_state=loses)
            self.trace.append(f"killed{', its state is lost' if loses else ''}")
            with suppress(Killed):
                return engine.reopen()

    def _opened_again(self) -> None:
        """The log is open all the time."""


class SharedFeed(Feed):
    """Who feeds a round waits for the other. chance: of the one who feeds all the time."""

    def __init__(self, rng: random.Random, *args: Any, **kwargs: Any) -> None:
        super().__init__(rng, *args, **kwargs)
        self.chance = random.Random(rng.random())
        self._turn = threading.Lock()  # guards all of it

    def round(self, sources: Iterable[Source], most: int | None = None) -> int:
        with self._turn:
            return super().round(sources, most)


class ProcessWatch(Watch):
    """Looks from outside: at topics between two commits, and at what interactive queries answer."""

    def __init__(self, engine: ProcessEngine, old: Plan, new: Plan, before: Rest) -> None:
        super().__init__(engine, old, new, before)
        was, will = results_of(old), results_of(new)
        self._names = {n for n in self._names if was[n].topic == will[n].topic}
        self._process = engine
        self._rng = random.Random(len(self._names))

    def look(self) -> None:
        """Nothing while it is dead."""
        with suppress(Killed, LogError):
            self._look_at_topics()
            self._look_at_rows()

    def ask(self, rng: random.Random) -> None:
        pairs = [p for p in self._pairs if set(p) <= self._names]
        if pairs:
            self._seen.append({"topic": {}, "rows": self._process.together(rng.choice(pairs))})

    def _look_at_topics(self) -> None:
        log = self._process.log
        before = log.last_sequence("change")
        here = results_of(self._process.plan)
        topics = {name: of_topic(log, here[name]) for name in self._names & here.keys()}
        if log.last_sequence("change") == before != self._at[0]:
            self._seen.append({"topic": topics, "rows": {}})
            self._at = (before, 0)

    def _look_at_rows(self) -> None:
        if self._names:
            name = self._rng.choice(sorted(self._names))
            self._seen.append({"topic": {}, "rows": {name: self._process.rows(name)}})
