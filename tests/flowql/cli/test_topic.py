"""Topics as the command line has them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from flowql.runtime.app.plan_topic import topic_name
from flowql.server.host import Host
from tests.flowql.cli.program import CommandResult, Program


class Topic:
    def __init__(self, flowql: Program, folder: Path) -> None:
        self._flowql, self._folder = flowql, folder

    def __call__(self, *arguments: str) -> CommandResult:
        return self._flowql("topic", *arguments, "-p", str(self._folder))


@pytest.fixture
def topic(flowql: Program, folder: Path) -> Topic:
    return Topic(flowql, folder)


def test_from_the_first_record_to_the_last(topic: Topic) -> None:
    assert topic("create", "notes", "--partitions", "2", "--config", "cleanup.policy=compact").err.endswith(
        "topic notes: 2 partitions\n"
    )
    assert topic("produce", "notes", 'a:{"X": 1}', "b:null", 'a:"text"').code == 0
    described = json.loads(topic("describe", "notes", "-o", "json").out)
    assert (described["records"], described["config"]) == (3, {"cleanup.policy": "compact"})
    assert [p["records"] for p in described["partitions"]] in ([3, 0], [2, 1], [1, 2], [0, 3])
    assert "  cleanup.policy = compact\n" in topic("describe", "notes").out
    again = topic("create", "notes", "--partitions", "2", "--config", "cleanup.policy=delete")
    assert "its configuration is unchanged" in again.err
    assert "--yes" in topic("delete", "notes").err
    assert topic("delete", "notes", "--yes").err.endswith("deleted topic notes: 3 records\n")
    assert topic("describe", "notes").code == 1


def test_records_as_files(topic: Topic, tmp_path: Path) -> None:
    topic("produce", "notes", 'a:{"X": 1}', "a:null", 'a:"text"')
    file = tmp_path / "notes.parquet"
    assert topic("export", "notes", "-o", str(file)).err.endswith(f"3 records of topic notes in {file}\n")
    rows = pyarrow.parquet.read_table(file).to_pylist()
    assert [(r["offset"], r["key"], r["value"]) for r in rows] == [
        (0, '"a"', '{"X":1}'),
        (1, '"a"', None),
        (2, '"a"', '"text"'),
    ]
    assert len(topic("export", "notes", "--from", "2", "-o", "csv").out.splitlines()) == 2


def test_a_new_topic_with_nearly_the_name_of_a_source_is_named(topic: Topic) -> None:
    """`topic import order` made the topic without a word, and the source over `orders` stayed empty."""
    said = topic("produce", "ss", "a:null").err
    assert said.startswith("ss is a new topic, and no stream or table of the project reads it; did you mean `s`?\n")
    assert "did you mean" not in topic("produce", "ss", "a:null").err, "it exists now"
    assert "did you mean" not in topic("produce", "notes", "a:null").err


def test_what_was_deployed_keeps_its_topics(topic: Topic, host: Host) -> None:
    for name in ("s", "S", "A"):
        refused = topic("delete", name, "--yes")
        assert (refused.code, "FQ5012" in refused.err, "CTAS_A" in refused.err) == (1, True, True)
    assert "FQ5012" in topic("delete", topic_name("demo"), "--yes").err
    lines = topic("describe", "s").out.splitlines()
    assert lines[0].startswith("topic s: 3 records in 1 partition")
    assert "declared as stream S" in lines
    assert "read by CTAS_A" in lines


def test_usage(topic: Topic) -> None:
    assert topic("create", "t", "--config", "nonsense").code == 2
    assert topic("delete", "nothing", "--yes").code == 1
    assert topic("export", "nothing", "-o", "x.doc").code == 2


def test_how_long_records_are_kept(topic: Topic) -> None:
    topic("create", "notes")
    assert topic("retention", "notes").out == "notes: records are kept for ever\n"
    assert topic("retention", "notes", "7 days", "--size", "1 GB").out == (
        "notes: records are kept for 7 days, up to 1 GB of a partition\n"
    )
    assert json.loads(topic("describe", "notes", "-o", "json").out)["config"] == {
        "retention.ms": "604800000",
        "segment.ms": "75600000",
        "retention.bytes": "1073741824",
        "segment.bytes": "67108864",
    }, "whole segments go: a limit means something only where they are small enough"
    both = topic("retention", "notes", "1 hour", "--compact").out
    assert (
        both
        == "notes: of each key the last record is kept, and records are kept for 1 hour, up to 1 GB of a partition\n"
    )
    topic("create", "users", "--config", "cleanup.policy=compact")
    limited = topic("retention", "users", "7 days").out
    assert limited == "users: of each key the last record is kept, and records are kept for 7 days\n", "it counts"
    assert topic("retention", "users", "forever").out == "users: of each key the last record is kept\n"
    assert topic("retention", "notes", "forever", "--size", "unlimited", "--no-compact").out.endswith("for ever\n")
    assert json.loads(topic("describe", "notes", "-o", "json").out)["config"] == {}
    for without_unit in (("7",), ("7 days", "--size", "1")):  # 7 ms and a byte: the records would be gone
        assert "of which unit?" in topic("retention", "notes", *without_unit).err
    wrong = topic("retention", "notes", "soon")
    assert (wrong.code, "FQ5013" in wrong.err, "'7 days'" in wrong.err) == (1, True, True)
    assert "FQ" in topic("retention", "nowhere", "1 hour").err


CSV = "ID,CUSTOMER,AMOUNT,DAY\n" + "".join(f"{i},c{i % 3},{i}.50,2024-01-{i % 28 + 1:02}\n" for i in range(12))


def declaring(flowql: Program, folder: Path, statement: str) -> Topic:
    """`flowql topic` in a new project with one source in JSON."""
    (folder / "flowql.yaml").write_text("name: files\nsql: [sources.sql]\n")
    topic = statement.split()[2]
    (folder / "sources.sql").write_text(f"{statement} WITH (KAFKA_TOPIC = '{topic}', VALUE_FORMAT = 'JSON');\n")
    return Topic(flowql, folder)


def test_a_dry_run_shows_decoded_rows_and_makes_nothing(flowql: Program, tmp_path: Path) -> None:
    file = tmp_path / "bills.csv"
    file.write_text(CSV + "13,c1,much,2024-02-30\n")
    topic = declaring(
        flowql, tmp_path, "CREATE STREAM bills (id INT, customer STRING KEY, amount DECIMAL(9, 2), day DATE)"
    )
    shown = topic("import", "bills", str(file), "--dry-run")
    assert shown.out.splitlines()[1].split() == ["c0", "0", "0.50", "2024-01-01", shown.out.splitlines()[1].split()[-1]]
    assert len(shown.out.splitlines()) == 11
    assert "12 records of bills.csv can be imported into topic bills; nothing was written" in shown.err
    assert "bills.csv:14: AMOUNT: " in shown.err
    assert "bills" not in topic("ls").out


def test_an_import_says_what_it_left_out(flowql: Program, tmp_path: Path) -> None:
    file = tmp_path / "bills.csv"
    file.write_text(CSV + "13,c1,much,2024-02-30\n")
    topic = declaring(
        flowql, tmp_path, "CREATE STREAM bills (id INT, customer STRING KEY, amount DECIMAL(9, 2), day DATE)"
    )
    failed = topic("import", "bills", str(file))
    assert "bills.csv:14: AMOUNT" in failed.err
    assert "--on-error dead-letter" in failed.err
    done = topic("import", "bills", str(file), "--on-error", "dead-letter")
    assert "12 records of bills.csv in topic bills" in done.err
    assert "1 record that could not be read: in the table DEAD_LETTERS" in done.err
    assert "nothing new: all 12 records" in topic("import", "bills", str(file)).err


def test_a_table_without_times_is_said_to_count_from_the_beginning(flowql: Program, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text("NAME,CITY\nada,London\n")
    topic = declaring(flowql, tmp_path, "CREATE TABLE users (name STRING PRIMARY KEY, city STRING)")
    done = topic("import", "users", str(file))
    assert "USERS is a table, and no column is its time: these rows count from the beginning" in done.err
    assert json.loads(topic("consume", "users").out)["timestamp"] == 0


def test_texts_of_times_mean_what_they_mean_to_an_import(flowql: Program, tmp_path: Path) -> None:
    """`topic produce` wrote them as they were typed, and each such record was a dead letter."""
    sql = "CREATE STREAM {n} (id INT KEY, at TIMESTAMP, d DATE, v INT) WITH (VALUE_FORMAT = '{f}', KAFKA_TOPIC = '{n}', PARTITIONS = 1);"
    (tmp_path / "flowql.yaml").write_text("name: files\nsql: [sources.sql]\n")
    (tmp_path / "sources.sql").write_text(sql.format(n="a", f="JSON") + sql.format(n="b", f="DELIMITED"))
    topic = Topic(flowql, tmp_path)
    typed = '{"ID": 7, "AT": "2013-01-01T05:00:00Z", "D": "1970-01-03", "V": 1}'
    (tmp_path / "given.jsonl").write_text(typed + "\n")
    for name in ("a", "b"):
        topic("produce", name, typed, '{"key": 8, "value": {"V": 2}, "timestamp": "1970-01-01T00:00:01Z"}')
        topic("import", name, str(tmp_path / "given.jsonl"))
        found = [json.loads(line) for line in topic("consume", name).out.splitlines()]
        assert found[0]["value"] == found[2]["value"]
        assert [found[0]["value"][c] for c in ("AT", "D", "V")] == [1357016400000, 2, 1]
        assert found[1]["timestamp"] == 1000
    refused = topic("produce", "a", '{"key": 8, "value": {"V": 2}, "timestamp": "later"}')
    assert "ISO-8601 such as" in refused.err
    assert topic("consume", "none").err.count("help: flowql topic ls") == 1


WRONG_RECORDS = {
    '"timestamp": true': "the timestamp True is not a time",
    '"partition": "x"': "the partition 'x' is not a number",
    '"headers": [1]': "[1] are not headers",
    '"headers": 5': "5 are not headers",
    '"key": {"base64": 5}': "5 is not base64",
    '"key": {"base64": "!!"}': "'!!' is not base64",
}


def test_a_record_that_is_typed_wrong_is_refused(flowql: Program, tmp_path: Path) -> None:
    """Some were internal errors, and the characters that are none of base64 were passed over without a word."""
    topic = declaring(flowql, tmp_path, "CREATE STREAM s (k STRING KEY, v INT)")
    for wrong, said in WRONG_RECORDS.items():
        refused = topic("produce", "s", f'{{{wrong}, "value": {{"V": 1}}}}')
        assert "FQ5011" in refused.err
        assert said in refused.err
