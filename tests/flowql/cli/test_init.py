"""What `flowql init` makes works: every template compiles, and what its README says to type does what it should."""

import re
import shlex

import pytest

from tests.flowql.cli.conftest import flowql

__all__ = ["flowql"]

TEMPLATES = ["quickstart", "ksqldb", "blank", "kafka", "spark"]


def steps(folder):
    """The commands a README says to type, without the program's name."""
    text = re.search(r"```\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    return [shlex.split(line)[1:] for line in text.splitlines()]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_a_project_without_mistakes(flowql, tmp_path, template):
    folder = tmp_path / "my shop"
    made = flowql("init", str(folder), "--template", template)
    assert made.code == 0, made.err
    for path in re.search(r"shop: (.*)", made.out)[1].split(", "):
        text = (folder / path).read_text()
        assert "__NAME__" not in text
        assert f"`{path}`" in (folder / "README.md").read_text() or path in ("README.md", ".gitignore")
    for step in steps(folder):
        assert f"flowql {shlex.join(step)}" in made.out.replace('"', "'")
    assert "name: my_shop" in (folder / "flowql.yaml").read_text()
    checked = flowql("validate", "-p", str(folder))
    assert checked.code == 0, checked.err
    again = flowql("init", str(folder), "--template", template)
    assert again.code == 1
    assert "nothing was written" in again.err


@pytest.mark.parametrize("template", ["quickstart", "ksqldb"])
def test_what_the_quickstart_says_to_type_works(flowql, tmp_path, monkeypatch, template):
    assert flowql("init", str(tmp_path / "shop"), "--template", template).code == 0
    monkeypatch.chdir(tmp_path / "shop")
    said = []
    for step in steps(tmp_path / "shop"):
        done = flowql(*step)
        assert done.code == 0, (step, done.err)
        said.append(done.out)
    assert "2 passed, 0 failed" in said[1]
    assert re.search(r"ada\s.*\s2\s+160\.00?\s*$", said[4], re.MULTILINE)
    assert "desk" in said[5]
    assert "chair" in said[5]
    assert "lamp" not in said[5], "two large orders"


@pytest.mark.kafka
@pytest.mark.turns("kafka")
def test_what_the_kafka_template_says_to_type_works(flowql, kafka, tmp_path, monkeypatch):
    assert flowql("init", str(tmp_path / "shop"), "--template", "kafka").code == 0
    monkeypatch.chdir(tmp_path / "shop")
    said = {}
    try:
        for step in steps(tmp_path / "shop"):
            done = flowql(*step, *(["--port", "0"] if step[1:] == ["up"] else []))
            assert done.code == 0, (step, done.err)
            said[step[0]] = done.out
    finally:
        flowql("kafka", "down")
    assert "target kafka: kafka: no broker is named" in said["doctor"], "it comes before there is one"
    assert re.search(r"ada\s.*\s2\s+160\.00\s*$", said["query"], re.MULTILINE)
