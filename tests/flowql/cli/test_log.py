"""`flowql log verify`, on a log of which the disk has changed a byte."""

from __future__ import annotations

import json
from pathlib import Path

from tests.flowql.cli.program import Program
from tests.flowql.cli.test_topic import declaring


def test_damage_is_shown_and_left_out(flowql: Program, tmp_path: Path) -> None:
    topic = declaring(flowql, tmp_path, "CREATE STREAM bills (id INT KEY, v STRING)")
    for i in range(3):
        topic("produce", "bills", f'{i}:{{"V": "text {i}"}}')
    where = ("-p", str(tmp_path))
    assert "all as they were written" in flowql("log", "verify", *where).err
    (segment,) = tmp_path.glob(".flowql/**/bills.*/0-*.arrows")
    data = bytearray(segment.read_bytes())
    data[data.index(b"text 1")] ^= 1
    segment.write_bytes(data)
    shown = flowql("log", "verify", *where)
    assert shown.code == 1
    assert shown.out.splitlines()[1].split()[:5] == ["bills-0", "1", "1", "1", segment.name]
    assert "flowql log verify --skip-damaged" in shown.err
    read = topic("consume", "bills")
    assert read.code == 1
    assert f"{segment}: the batch at byte" in read.err
    assert "FQ4051" in read.err
    assert "1 records are skipped by readers and rebuilds" in flowql("log", "verify", "--skip-damaged", *where).err
    lines = topic("consume", "bills").out.splitlines()
    assert [json.loads(line)["value"]["V"] for line in lines] == ["text 0", "text 2"]
    found = json.loads(flowql("log", "verify", "-o", "json", *where).out)
    assert [(d["first"], d["skipped"]) for d in found["damages"]] == [(1, True)]


def test_repairs_that_are_left_out_are_named(flowql: Program, tmp_path: Path) -> None:
    """Nothing said that the next rebuild reads the bad records again."""
    topic = declaring(flowql, tmp_path, "CREATE STREAM bills (id INT KEY, v STRING)")
    topic("produce", "files-repairs", "a repair:1")
    (segment,) = tmp_path.glob(".flowql/**/files-repairs.*/0-*.arrows")
    data = bytearray(segment.read_bytes())
    data[data.index(b"a repair")] ^= 1
    segment.write_bytes(data)
    said = flowql("log", "verify", "--skip-damaged", "-p", str(tmp_path)).err
    assert "files-repairs held repairs and marks" in said


def test_a_missing_segment_is_left_out_and_queries_go_on(flowql: Program, tmp_path: Path) -> None:
    """It stopped all of the target, `flowql log verify` too, though only one query reads it."""
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: [q.sql]\n")
    where = ("-p", str(tmp_path))
    (tmp_path / "q.sql").write_text(BILLS + QUERIES)
    flowql("topic", "produce", "bills", '7:{"V": 6}', '8:{"V": 9}', *where)
    assert flowql("run", "--until-caught-up", *where).code == 0
    for name in ("bills", "LARGE"):
        (segment,) = tmp_path.glob(f".flowql/**/{name}.*/0-*.arrows")
        segment.unlink()
    stopped = flowql("run", "--until-caught-up", *where)
    assert (stopped.code, "FQ4003" in stopped.err, "flowql log verify --skip-damaged" in stopped.err) == (1, True, True)
    assert flowql("log", "verify", *where).out.count("the file is missing") == 2
    said = flowql("log", "verify", "--skip-damaged", *where).err
    assert "bills is read by CSAS_LARGE" in said
    assert "LARGE is computed by CSAS_LARGE: to have its records computed again:  flowql deploy --full-refresh" in said
    flowql("topic", "produce", "bills", '7:{"V": 8}', *where)
    assert flowql("run", "--until-caught-up", *where).code == 0
    found = flowql("query", "SELECT id, c FROM n ORDER BY id", "-o", "csv", *where).out
    assert found.splitlines()[1:] == ["7,2", "8,1"], "what was read of it stays in results"


BILLS = "CREATE STREAM bills (id INT KEY, v INT) WITH (KAFKA_TOPIC = 'bills', PARTITIONS = 1, VALUE_FORMAT = 'JSON');\n"
INSERTED = "INSERT INTO bills VALUES (1, 10);\n"
QUERIES = "CREATE STREAM large AS SELECT id, v FROM bills WHERE v > 5; CREATE TABLE n AS SELECT id, COUNT(*) AS c FROM large GROUP BY id;"


def test_queries_begin_anew_where_the_record_of_what_is_deployed_is_left_out(flowql: Program, tmp_path: Path) -> None:
    """A query that had been edited meanwhile went on with the state and the results of its old text."""
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: [q.sql]\n")
    sql, where = tmp_path / "q.sql", ("-p", str(tmp_path))
    sql.write_text(BILLS + INSERTED + QUERIES)
    assert flowql("run", "--until-caught-up", *where).code == 0
    flowql("topic", "produce", "bills", '7:{"V": 6}', '8:{"V": 9}', *where)
    assert flowql("run", "--until-caught-up", *where).code == 0
    (segment,) = tmp_path.glob(".flowql/**/demo-plan.*/0-*.arrows")
    data = bytearray(segment.read_bytes())
    data[-100] ^= 1
    segment.write_bytes(data)
    assert "with them the deployments" in flowql("log", "verify", "--skip-damaged", *where).err
    edited = QUERIES.replace("v > 5", "v > 8")
    sql.write_text(BILLS + INSERTED + edited)
    refused = flowql("run", "--until-caught-up", *where)
    assert (refused.code, "INSERT VALUES were written to bills" in refused.err) == (1, True)
    sql.write_text(BILLS + edited)
    assert "demo: 2 queries on" in flowql("run", "--until-caught-up", *where).err
    found = flowql("query", "SELECT id, c FROM n ORDER BY id", "-o", "csv", *where).out
    assert found.splitlines()[1:] == ["1,1", "8,1"]
    assert len(flowql("topic", "consume", "LARGE", *where).out.splitlines()) == 2
