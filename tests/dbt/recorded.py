"""What PostgreSQL 15 answers for a sample of the models with few rows: `python -m tests.dbt.recorded` writes `recorded.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.beside_postgres import Run
from tests.dbt.models import load
from tests.dbt.sources import sources
from tests.one_meaning import postgres
from tests.one_meaning.answers import Answer, Double

FILE = Path(__file__).with_suffix(".json")
SEED, CHANGES, SHARE = 7, 1, 6
TOPS = (  # they and what they read
    "accepted_values_stg_orders_status", "cohort_retention", "customer_rfm", "dim_customers", "export_orders_json",
    "int_activity_streaks", "int_attribution_first_touch", "int_sessions", "int_tickets_first_response", "mrr_movements",
    "relationships_items_orders", "stg_customers__attributes", "subscription_changes", "top_customers_per_region",
    "unique_stg_customers_email",
)  # fmt: skip


@dataclass(slots=True)
class Recorded:
    """PostgreSQL's answers, in the order in which they were asked for. theirs: where they come from at first, and are kept."""

    answers: dict[str, list[Any]] = field(default_factory=dict)
    theirs: postgres.Postgres | None = None
    _next: dict[str, Iterator[Any]] = field(default_factory=dict)

    def run(self, sql: str) -> None:
        if self.theirs is not None:
            self.theirs.run(sql)

    def ask(self, sql: str) -> Answer:
        if self.theirs is None:
            rows, types = next(self._next.setdefault(sql, iter(self.answers[sql])))
            return Answer("rows", tuple(map(_read, rows)), tuple(types))
        answer = self.theirs.ask(sql)
        self.answers.setdefault(sql, []).append([list(map(_written, answer.rows)), answer.types])
        return answer


def _written(v: Any) -> Any:
    match v:
        case tuple():
            return list(map(_written, v))
        case Decimal():
            return f"#{v}"
        case Double():
            return v.value
        case time():
            return f"@{v.isoformat()}"
    return f"'{v}" if isinstance(v, str) else v


def _read(v: Any) -> Any:
    match v:
        case list():
            return tuple(map(_read, v))
        case float():
            return Double(v)
        case str():
            return {"#": Decimal, "@": time.fromisoformat}.get(v[0], str)(v[1:])
    return v


def differences(oracle: Recorded) -> tuple[Run, list[str]]:
    """The run of the sample, and what is not right in it."""
    queries = {n: m.sql for n, m in load().items()}
    with Run(sources(SHARE), queries, oracle, 1, len(queries)) as run:
        chosen = run.needed(TOPS)
        return run, [f"{name}: {text}" for name, text in run.follow(chosen, CHANGES, SEED)]


def main() -> None:
    """Asks PostgreSQL."""
    with postgres.server() as theirs:
        oracle = Recorded(theirs=theirs)
        print(*differences(oracle)[1], sep="\n")
    lines = [f"{json.dumps(sql)}: {json.dumps(found, ensure_ascii=False)}" for sql, found in oracle.answers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
