"""The last line of `flowql run`."""

from __future__ import annotations

from flowql.cli import run


def test_a_few_queries_that_lost_rows_are_named_and_the_others_counted() -> None:
    queries = [
        {"id": f"Q{i}", "records_in": 5, "records_out": 3, "late_records": 0, "dead_letters": 2, "skipped_records": 0}
        for i in range(12)
    ]
    text = run._summary(queries, 1, 1.5)
    assert text.startswith("60 records in, 36 out, 1 commit in 1.5 s; Q0: 2 dead letters; ")
    assert text.endswith("; Q9: 2 dead letters; 2 more queries (flowql status)")
    assert run._summary(queries[:10], 1, 1.5).endswith("; Q9: 2 dead letters")
