"""`flowql dev`: what changed, and the loop of a person who saves files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.cli import dev
from flowql.cli.dev import Results
from flowql.config.load import load_project
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.topics.codecs import KeyWriter, ValueWriter
from flowql.topics.records import parse_record
from tests.flowql.cli.terminal import Terminal
from tests.flowql.query.harness import QueryHarness, plan_of
from tests.flowql.topics.writing import write_records

SOURCES = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T (K STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
COPY = "CREATE STREAM COPY AS SELECT * FROM S;\n"
LARGE = "CREATE TABLE LARGE AS SELECT K, V FROM T WHERE V > 5;\n"


class Watched:
    """A world and the news of its results."""

    def __init__(self) -> None:
        self.world = QueryHarness(SOURCES + COPY + LARGE)
        self.results = Results(self.world.log)
        self.results.follow(self.world.instance.plan)
        self.results.learn()

    def news(self, rows_max: int = 10) -> list[str]:
        self.world.driver.run_until_caught_up()
        found = list(self.results.news(rows_max))
        assert not found, "rows that have just come may not be all"
        for result in self.results._of.values():
            result.came_s -= 60.0
        return list(self.results.news(rows_max))


def test_rows_of_a_stream_and_rows_of_a_table() -> None:
    watched = Watched()
    watched.world.send("s", [("a", {"V": 1}, 1), ("b", {"V": None}, 2)])
    watched.world.send("t", [("x", {"V": 7}, 1), ("y", {"V": 8}, 2), ("z", {"V": 1}, 2)])
    assert watched.news() == [
        "COPY: 2 rows", "  K     V", "  a     1", "  b  NULL",
        "LARGE: 2 rows", "       K  V", "  new  x  7", "  new  y  8",
    ]  # fmt: skip
    watched.world.send("t", [("x", {"V": 9}, 3), ("y", {"V": 0}, 3), ("w", {"V": 6}, 4), ("w", None, 5)])
    assert watched.news() == ["LARGE: 2 rows", "           K  V", "  changed  x  9", "  gone     y"]
    assert watched.news() == []


def test_what_was_there_before_and_rows_that_stay_are_no_news() -> None:
    world = QueryHarness(SOURCES + LARGE)
    world.feed("t", [("x", {"V": 7}, 1), ("y", {"V": 8}, 1)])
    results = Results(world.log)
    results.follow(world.instance.plan)
    results.learn()
    watched = Watched.__new__(Watched)
    watched.world, watched.results = world, results
    assert watched.news() == []
    # Another query makes the table now: everything is computed anew, and of that one row is another.
    world.instance.deploy(plan_of(SOURCES + LARGE.replace("V > 5", "V > 7")))
    results.follow(world.instance.plan)
    world.send("t", [("z", {"V": 99}, 2)])
    # The serving query adds a row before the other one takes over.
    assert watched.news() == ["LARGE: 2 rows", "        K   V", "  new   z  99", "  gone  x"]
    world.instance.deploy(plan_of(SOURCES + LARGE.replace("K, V", "K, V * 2 AS V")))
    results.follow(world.instance.plan)
    assert [line.split() for line in watched.news()[2:]] == [
        ["new", "x", "14"],
        ["changed", "y", "16"],
        ["changed", "z", "198"],
    ]


def test_of_many_rows_the_last_are_shown() -> None:
    watched = Watched()
    watched.world.send("s", [("a", {"V": n}, n) for n in range(100)])
    assert watched.news(rows_max=2) == ["COPY: 100 rows, the last 2 of them", "  K   V", "  a  98", "  a  99"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: ['*.sql', 'more/*.sql']\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "sources.sql").write_text(SOURCES + "INSERT INTO S (K, V) VALUES ('a', 1);\n")
    (tmp_path / "copy.sql").write_text(COPY)
    (tmp_path / "more" / "counts.sql").write_text("CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n")
    return tmp_path


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    made = Terminal(project, "dev")
    yield made
    made.child.close(force=True)


def test_what_is_saved_before_the_watch_begins_is_seen(tmp_path: Path) -> None:
    """While the project was deployed for the first time a save was lost."""
    for name in ("a.sql", "b.sql", "gone.sql", "notes.txt"):
        (tmp_path / name).write_text("1")
    known = dev._files(tmp_path)
    (tmp_path / "more").mkdir()
    for name in ("b.sql", "more/c.yaml", "notes.txt"):
        (tmp_path / name).write_text("22")
    (tmp_path / "gone.sql").unlink()
    assert next(dev._saves(tmp_path, known)) == {tmp_path / n for n in ("b.sql", "gone.sql", "more/c.yaml")}


def test_a_person_who_saves_files(terminal: Terminal, project: Path) -> None:
    terminal.awaits("watching; save a file")
    terminal.awaits("  new  a  1\r\n")
    counts = project / "more" / "counts.sql"
    good = counts.read_text()
    counts.write_text(good.replace("SELECT K", "SELECT KK"))
    terminal.awaits("saved more/counts.sql")
    terminal.awaits("more/counts.sql:1:31")
    terminal.awaits("                              ^^")
    terminal.awaits("the last good version continues")
    log = EmbeddedLog(load_project(project).target.log_dir)
    record = parse_record('b:{"V": 2}', KeyWriter(None), ValueWriter(None), 1)
    write_records(log, "s", 1, [record], "a person")
    log.close()
    terminal.awaits("  new  b  1\r\n")  # the last good version continues
    counts.write_text(good.replace("COUNT(*)", "COUNT(*) + 10"))
    terminal.child.expect(r"CSAS_COPY +unchanged +kept")
    terminal.child.expect(r"CTAS_COUNTS +rebuilt +rebuilt")
    terminal.child.expect(r"changed +a +11\r\n")
    (project / "added.sql").write_text("CREATE STREAM ADDED AS SELECT K, V FROM S WHERE V = 2;\n")
    terminal.child.expect(r"CSAS_ADDED +add")
    terminal.awaits("ADDED: 1 row\r\n")
    terminal.child.sendintr()
    assert terminal.ends() == 0
