"""A project whose plan a newer version of FlowQL deployed: each command says so, and none takes it for a bug."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowql.compiler.plan.topology import PLAN_FORMAT
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.runtime.app.plan_topic import read_deployed, write_deployed
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.host import Host
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of


@pytest.fixture
def upgraded(folder: Path) -> Path:
    """A stopped project. Its plan has the next format."""
    settings = settings_of(load_project(folder))
    host = Host(settings)
    host.start()
    host.service.deploy(plan_of((folder / "demo.sql").read_text()))
    host.close()
    log = EmbeddedLog(settings.log_dir)
    deployed = read_deployed(log, settings.application_id)
    assert deployed is not None
    newer = replace(deployed, serving=replace(deployed.serving, format=PLAN_FORMAT + 1))
    producer = log.producer("newer")
    producer.begin()
    producer.send(*write_deployed(newer, log.admin(), settings.application_id, 1))
    producer.commit()
    producer.close()
    log.close()
    return folder


def test_commands_name_the_newer_version(flowql: Program, upgraded: Path) -> None:
    for command in (["run", "--until-caught-up"], ["status"], ["deploy"], ["query", "SELECT * FROM A"], ["plan"]):
        said = flowql(*command, "-p", str(upgraded))
        assert said.code == 1, command
        assert "FQ4053" in said.err, (command, said.err)
        assert f"plan format {PLAN_FORMAT + 1} is newer than {PLAN_FORMAT}" in said.err, command
