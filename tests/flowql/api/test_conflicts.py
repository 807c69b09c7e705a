"""Statements whose sub-query has read a table that others change before the statement is carried out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import flowql
from flowql.errors import RuntimeFailure
from flowql.server.row_service import RowService

RAISE = "UPDATE own SET v = (SELECT MAX(v) + 1 FROM own) WHERE id = 1"


def test_a_statement_in_conflict_fails_or_is_repeated_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\ndialect: standard\nsql: [shop.sql]\n")
    (tmp_path / "shop.sql").write_text("CREATE TABLE own (id INT PRIMARY KEY, v INT);")
    with flowql.Instance(tmp_path) as instance, flowql.connect(tmp_path) as other:
        shop, conflicts, ask = instance.connection, 0, RowService._ask
        shop.execute("INSERT INTO own VALUES (1, 1)")

        def asked(rows: RowService, visible: frozenset[str] | None, sql: str) -> pa.Table:
            nonlocal conflicts
            found = ask(rows, visible, sql)
            if conflicts:
                conflicts -= 1
                other.execute("UPDATE own SET v = v + 10 WHERE id = 1")
            return found

        monkeypatch.setattr(RowService, "_ask", asked)
        for conflicts, retry in ((1, 0), (2, 1)):
            with pytest.raises(RuntimeFailure) as failed:
                shop.execute(RAISE, retry=retry)
            assert (failed.value.code, conflicts) == ("FQ4063", 0)
        assert shop.sql("SELECT v FROM own").one() == 31, "nothing of the statement"
        conflicts = 2
        assert shop.execute(RAISE, retry=2) == 1
        conflicts = 1
        assert other.returning(f"{RAISE} RETURNING v", retry=1).one() == 63
