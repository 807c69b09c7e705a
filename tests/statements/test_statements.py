"""Some of `python -m tests.statements`: no statement ends in anything but a plan or a diagnostic."""

from __future__ import annotations

from flowql.compiler.plan.topology import Plan
from tests.statements.check import compiled, run
from tests.statements.runs import difference

COUNT, RUN, SEED = 1_000, 125, 20130102
CPU_S_MAX = 20  # that nothing hangs; what is quick on a quiet machine is for the program


def test_a_statement_is_accepted_or_refused_and_nothing_else() -> None:
    print(f"{COUNT} statements of seed {SEED}")
    report = run(COUNT, SEED, only_compile=True)
    assert report.wrong == []
    assert report.slowest_s < CPU_S_MAX
    for made in ("mutated", "generated", "standard"):
        for outcome in ("accepted", "refused"):
            assert report.outcomes[f"{made}, {outcome}"] > COUNT // 100, report.outcomes


def test_an_accepted_query_ends_the_same_however_it_is_run() -> None:
    print(f"{RUN} statements of seed {SEED}")
    report = run(RUN, SEED)
    assert report.wrong == []
    assert report.outcomes["generated, accepted"] > 0


def test_zeros_of_both_signs_are_one_group() -> None:
    """Its name in the result must not be that of the row which came last."""
    text = "CREATE TABLE a AS SELECT (f % v) AS g, TOPK(v, 3) AS x, COUNT(*) AS n FROM s GROUP BY (f % v);"
    plan = compiled(text, "ksql")
    assert isinstance(plan, Plan)
    assert [difference(text, plan, seed) for seed in range(50, 60)] == [""] * 10


def test_a_view_over_a_table_of_ones_own_ends_the_same() -> None:
    text = """CREATE TABLE t (ts TIMESTAMP, a INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) APPEND ONLY;
CREATE VIEW v AS SELECT window_start, a, count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) GROUP BY window_start, a EMIT ON WINDOW CLOSE;"""
    plan = compiled(text, "standard")
    assert isinstance(plan, Plan)
    assert [difference(text, plan, seed) for seed in range(3)] == [""] * 3


def test_a_time_whose_day_no_date_holds_ends_the_same() -> None:
    """The cast fails for the row, by rows and by columns."""
    text = "CREATE STREAM a AS SELECT k, GREATEST(DATE '1970-01-01', CAST(FROM_UNIXTIME(v) AS DATE)) AS x FROM s EMIT CHANGES;"
    plan = compiled(text, "ksql")
    assert isinstance(plan, Plan)
    assert [difference(text, plan, seed) for seed in range(5)] == [""] * 5
