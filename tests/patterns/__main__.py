"""`python -m tests.patterns --pairs N --seed S [--java] [--postgres PORT]`: FlowQL's matches of generated pairs beside those of the others."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.patterns.compare import Outcome, compare_java, compare_postgres, compare_short


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.patterns", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--short", action="store_true", help="RE2 and Python's re, which takes short strings")
    parser.add_argument("--postgres", metavar="DSN", help="such as  'host=127.0.0.1 port=5499 user=postgres'")
    parser.add_argument("--shown", type=int, default=20)
    given = parser.parse_args()
    wrong = 0
    if given.short:
        for dialect in ("java", "postgres"):
            wrong += _report(f"short {dialect}", compare_short(given.pairs, given.seed, dialect), given.shown)
    if given.java:
        wrong += _report("Java", compare_java(given.pairs, given.seed), given.shown)
    if given.postgres:
        wrong += _report("PostgreSQL", compare_postgres(given.pairs, given.seed, given.postgres), given.shown)
    return 1 if wrong else 0


def _report(name: str, outcomes: list[Outcome], shown: int) -> int:
    counts = Counter(o.verdict for o in outcomes)
    reasons = Counter(o.ours for o in outcomes if o.verdict == "refused")
    print(f"{name}: {dict(counts)}")
    for reason, count in reasons.most_common(40):
        print(f"  refused {count}: {reason}")
    for o in [o for o in outcomes if o.verdict == "refused" and o.ours == "E"][:shown]:
        print(f"  refused {o.pattern!r} in {o.string!r}: {name} {o.theirs}")
    different = [o for o in outcomes if o.verdict in ("different", "accepted")]
    for o in different[:shown]:
        print(f"  {o.verdict} {o.pattern!r} in {o.string!r}: {o.ours}, {name} {o.theirs}")
    return len(different)


if __name__ == "__main__":
    sys.exit(main())
