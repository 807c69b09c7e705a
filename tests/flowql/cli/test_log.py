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
    assert "1 records are left out from now on" in flowql("log", "verify", "--skip-damaged", *where).err
    lines = topic("consume", "bills").out.splitlines()
    assert [json.loads(line)["value"]["V"] for line in lines] == ["text 0", "text 2"]
    found = json.loads(flowql("log", "verify", "-o", "json", *where).out)
    assert [(d["first"], d["skipped"]) for d in found["damages"]] == [(1, True)]
