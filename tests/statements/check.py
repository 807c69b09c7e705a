"""What must hold for any statement: it is accepted, and its plan can be written, read, shown and judged for Spark, and its query
ends the same however it is run; or it is refused with a diagnostic. It never fails otherwise, and never takes long."""

from __future__ import annotations

import contextlib
import faulthandler
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.edits import applied
from flowql.compiler.diagnostics.render import render
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, Session, compile_push
from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.plan.explain import query_text
from flowql.compiler.plan.topology import Plan
from flowql.query.errors import QueryError
from flowql.runtime.spark.choose import explain_lines
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.runtime.spark.settings import SparkSettings
from tests.statements import standard
from tests.statements.grammar import Grammar
from tests.statements.mutate import Mutator
from tests.statements.runs import difference
from tests.statements.sources import SOURCES

DIALECTS: tuple[DialectName, ...] = ("ksql", "standard")
CPU_S_MAX = 1.0
HANG_S = 300


@dataclass(slots=True)
class Report:
    """What became of the statements. wrong: those that ended in an internal error, with it; slow: over CPU_S_MAX."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def took(self, seconds: float, text: str) -> None:
        self.slowest_s = max(self.slowest_s, seconds)
        if seconds > CPU_S_MAX:
            self.slow.append(f"{seconds:.1f} s\n  {text}")


def compiled_standard(statement: standard.Standard) -> Plan | str:
    """As `compiled`, of a statement over tables of one's own, or of an interactive query over them."""
    try:
        plan = standard.compiled(statement)
    except CompileError as refused:
        for edit in (d.edit for d in refused.diagnostics if d.edit is not None):
            lines = statement.text.split("\n")
            assert edit.span.column <= len(lines[edit.span.line - 1]) + 1
            assert applied(statement.text, edit) != statement.text
        return _refused(refused)
    except QueryError:
        return "refused"
    use(plan)
    return plan


def compiled(text: str, dialect: DialectName) -> Plan | str:
    """The plan of an accepted statement, else `refused` or `unsupported`. Raises whatever should not happen."""
    session = Session(dialect=dialect)
    session.execute(SourceText("sources.sql", SOURCES))
    source = SourceText("statement.sql", text)
    try:
        if text.lstrip().upper().startswith("SELECT"):
            plan = compile_push(source, session.plan.sources, dialect=dialect).plan
        else:
            session.execute(source)
            plan = session.plan
    except CompileError as refused:
        return _refused(refused)
    use(plan)
    return plan


def _refused(error: CompileError) -> str:
    assert render(error.diagnostics)
    return "unsupported" if all(d.unsupported for d in error.diagnostics) else "refused"


def use(plan: Plan) -> None:
    """What is done with a plan before it runs."""
    written = dumps(plan)
    assert dumps(loads(written)) == written
    for query in plan.queries:
        assert query_text(query)
        with contextlib.suppress(SparkUnsupported):
            assert explain_lines(plan, query, SparkSettings(), "streaming")


def run(count: int, seed: int, *, only_compile: bool = False) -> Report:
    """So many statements: in turn by the grammar, broken, and broken ones of standard SQL over tables of one's own."""
    rng = random.Random(seed)
    mutator, grammar, report = Mutator(), Grammar(rng), Report()
    for n in range(count):
        if n % 3 == 2:
            report.outcomes[f"standard, {_standard(mutator, rng, report)}"] += 1
            continue
        made = "mutated" if n % 3 else "generated"
        text = mutator.statement(rng) if n % 3 else grammar.statement()
        dialect = rng.choice(DIALECTS)
        began = time.process_time()
        try:
            plan = compiled(text, dialect)
            report.took(time.process_time() - began, f"{dialect}: {text!r}")
            end = plan if isinstance(plan, str) else "accepted" if only_compile else _end(text, plan, n)
        except Exception as error:
            end = "wrong"
            report.wrong.append(f"{type(error).__name__}: {error}\n  {dialect}: {text!r}")
        report.outcomes[f"{made}, {end}"] += 1
    return report


def _standard(mutator: Mutator, rng: random.Random, report: Report) -> str:
    """What became of a broken statement over tables of one's own. Its rows are for `tests.styles` and `tests.standard_views`."""
    statement = standard.mutated(mutator, rng)
    began = time.process_time()
    try:
        plan = compiled_standard(statement)
    except Exception as error:
        before = "; ".join(statement.before)
        report.wrong.append(f"{type(error).__name__}: {error}\n  standard: {statement.text!r}\n  after {before}")
        return "wrong"
    report.took(time.process_time() - began, f"standard: {statement.text!r}")
    return plan if isinstance(plan, str) else "accepted"


def _end(text: str, plan: Plan, seed: int) -> str:
    """What became of an accepted statement."""
    different = difference(text, plan, seed)
    assert not different, f"records {seed} end differently: {different}"
    return "accepted"


def share(count: int, seed: int, *, only_compile: bool) -> Report:
    """`run` in a process of its own, which ends with a trace if a statement hangs."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        return run(count, seed, only_compile=only_compile)
    finally:
        faulthandler.cancel_dump_traceback_later()
