"""A sample of the models of `python -m tests.dbt` beside the answers of PostgreSQL that are recorded."""

from __future__ import annotations

import json
import re

from tests.dbt.models import load
from tests.dbt.recorded import FILE, Recorded, differences


def test_models_of_a_dbt_project_hold_and_answer_what_postgresql_does() -> None:
    run, wrong = differences(Recorded(json.loads(FILE.read_text())))
    assert not wrong, "\n".join(wrong)
    assert run.compared >= 2 * 40 * 2
    assert len(run.with_rows) >= 35


def test_there_are_300_models_and_most_read_others() -> None:
    models = load()
    assert len(models) == 300
    assert (
        sum(any(re.search(rf"\b{other}\b", m.sql) for other in models.keys() - {n}) for n, m in models.items()) >= 200
    )
