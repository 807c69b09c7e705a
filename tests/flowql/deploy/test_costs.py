"""What a deployment costs before it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed
from flowql.deploy.costs import costs_of
from flowql.deploy.extents import Extent
from tests.flowql.query.harness import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, V BIGINT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE STREAM U AS SELECT K, V + 1 AS W FROM S;
"""


class Target:
    """A deployment target with two results, and with a status that knows the size of T's state or does not."""

    def __init__(self, state_bytes: int | None) -> None:
        self._state_bytes = state_bytes

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        return {t: extent(size) for t, size in {"s": 900, "T": 300, "U": 50}.items() if t in topics}

    def free_bytes(self) -> int | None:
        return 10_000

    def status(self) -> Mapping[str, Any]:
        return {"queries": [{"id": "CTAS_T", "state_bytes": self._state_bytes}, {"id": "CSAS_U", "state_bytes": 0}]}


def extent(size: int) -> Extent:
    return Extent(records=size // 10, bytes=size)


@pytest.mark.parametrize(("state_bytes", "disk"), [(7_000, 350 + 7_000), (0, 350), (None, 350 + 300)])
def test_a_state_that_was_not_counted_yet_takes_about_as_much_as_its_results(
    state_bytes: int | None, disk: int
) -> None:
    """It counted for nothing, and the check whether the disk has room for two generations let a rebuild begin."""
    plan = plan_of(SQL)
    begun = {q.id: "change" for q in plan.queries}
    assert costs_of(Deployed(plan), plan, begun, Target(state_bytes)).disk_bytes == disk
