"""What queries did not use is seen: in `run`'s last line, in `status` of a stopped instance, in `explain --late`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from flowql.cli.status import lost_text
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_topic import Topic

SQL = """
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE counts AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT CHANGES;
"""


def record(minute: int, value: str = "1") -> str:
    return f'{{"key": "a", "value": {{"V": {value}}}, "timestamp": {minute * 60_000}}}'


def test_what_was_lost_is_seen_and_kept_over_restarts(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: lost\nsql: [queries.sql]\n")
    (tmp_path / "queries.sql").write_text(SQL)
    where = ("-p", str(tmp_path))
    topic = Topic(flowql, tmp_path)
    topic("produce", "s", record(1), record(90), record(3), record(91, '"many"'))
    first = flowql("run", "--until-caught-up", *where)
    assert first.err.splitlines()[-1].endswith(" s; CTAS_COUNTS: 1 late row, 1 dead letter")
    topic("produce", "s", record(92), record(30))
    flowql("run", "--until-caught-up", *where)
    (stopped,) = json.loads(flowql("status", "-o", "json", *where).out)["queries"]
    assert (stopped["state"], stopped["late_records"], stopped["dead_letters"]) == ("stopped", 2, 1)
    (late,) = stopped["late"]
    assert (late["partition"], late["rows"], late["behind_ms"], late["stream_time"]) == (0, 2, 87 * 60_000, 92 * 60_000)
    shown = flowql("status", *where).out.splitlines()
    row = dict(zip(shown[0].split(), shown[1].split(), strict=True))
    assert (row["LATE"] if "LATE" in row else row["late"], row.get("dead", row.get("DEAD"))) == ("2", "1")
    explained = flowql("explain", "counts", "--late", *where)
    assert explained.out.splitlines()[1].split()[1:] == ["0", "2", "1.4h", "1970-01-01T01:32:00.000Z"]
    assert "2 rows of CTAS_COUNTS came after the end of their window" in explained.err
    assert re.search(r"^aggregate-1: Aggregate tumbling 1 min grace 0 ms", explained.err, re.MULTILINE), explained.err


def test_skipped_records_are_counted(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: lost\nsql: [queries.sql]\n")
    (tmp_path / "queries.sql").write_text(SQL)
    where = ("-p", str(tmp_path))
    topic = Topic(flowql, tmp_path)
    for i in range(3):
        topic("produce", "s", record(i, f"{1000 + i}"))
    (segment,) = tmp_path.glob(".flowql/**/s.*/0-*.arrows")
    data = bytearray(segment.read_bytes())
    data[data.index(b"1001")] ^= 1
    segment.write_bytes(data)
    assert flowql("run", "--until-caught-up", *where).code == 1
    flowql("log", "verify", "--skip-damaged", *where)
    done = flowql("run", "--until-caught-up", *where)
    assert done.code == 0
    assert "CTAS_COUNTS: 1 skipped record" in done.err
    (stopped,) = json.loads(flowql("status", "-o", "json", *where).out)["queries"]
    assert (stopped["skipped_records"], stopped["lag"]) == (1, 0)
    (tmp_path / "queries.sql").write_text(SQL.replace("SUM(v)", "SUM(v) * 2"))
    rebuilt = flowql("run", "--until-caught-up", *where)
    assert (rebuilt.code, "CTAS_COUNTS: 1 skipped record" in rebuilt.err) == (0, True), "a rebuild leaves it out, too"
    asked = flowql("query", "SELECT SUM(total)::BIGINT AS t FROM counts", "-o", "json", *where)
    assert json.loads(asked.out) == [{"t": 2 * (1000 + 1002)}]


def test_nothing_lost_is_nothing_said() -> None:
    assert lost_text({"late_records": 0, "dead_letters": 0}) == ""
    assert lost_text({"late_records": 1, "dead_letters": 0, "skipped_records": 2}) == "1 late row, 2 skipped records"


JOIN = """
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE names (k STRING PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC = 'names', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE STREAM named AS SELECT s.k AS k, v, name FROM s JOIN names ON s.k = names.k;
"""


def test_a_join_that_finds_nothing_says_so_and_one_from_the_beginning_finds_all(
    flowql: Program, tmp_path: Path
) -> None:
    for folder, timed in ((tmp_path / "late", True), (tmp_path / "timeless", False)):
        folder.mkdir()
        (folder / "flowql.yaml").write_text("name: joined\nsql: [queries.sql]\n")
        (folder / "queries.sql").write_text(JOIN)
        (folder / "s.csv").write_text("K,V,AT\n" + "".join(f"k{i % 3},{i},2024-01-01\n" for i in range(1100)))
        (folder / "names.csv").write_text("K,NAME,AT\n" + "".join(f"k{i},n{i},2026-01-01\n" for i in range(3)))
        topic, where = Topic(flowql, folder), ("-p", str(folder))
        topic("import", "s", str(folder / "s.csv"), "--timestamp", "AT")
        topic("import", "names", str(folder / "names.csv"), *(["--timestamp", "AT"] if timed else []))
        flowql("run", "--until-caught-up", *where)
        status = flowql("status", "-o", "json", *where)
        (query,) = json.loads(status.out)["queries"]
        said = "none of its first 1,100 rows found a row of its table, whose rows have later times"
        assert (query["records_out"], said in "".join(query["notes"])) == (0, timed)
        assert (said in flowql("status", *where).err) == timed
        assert len(topic("consume", "named").out.splitlines()) == (0 if timed else 1100)
