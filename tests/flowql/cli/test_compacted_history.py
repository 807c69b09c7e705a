"""A rebuild over topics of which compaction has removed records: it is refused where the result depends on them, and made where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.server.host import Host
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_deploy import Site
from tests.runtime.log.records import produce

KINDS = "KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON'"
SOURCES = f"""
CREATE STREAM SALES (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1, {KINDS});
CREATE STREAM NAMES_AS_THEY_CAME (K STRING KEY, NAME STRING) WITH (KAFKA_TOPIC = 'names', PARTITIONS = 1, {KINDS});
CREATE TABLE NAMES (K STRING PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC = 'names', {KINDS});
"""
SOLD = "CREATE STREAM SOLD AS SELECT SALES.K, V, NAME FROM SALES JOIN {table} ON SALES.K = {table}.K;\n"
UPDATES = "CREATE TABLE UPDATES AS SELECT K, COUNT(*) AS N FROM NAMES_AS_THEY_CAME GROUP BY K;\n"
BY_NAME = "CREATE TABLE BY_NAME AS SELECT NAME, COUNT(*) AS N FROM NAMES GROUP BY NAME;\n"
LATEST = "CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(NAME) AS NAME FROM NAMES_AS_THEY_CAME GROUP BY K;\n"
EACH = 5  # sales, each after an update of its name


class Shop(Site):
    def write(self, *queries: str) -> None:
        (self.folder / "demo.sql").write_text(SOURCES + "".join(queries))

    def compact(self, topic: str) -> None:
        """What the log does by itself, now."""
        admin = self.instance.admin
        admin.alter_topic(topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        self.instance.log.maintain(self.instance.clock.wall_ms())

    def sold(self) -> list[str]:
        return [row["NAME"] for row in self.rows("(SELECT NAME FROM SOLD)")]


@pytest.fixture
def shop(flowql: Program, host: Host, folder: Path) -> Shop:
    """Topics of which each transaction is a segment, so that all but the last one can be compacted."""
    made = Shop(flowql, folder, host)
    for topic in ("names", "sales", "LATEST"):
        made.instance.admin.create_topic(topic, 1, {"segment.bytes": "1"})
    return made


def filled(shop: Shop, *queries: str) -> Shop:
    shop.write(*queries)
    shop.deploy("--prune")
    for i in range(EACH):
        name, sale = (10 * i, b"a", b'{"NAME": "name %d"}' % i), (10 * i + 5, b"a", b'{"V": %d}' % i)
        produce(shop.instance.log, "feed", (TopicPartition("names", 0), [name]))
        shop.settle()
        produce(shop.instance.log, "feed", (TopicPartition("sales", 0), [sale]))
        shop.settle()
    return shop


ALL = [f"name {i}" for i in range(EACH)]


def test_a_join_is_not_rebuilt_over_versions_that_compaction_has_removed(shop: Shop) -> None:
    """Sales met the names of their time; edited, the query was rebuilt without a word, and they were in no result."""
    filled(shop, SOLD.format(table="NAMES"))
    shop.compact("names")
    assert shop.sold() == ALL
    shop.write(SOLD.format(table="NAMES").replace("V, NAME", "V + 1 AS V, NAME"))
    (said,) = shop.plan()["lost_history"]
    assert said == "CSAS_SOLD reads every record of names-0, and compaction has removed some"
    refused = shop("deploy")
    assert (refused.code, "FQ5208" in refused.err) == (1, True)
    assert shop.sold() == ALL, "nothing was changed"
    shop.deploy("--accept-history")
    assert shop.sold() == ALL[-2:], "one that was compacted, and one of the segment that is written to"


def test_a_count_of_updates_is_not_rebuilt_over_what_is_left_of_them(shop: Shop) -> None:
    filled(shop, UPDATES)
    shop.compact("names")
    refused = shop("deploy", "--full-refresh", "UPDATES")
    assert (refused.code, "CTAS_UPDATES reads every record of names-0" in refused.err) == (1, True)
    assert shop.rows("UPDATES") == [{"K": "a", "N": EACH}]


def test_a_count_is_not_rebuilt_after_compaction_was_switched_off(shop: Shop) -> None:
    filled(shop, UPDATES)
    shop.compact("names")
    assert shop("topic", "retention", "names", "--no-compact").code == 0
    refused = shop("deploy", "--full-refresh", "UPDATES")
    assert (refused.code, "CTAS_UPDATES reads every record of names-0" in refused.err) == (1, True)
    assert shop.rows("UPDATES") == [{"K": "a", "N": EACH}]


def test_rows_of_a_table_are_rebuilt_from_the_last_record_of_each_key(shop: Shop) -> None:
    filled(shop, BY_NAME)
    shop.compact("names")
    assert not shop.deploy("--full-refresh", "BY_NAME")["lost_history"]
    assert [row for row in shop.rows("BY_NAME") if row["N"]] == [{"NAME": ALL[-1], "N": 1}]


def test_a_compacted_result_is_made_anew_for_a_join_that_is_rebuilt(shop: Shop) -> None:
    filled(shop, LATEST, SOLD.format(table="LATEST"))
    shop.compact("LATEST")
    shop.write(LATEST, SOLD.format(table="LATEST").replace("V, NAME", "V + 1 AS V, NAME"))
    refused = shop("deploy")
    said = "CSAS_SOLD reads every record of LATEST-0, and compaction has removed some; --full-refresh LATEST computes them again"
    assert (refused.code, said in refused.err) == (1, True)
    assert not shop.deploy("--full-refresh", "LATEST")["lost_history"]
    assert shop.sold() == ALL
