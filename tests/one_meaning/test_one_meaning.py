"""A sample of `python -m tests.one_meaning`: statements of one seed as views over tables and streams, asked and copied."""

from __future__ import annotations

import os

from tests.one_meaning.answers import Answer, Double, difference
from tests.one_meaning.check import Outcome, run
from tests.one_meaning.statements import batch
from tests.one_meaning.stepped import WAYS as STEPPED_WAYS
from tests.one_meaning.stepped import stepped

SEED = int(os.environ.get("ONE_MEANING_SEED", "20000"))  # another one in ONE_MEANING_SEED
STATEMENTS = 5
WAYS = ("view", "stream", "asked")


def test_a_statement_has_the_same_rows_on_every_way() -> None:
    print(f"ONE_MEANING_SEED={SEED}")
    made, outcome = batch(SEED, STATEMENTS), Outcome()
    outcome.add(made, run(made, WAYS, 3, None))
    new = [f"{d.label}\n{d.statement.over_tables}\n{d.shown}" for d in outcome.differences if not d.known]
    assert not new, f"ONE_MEANING_SEED={SEED}\n" + "\n\n".join(new)
    assert outcome.everywhere >= STATEMENTS * 0.8
    assert outcome.not_empty >= STATEMENTS * 0.6


def test_doubles_are_compared_bit_by_bit_and_nan_is_nan() -> None:
    def of(*values: object) -> Answer:
        return Answer("rows", tuple((v,) for v in values), ("double",))

    assert difference(of("NaN", None), of(None, "NaN")) == ""
    assert difference(of(Double(0.0)), of(Double(-0.0))) == "other values: bits of a double"
    assert difference(of(Double(0.1 + 0.2)), of(Double(0.3))) == "other values: bits of a double"
    assert difference(of(Double(0.1 + 0.2)), of(Double(0.3)), close=True) == ""
    assert difference(of(Double(1.0)), of(Double(1.5)), close=True) == "other values: double"
    assert difference(of(None), of(Double(1.5))) == "other values: NULL"
    assert difference(of(None), of(None, None)) == "other rows"


def test_statements_in_memory_have_the_same_rows_on_every_way() -> None:
    """As `--stepped` runs them."""
    made, outcome = batch(SEED + 1, STATEMENTS), Outcome()
    outcome.add(made, run(made, STEPPED_WAYS, 1, None, changes=1, enter=stepped))
    new = [f"{d.label}\n{d.statement.over_tables}\n{d.shown}" for d in outcome.differences if not d.known]
    assert not new, f"ONE_MEANING_SEED={SEED}\n" + "\n\n".join(new)
    assert outcome.asked.keys() == set(STEPPED_WAYS)
