"""`python -m tests.change --seeds 3000 [--kills] [--forward]`: projects that change; `--seed N` shows one story."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.change.forward import ForwardOptions, ForwardStory
from tests.change.machine import Killed
from tests.change.plants import PLANTS, planted
from tests.change.processes import ProcessStory
from tests.change.story import Options, Story

HANG_S = (
    300  # of processor time, so that a machine that stands still is no fault of a story; of real processes by the clock
)


@dataclass(frozen=True, slots=True)
class StoryResult:
    """How a story ended. wrong: in lines; none if all is as from the beginning. moments: at how many the engine might have died.
    deaths: how often it did.
    """

    seed: int
    files: str
    trace: tuple[str, ...]
    wrong: tuple[str, ...]
    moments: int = 0
    deaths: int = 0

    def __str__(self) -> str:
        return "\n".join([self.files, *self.trace, *self.wrong])

    @property
    def line(self) -> str:
        """The gist: what is wrong, and after which deployment."""
        what = self.wrong[-1] if self.wrong[0].startswith("Traceback") else self.wrong[0]
        last = next((t for t in reversed(self.trace) if t.startswith("deploy")), "")
        return f"seed {self.seed}: {what}  <- {last}"


def live(seed: int, options: Options | ForwardOptions, plant: str | None = None) -> StoryResult:
    """A story from its beginning to its end, or to what is wrong."""
    if isinstance(options, Options) and options.processes:
        return live_process(seed, options, plant)
    story = ForwardStory(seed, options) if isinstance(options, ForwardOptions) else Story(seed, options)
    with planted(plant):
        try:
            wrong = story.run()
        except Exception:
            wrong = traceback.format_exc().splitlines()
    files = story.files if isinstance(story, ForwardStory) else story.project.sql()
    return StoryResult(seed, files, tuple(story.trace), tuple(wrong), story.engine.life.moments)


def live_process(seed: int, options: Options, plant: str | None = None) -> StoryResult:
    """The same with a real process; a plant is in that one."""
    story = ProcessStory(seed, options, plant)
    try:
        wrong = story.run()
    except (Exception, Killed):
        wrong = traceback.format_exc().splitlines()
    outcome = StoryResult(seed, story.project.sql(), tuple(story.trace), tuple(wrong), deaths=story.engine.deaths)
    if wrong:
        (story.folder / "story").write_text(str(outcome))
    return outcome


def each_moment(seed: int, options: Options) -> Iterator[tuple[int, Options]]:
    """The same story with a death at each moment after its first rest."""
    last = live(seed, options).moments
    return ((seed, replace(options, kill_at=n)) for n in range(1, last + 1))


def search(
    stories: Iterable[tuple[int, Options | ForwardOptions]], count: int, jobs: int, plant: str | None, *, go_on: bool
) -> list[StoryResult]:
    """Stories that found something; the first, or all of them."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    found: list[StoryResult] = []
    deaths = 0
    with Progress(*columns) as progress, multiprocessing.Pool(jobs, initializer=_quick) as pool:
        bar = progress.add_task(plant or "stories", total=count)
        for outcome in pool.imap_unordered(partial(_live, plant=plant), stories):
            progress.advance(bar)
            deaths += outcome.deaths
            if outcome.wrong:
                found.append(outcome)
                if not go_on:
                    break
                print(outcome.line, flush=True)
    if deaths:
        print(f"{deaths} processes killed")
    return found


def _live(story: tuple[int, Options | ForwardOptions], plant: str | None) -> StoryResult:
    """One that hangs ends with a trace of where it does."""
    timer = signal.ITIMER_REAL if isinstance(story[1], Options) and story[1].processes else signal.ITIMER_PROF
    signal.setitimer(timer, HANG_S)
    try:
        return live(*story, plant)
    finally:
        signal.setitimer(timer, 0)


def _hangs(*_: object) -> None:
    raise TimeoutError(f"no end after {HANG_S} s")


def _quick() -> None:
    """A worker begins. Objects of a story die by themselves, mostly."""
    for sign in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(sign, _hangs)
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.change", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="so many seeds, one after the other")
    parser.add_argument("--seed", type=int, help="the first one; without --seeds this one alone, with its story")
    parser.add_argument(
        "--edits", choices=("all", "safe"), default="all", help="safe: none that needs anything made anew"
    )
    parser.add_argument("--forward", action="store_true", help="texts that go forward: see `tests.change.forward`")
    parser.add_argument("--kills", action="store_true", help="the engine dies at random moments")
    parser.add_argument(
        "--each-moment", action="store_true", help="the story of --seed with a death at each of its moments"
    )
    parser.add_argument("--disk", action="store_true", help="with the embedded log, on a disk that loses power")
    parser.add_argument(
        "--kafka", choices=("alone", "member"), default="", help="with a log that can do what brokers can"
    )
    parser.add_argument(
        "--processes", action="store_true", help="real processes on the embedded log, killed with SIGKILL"
    )
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--queries", type=int, help="of the first project")
    parser.add_argument("--records", type=int, default=60, help="of a round, at most")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="break this; a story has to notice")
    parser.add_argument(
        "--go-on", action="store_true", help="a line for each story that finds something, and no end at the first"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    options: Options | ForwardOptions = Options(
        given.edits, given.kills, given.turns, given.records, given.queries, disk=given.disk, kafka=given.kafka
    )
    if given.processes:
        options = replace(options, kills=True, processes=True)
    if given.forward:
        options = ForwardOptions(kills=given.kills, disk=given.disk)
    if given.seeds is None and given.seed is not None and not given.each_moment:
        outcome = live(given.seed, options, given.plant)
        print(outcome if outcome.wrong else f"{outcome}\nseed {given.seed}: as from the beginning")
        return int(bool(outcome.wrong) != bool(given.plant))
    first = random.randrange(1 << 20) if given.seed is None else given.seed
    stories: list[tuple[int, Options | ForwardOptions]]
    if given.each_moment and isinstance(options, Options):
        stories = list(each_moment(first, options))
    else:
        stories = [(seed, options) for seed in range(first, first + (given.seeds or 200))]
    found = search(stories, len(stories), given.jobs, given.plant, go_on=given.go_on)
    if not given.go_on and found:
        print(found[0])
    print(f"{len(stories)} stories from seed {first} on: {len(found) or 'none'} not as from the beginning")
    return int(bool(found) != bool(given.plant))


if __name__ == "__main__":
    sys.exit(main())
