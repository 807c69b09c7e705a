"""Dockerfile and compose.yaml, as far as they can be tried without Docker: what they say, and their commands as processes of this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flowql.kafka.jars import KAFKA_VERSION
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.turns("long")

TEXT = (ROOT / "Dockerfile").read_text("utf-8")
LINES = [line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", TEXT).splitlines() if line and line[0] != "#"]
IMAGE = dict(LINES[[n for n, line in enumerate(LINES) if line[0] == "FROM"][-1] :])  # the last of each instruction
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))


def words(instruction: str) -> list[str]:
    """The words of an instruction in exec form. A shell would keep signals for itself."""
    found: list[str] = json.loads(IMAGE[instruction][IMAGE[instruction].index("[") :])
    return found


def here(command: list[str]) -> list[str]:
    assert command[0] == "flowql"
    return [sys.executable, "-m", *command]


def test_the_image_has_a_user_without_rights() -> None:
    assert IMAGE["USER"] == "flowql"
    assert "useradd --uid 1000" in IMAGE["RUN"]
    assert "--owner=flowql" in IMAGE["RUN"].partition(IMAGE["VOLUME"])[0], "it may write to its volume"
    names = [name for name, _ in LINES]
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in ("RUN", "COPY"))


def test_the_image_is_built_from_files_that_are_sent() -> None:
    sent = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    copied = {word for name, rest in LINES if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]}
    assert copied == sent
    assert all((ROOT / name).exists() for name in sent)
    pinned = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert pinned is not None
    assert {rest.split()[0] for name, rest in LINES if name == "FROM"} == {f"python:{pinned[1]}-slim"}


def test_the_command_answers_the_health_check_and_ends_on_the_signal(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "flowql", "init", "."], cwd=tmp_path, check=True, capture_output=True)
    command = here([*words("ENTRYPOINT"), *words("CMD")])
    instance = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert instance.stderr is not None
        assert "2 queries" in instance.stderr.readline()
        healthy = subprocess.run(here(words("HEALTHCHECK")), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert healthy.returncode == 0, healthy.stderr
        assert "running" in healthy.stdout
        instance.send_signal(getattr(signal, IMAGE["STOPSIGNAL"]))
        assert instance.wait(60) == 0
    finally:
        instance.kill()
        instance.wait()


def test_compose_runs_the_kafka_that_flowql_pins() -> None:
    kafka = COMPOSE["services"]["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert kafka["environment"]["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert kafka["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@localhost:9093", (
        "the image formats only with voters"
    )
    assert COMPOSE["services"]["flowql"]["depends_on"] == ["kafka"]


def test_the_volumes_of_compose_are_those_of_the_images() -> None:
    services = COMPOSE["services"]
    mounts = [mount.split(":") for service in services.values() for mount in service["volumes"]]
    assert {source for source, _ in mounts if not source.startswith(".")} == set(COMPOSE["volumes"])
    assert {IMAGE["WORKDIR"], IMAGE["VOLUME"]} <= {place for _, place in mounts}
    assert services["kafka"]["environment"]["KAFKA_LOG_DIRS"] in {place for _, place in mounts}


@pytest.mark.kafka
def test_the_project_of_the_page_meets_the_broker_of_compose(kafka: str, tmp_path: Path) -> None:
    """With the settings of the page, and the address of a broker that runs here."""
    page = (ROOT / "docs/guide/containers.md").read_text("utf-8")
    target = re.search(r"^targets:\n.*?^default_target: kafka\n", page, re.MULTILINE | re.DOTALL)
    assert target is not None
    address = COMPOSE["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].removeprefix("PLAINTEXT://")
    assert address in target[0]
    subprocess.run(
        [sys.executable, "-m", "flowql", "init", ".", "--template", "kafka"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    project = tmp_path / "flowql.yaml"
    text = project.read_text("utf-8")
    project.write_text(text[: text.index("targets:")] + target[0].replace(address, kafka))
    command = here([*words("ENTRYPOINT"), *words("CMD"), "--until-caught-up"])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
