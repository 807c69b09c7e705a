"""python -m tests.slt DIR [--tier core|window|types|special|all] [--json FILE] [--only TEXT] [--vector | --rows] [--partitions N]

How a case is judged is written in the corpus's README; `world.py` says how it is run.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.slt.runner import Case, Failure, Result, run_case
from tests.slt.session import Shape

TIERS = ("core", "window", "types", "special")


def load(folder: Path, tier: str = "all", only: str = "") -> list[Case]:
    """All cases of a folder in order of their files."""
    cases = [json.loads(p.read_text(), parse_float=Decimal) for p in sorted(folder.glob("*.json"))]
    return [c for c in cases if tier in ("all", c["tier"]) and only in c["id"]]


def data_of(folder: Path) -> Path:
    """Where the rows are that cases load."""
    return folder.parent / "data"


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """The JSON document of a run: totals, the same by tier, and why each failed case fails first."""
    tiers = {t: [r for r in results if r.tier == t] for t in TIERS}
    return {
        **_totals(results),
        "tiers": {t: _totals(of) for t, of in tiers.items() if of},
        "failures": [_shown(r, f) for r in results if not r.passed for f in (r.failures or r.unrefused)[:1]],
        "unrefused": [_shown(r, f) for r in results for f in r.unrefused],
    }


def _shown(r: Result, f: Failure) -> dict[str, Any]:
    return {"id": r.id, "tier": r.tier, "class": f.kind, "step": f.step, "reason": f.reason}


def _totals(results: Sequence[Result]) -> dict[str, Any]:
    first = Counter((r.failures or r.unrefused)[0].kind for r in results if not r.passed)
    return {
        "positive": {"passed": sum(r.passed for r in results), "total": len(results)},
        "error": _summed([r.errors for r in results]),
        "queries": _summed([r.queries for r in results]),
        "classes": dict(first.most_common()),
    }


def _summed(pairs: Sequence[Sequence[int]]) -> dict[str, int]:
    return {"passed": sum(p[0] for p in pairs), "total": sum(p[1] for p in pairs)}


def _print(document: dict[str, Any]) -> None:
    reasons = Counter(f"{f['class']}: {f['reason'][:90]}" for f in document["failures"])
    for reason, n in reasons.most_common(30):
        print(f"{n:5}  {reason}")
    for name, part in (*document["tiers"].items(), ("all", document)):
        shown = [f"{k} {part[k]['passed']} of {part[k]['total']}" for k in ("positive", "error", "queries")]
        print(f"{name}: {', '.join(shown)}; fail first as {part['classes'] or 'nothing'}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slt")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tier", choices=(*TIERS, "all"), default="all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="cases whose id contains this")
    kernels = parser.add_mutually_exclusive_group()
    kernels.add_argument("--vector", action="store_true", help="force vector kernels")
    kernels.add_argument("--rows", action="store_true", help="force row kernels")
    parser.add_argument("--partitions", type=int, default=1, help="of each table")
    options = parser.parse_args(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    shape = Shape(True if options.vector else False if options.rows else None, options.partitions)
    cases = load(options.folder, options.tier, options.only)
    results: list[Result] = []
    for case in cases:
        results.append(run_case(case, data_of(options.folder), shape))
        if sys.stderr.isatty():
            print(f"\r{len(results)} of {len(cases)} cases", end="", file=sys.stderr)
    document = summary(results)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    _print(document)
    return 0 if all(r.passed for r in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
