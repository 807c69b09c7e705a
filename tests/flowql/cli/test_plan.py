"""`flowql plan`: its exit codes and forms, what it compares, and that a deployment does what it shows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.flowql.cli.program import Program

SOURCE = "CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');\n"
BIG = "CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > 0;\n"
A = "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
ROW = "INSERT INTO S (K, V) VALUES ('a', 1);\n"


class Shop:
    def __init__(self, flowql: Program, folder: Path) -> None:
        self.flowql, self.folder = flowql, folder
        (folder / "flowql.yaml").write_text("name: demo\nsql: [demo.sql]\n")

    def write(self, *sql: str) -> None:
        (self.folder / "demo.sql").write_text("".join(sql))

    def git(self, *arguments: str) -> None:
        names = {
            f"GIT_{who}_{what}": "ada@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, env={**os.environ, **names}
        )

    def commit(self, *sql: str) -> None:
        self.write(*sql)
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-qm", "The shop")

    def plan(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.flowql("plan", "-p", str(self.folder), "--format", "json", *arguments)
        assert done.code in (0, 2), done
        return done.code, json.loads(done.out)


@pytest.fixture
def shop(flowql: Program, tmp_path: Path) -> Shop:
    (tmp_path / "shop").mkdir()
    return Shop(flowql, tmp_path / "shop")


def classes(document: dict[str, Any]) -> dict[str, str]:
    return {c["query"]: c["class"] for c in document["changes"]}


def test_exit_codes_tell_changes_from_errors(shop: Shop) -> None:
    shop.write(SOURCE, BIG)
    code, document = shop.plan()
    assert (code, classes(document), document["applied"]) == (2, {"CSAS_BIG": "added"}, False)
    shop.write(SOURCE, BIG.replace("V >", "NOPE >"))
    assert shop.flowql("plan", "-p", str(shop.folder)).code == 1
    for arguments in (["--nope"], ["--format", "xml"], ["--var", "x"], ["3"], ["-o", "csv"]):
        done = shop.flowql("plan", "-p", str(shop.folder), *arguments)
        assert (done.code, "Usage: flowql plan" in done.err) == (1, True), done
    assert shop.flowql("-o", "csv", "plan", "-p", str(shop.folder)).code == 1
    assert not (shop.folder / ".flowql").exists(), "it starts no instance"


def test_each_kind_of_change_is_shown_until_it_is_deployed(flowql: Program, host: Any, folder: Path) -> None:
    """Against the running instance. After a deployment the same plan has no changes."""
    shop = Shop(flowql, folder)
    sql = (folder / "demo.sql").read_text()

    def is_shown(text: str, **expected: Any) -> None:
        shop.write(text)
        code, document = shop.plan()
        assert code == 2
        for key, value in expected.items():
            assert document[key] == value, key
        assert flowql("deploy", "-p", str(folder)).code == 0
        assert (shop.plan()[0], shop.plan()[1]["changed"]) == (0, 0)

    wider = sql.replace("V INT", "V INT, W STRING")
    source = {"name": "S", "kind": "stream", "query": None, "change": "changed", "columns": ["+ W STRING"]}
    is_shown(wider, relations=[source], changed=1)
    more = wider + "INSERT INTO S (K, V) VALUES ('c', 3);\n"
    is_shown(more, rows_added={"s": 1}, changed=1)
    other = more.replace("COUNT(*) AS N", "COUNT(*) AS N, MAX(V) AS M")
    result = {"name": "A", "kind": "table", "query": "CTAS_A", "change": "changed", "columns": ["+ M INT"]}
    is_shown(other, relations=[result], changed=1)
    new = "CREATE TABLE T (K STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');\n"
    is_shown(other + new, relations=[{"name": "T", "kind": "table", "query": None, "change": "added", "columns": []}])


def test_versions_of_the_files_are_compared_without_an_instance(shop: Shop) -> None:
    shop.commit(SOURCE, BIG, ROW)
    assert shop.plan("--against", "HEAD")[0] == 0
    shop.write(SOURCE, BIG.replace("V > 0", "V > 1"), A, ROW)
    code, document = shop.plan("--against", "main")
    assert (code, classes(document)) == (2, {"CSAS_BIG": "rebuilt", "CTAS_A": "added"})
    shop.write(SOURCE, A, ROW)
    assert classes(shop.plan("--against", "HEAD")[1]) == {"CTAS_A": "added", "CSAS_BIG": "removed"}
    assert not (shop.folder / ".flowql").exists()


def test_a_project_that_did_not_exist_is_all_new(shop: Shop) -> None:
    shop.commit(SOURCE)
    inner = shop.folder / "inner"
    inner.mkdir()
    done = Shop(shop.flowql, inner)
    done.write(SOURCE, BIG)
    assert classes(done.plan("--against", "HEAD")[1]) == {"CSAS_BIG": "added"}


def test_files_beside_the_project_belong_to_its_version(shop: Shop) -> None:
    shop.commit(SOURCE)
    (shop.folder / "inner").mkdir()
    inner = Shop(shop.flowql, shop.folder / "inner")
    (inner.folder / "flowql.yaml").write_text(f"name: demo\nsql: [{os.pardir}/demo.sql, big.sql]\n")
    (inner.folder / "big.sql").write_text(BIG)
    shop.git("add", ".")
    shop.git("commit", "-qm", "inner")
    assert inner.plan("--against", "HEAD")[0] == 0
    shop.write(SOURCE.replace("V INT", "V BIGINT"))
    document = inner.plan("--against", "HEAD")[1]
    assert {r["name"]: r["columns"] for r in document["relations"]} == {
        name: ["V BIGINT, was INT"] for name in ("S", "BIG")
    }


def test_mistakes_at_the_other_version_are_placed_there(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    shop.commit(SOURCE, BIG.replace("V >", "NOPE >"))
    shop.write(SOURCE, BIG)
    done = shop.flowql("plan", "--against", "HEAD")
    assert (done.code, "--> HEAD:demo.sql:2:" in done.err) == (1, True), done
    for ref in ("nowhere", "--help"):
        refused = shop.flowql("plan", f"--against={ref}")
        assert (refused.code, "error[FQ5223]" in refused.err) == (1, True), refused
    assert shop.flowql("plan", "--against", "HEAD", "--rollback").code == 1


def test_outside_a_repository_there_is_nothing_to_compare_with(shop: Shop) -> None:
    shop.write(SOURCE)
    done = shop.flowql("plan", "-p", str(shop.folder), "--against", "HEAD")
    assert (done.code, "error[FQ5223]: the project is not in a Git repository" in done.err) == (1, True), done


def test_markdown_shows_text_as_it_is(shop: Shop) -> None:
    """A reason with `|` would add a column to the table."""
    shop.commit(SOURCE.replace("V INT", "V INT, C STRUCT<A INT, B INT>"), A)
    shop.write(SOURCE.replace("V INT", "V INT, C STRUCT<A INT, B STRING>, `D|E` INT"), A)
    shown = shop.flowql("plan", "-p", str(shop.folder), "--against", "HEAD", "--format", "markdown").out
    assert "| `S` | changed | C STRUCT\\<A INT, B STRING\\>, was STRUCT\\<A INT, B INT\\>; + D\\|E INT |" in shown


def test_a_terminal_shows_colors(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flowql.cli import main

    shop.write(SOURCE, BIG)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def lines() -> list[str]:
        with pytest.raises(SystemExit):
            main(["plan", "-p", str(shop.folder)])
        return capsys.readouterr().out.splitlines()

    assert lines()[1] == "\x1b[32mCSAS_BIG  added\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert lines()[1] == "CSAS_BIG  added"


def test_the_plan_of_a_rollback(flowql: Program, host: Any, folder: Path) -> None:
    shop = Shop(flowql, folder)
    shop.write((folder / "demo.sql").read_text().replace("COUNT(*)", "COUNT(V)"))
    assert flowql("deploy", "-p", str(folder)).code == 0
    assert classes(shop.plan("--rollback")[1]) == {"CTAS_A": "rebuilt"}
