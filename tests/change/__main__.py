"""`python -m tests.change --seeds 3000 [--kills]`: projects that change; `--seed N` shows one story."""

from __future__ import annotations

import argparse
import random
import sys
import traceback

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.change.story import Options, Story


def live(seed: int, options: Options) -> tuple[Story, list[str]]:
    """A story, and what is wrong with it."""
    story = Story(seed, options)
    try:
        return story, story.run()
    except Exception:
        return story, traceback.format_exc().splitlines()


def show(seed: int, options: Options) -> int:
    story, wrong = live(seed, options)
    print(story.project.sql())
    print("\n".join(story.trace))
    print("\n".join(wrong) or f"seed {seed}: as from the beginning")
    return int(bool(wrong))


def search(first: int, count: int, options: Options, *, go_on: bool) -> int:
    """0 when no seed finds anything."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    found = 0
    with Progress(*columns) as progress:
        bar = progress.add_task("seeds", total=count)
        for seed in range(first, first + count):
            story, wrong = live(seed, options)
            progress.advance(bar)
            if not wrong:
                continue
            found += 1
            if not go_on:
                break
            last = next((t for t in reversed(story.trace) if t.startswith("deploy")), "")
            print(f"seed {seed}: {wrong[0] if not wrong[0].startswith('Traceback') else wrong[-1]}  <- {last}")
    if not found:
        print(f"{count} seeds from {first} on: all as from the beginning")
        return 0
    if go_on:
        print(f"{found} of {count} seeds differ")
        return 1
    kills = " --kills" if options.kills else ""
    print(story.project.sql())
    print("\n".join(story.trace))
    print("\n".join(wrong))
    print(f"seed {seed}, the {seed - first + 1}. of {count}; again with: python -m tests.change --seed {seed} --edits {options.edits}{kills}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.change", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="so many seeds, one after the other")
    parser.add_argument("--seed", type=int, help="the first one; without --seeds this one alone, with its story")
    parser.add_argument("--edits", choices=("all", "safe"), default="all")
    parser.add_argument("--kills", action="store_true", help="the engine dies at random moments")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--records", type=int, default=60, help="of a round, at most")
    parser.add_argument("--go-on", action="store_true", help="one line for each seed that differs, and no end at the first")
    given = parser.parse_args()
    options = Options(given.edits, given.kills, given.turns, given.records)
    if given.seeds is None and given.seed is not None:
        return show(given.seed, options)
    first = random.randrange(1 << 20) if given.seed is None else given.seed
    return search(first, given.seeds or 200, options, go_on=given.go_on)


if __name__ == "__main__":
    sys.exit(main())
