"""How often a start asks the log which topics there are."""

from __future__ import annotations

from flowql.runtime.log.base import TopicInfo
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_swapping import ALONE, LikeKafka

SOURCE = "CREATE STREAM S (K INT KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, VALUE_FORMAT = 'JSON');\n"
TABLE = "CREATE TABLE T{0} AS SELECT V + {0} AS G, COUNT(*) AS N FROM S GROUP BY V + {0};\n"


class Counting(LikeKafka):
    """lists: how often all topics were asked for."""

    lists = 0

    def topics(self) -> dict[str, TopicInfo]:
        self.lists += 1
        return super().topics()


def lists(queries: int) -> int:
    log = Counting()
    world = InstanceHarness(SOURCE + "".join(map(TABLE.format, range(queries))), log=log, **ALONE)
    assert len(world.instance.queries) == queries
    return log.lists


def test_more_queries_list_the_topics_of_a_cluster_no_more_often() -> None:
    """Each query listed them three times, and a list is of all topics of the cluster."""
    assert lists(6) == lists(1)
