"""Groups of rows that only come: which operator folds them, where their rows lie and what is kept of them."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.changes import Consolidate, GroupAggregate
from flowql.compiler.plan.logical import Aggregate, Explode, Rekey
from flowql.compiler.plan.topology import ExchangeSink, QueryPlan
from flowql.compiler.plan.watermarks import Closing
from tests.compiler.sql import compiled

STREAM = "CREATE STREAM s (k INT KEY, v INT, d DOUBLE, ts TIMESTAMP{}) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS={});\n"
MARK = ", WATERMARK FOR ts AS ts - INTERVAL '10' SECOND"
WINDOWS = "SELECT window_start, k, {} FROM TUMBLE(s, ts, INTERVAL '1' MINUTE) GROUP BY window_start, k"


def planned(view: str, *, mark: str = MARK, partitions: int = 3) -> QueryPlan:
    made = compiled(f"CREATE VIEW o AS {view};", prelude=STREAM.format(mark, partitions), dialect="standard")
    return made.plan.queries[-1]


def of_kind(query: QueryPlan, *kinds: type) -> list[str]:
    return [o.id for s in query.subtopologies for o in s.operators if isinstance(o.spec, kinds)]


@pytest.mark.parametrize("final", [True, False])
def test_a_watermark_closes_the_groups_of_a_fold(final: bool) -> None:
    view = WINDOWS.format("count(*) AS n, sum(v) AS s") + (" EMIT ON WINDOW CLOSE" if final else "")
    query = planned(view, partitions=1)
    assert of_kind(query, GroupAggregate, Consolidate, ExchangeSink) == []
    (fold,) = (o for s in query.subtopologies for o in s.operators if isinstance(o.spec, Aggregate))
    assert fold.spec.closing == (Closing(fold.schema.names[0], 60_000),)
    assert fold.spec.emit_final == final
    assert len(fold.stores) == 1


def test_groups_that_are_not_folded_are_the_rows_of_the_view() -> None:
    query = planned(WINDOWS.format("sum(d) AS s"))
    assert of_kind(query, GroupAggregate) == ["groupaggregate-1"]
    assert of_kind(query, Consolidate, Rekey) == []


def test_rows_of_one_identity_from_different_groups_are_put_together() -> None:
    """A join gives rows of a group from two operators."""
    view = "SELECT a.k, a.n, b.s FROM ({}) a JOIN ({}) b ON a.k = b.k"
    parts = ("SELECT k, count(*) AS n FROM s GROUP BY k", "SELECT k, sum(d) AS s FROM s GROUP BY k")
    assert of_kind(planned(view.format(*parts)), Consolidate) == ["consolidate-1"]


@pytest.mark.parametrize("mark", [MARK, ""])
@pytest.mark.parametrize(("partitions", "moved"), [(3, True), (1, False)])
def test_rows_stay_where_no_record_without_a_key_is_elsewhere(mark: str, partitions: int, *, moved: bool) -> None:
    """NULL is one group, and records without a key may be in any partition."""
    query = planned(WINDOWS.format("count(*) AS n"), mark=mark, partitions=partitions)
    assert bool(of_kind(query, ExchangeSink)) == moved
    query = planned(
        "SELECT k, count(*) AS n FROM s WHERE k IS NOT NULL AND v > 1 GROUP BY k", mark=mark, partitions=partitions
    )
    assert not of_kind(query, ExchangeSink), "no record without a key is left"
    query = planned("SELECT v, count(*) AS n FROM s GROUP BY v", mark=mark, partitions=partitions)
    assert of_kind(query, ExchangeSink), "groups of another column come from all partitions"


HOP = "SELECT window_start, v, {} FROM HOP(s, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) GROUP BY {}"


@pytest.mark.parametrize("call", ["count(*) AS n", "sum(d) AS s"])
@pytest.mark.parametrize(("keys", "first"), [("window_start, v", ExchangeSink), ("window_start", Explode)])
def test_a_row_moves_once_and_not_for_each_window_that_it_is_in(call: str, keys: str, first: type) -> None:
    """Unless its groups are the windows alone."""
    view = HOP.format(call, keys).replace(" v," if keys == "window_start" else "\0", "")
    kinds = [type(o.spec) for s in planned(view).subtopologies for o in s.operators]
    assert sum(k is ExchangeSink for k in kinds) == 1
    assert next(k for k in kinds if k in (ExchangeSink, Explode)) is first


def test_elements_move_behind_the_record_whose_bytes_a_dead_letter_has() -> None:
    view = "SELECT v, e, count(*) AS n FROM s, UNNEST(regexp_split_to_array(k::text, '1')) AS u(e) GROUP BY v, e"
    kinds = [type(o.spec) for s in planned(view).subtopologies for o in s.operators]
    assert kinds.index(Explode) < kinds.index(ExchangeSink)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT DISTINCT v, k, window_start FROM {}",
        "SELECT v, window_start, k, sum(d) AS d FROM {} GROUP BY v, window_start, k",
        "SELECT DISTINCT v, v + 1 AS k, window_start FROM {}",
    ],
)
def test_rows_below_a_join_lie_by_its_keys(other: str) -> None:
    """Each input moves once, and no pair does: the join and the sink find the rows where they are."""
    windows = "TUMBLE(s, ts, INTERVAL '1' MINUTE)"
    query = planned(
        f"SELECT x.k, x.d, y.v FROM (SELECT DISTINCT d, k, window_start FROM {windows}) x "
        f"JOIN ({other.format(windows)}) y ON x.k = y.k AND x.window_start = y.window_start"
    )
    moves = [o.spec.by for s in query.subtopologies for o in s.operators if isinstance(o.spec, ExchangeSink)]
    assert [[c.rstrip("_0123456789") for c in by or ()] for by in moves] == [["k", "window_start"]] * 2
