"""`--without`: what is paused before it begins, how that is said, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowql.server.host import Host
from tests.flowql.cli.conftest import SQL
from tests.flowql.cli.program import Program

WAY_BACK = "CTAS_A is paused; it continues with:  flowql resume CTAS_A\n"


@pytest.fixture
def at(folder: Path) -> tuple[str, str]:
    (folder / "demo.sql").write_text(SQL + "CREATE STREAM B AS SELECT K, V FROM S;\n")
    return ("-p", str(folder))


def test_a_run_leaves_a_query_out_until_it_is_resumed(flowql: Program, at: tuple[str, str]) -> None:
    for more, read in ((["--without", "a"], "3"), ([], "0")):
        done = flowql("run", "--until-caught-up", *more, *at)
        assert (done.code, WAY_BACK in done.err) == (0, bool(more)), done
        assert done.err.splitlines()[-1].startswith(f"{read} records in"), done.err
    assert len(json.loads(flowql("query", "SELECT * FROM a", "-o", "json", *at).out or "[]")) == 0


def test_a_deployment_leaves_a_query_out_and_status_names_the_way_back(
    flowql: Program, at: tuple[str, str], host: Host
) -> None:
    done = flowql("deploy", "--without", "a", *at)
    assert (done.code, WAY_BACK in done.err) == (0, True), done
    assert [q["state"] for q in host.service.status()["queries"]] == ["paused", "running"]
    assert WAY_BACK in flowql("status", *at).err
    assert flowql("resume", "CTAS_A", *at).code == 0
    assert WAY_BACK not in flowql("status", *at).err


@pytest.mark.parametrize("verb", ["serve", "run", "deploy"])
def test_a_name_that_is_unknown_starts_nothing(flowql: Program, at: tuple[str, str], verb: str) -> None:
    refused = flowql(verb, "--without", "CTAS_AB", *at)
    assert (refused.code, "error[FQ5202]" in refused.err) == (1, True), refused
    assert verb == "serve" or "did you mean `CTAS_A`?" in refused.err
