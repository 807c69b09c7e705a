"""Projects with processors: their own tests pass, and a deployed instance raises the alarm of the sensors project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flowql
from tests.flowql.projects_with_modules import until
from tests.registries import forget_projects

pytestmark = pytest.mark.turns("long")

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"


@pytest.mark.parametrize("project", ["clicks", "fraud", "parcels", "sensors", "wordcount"])
def test_the_tests_of_the_project_pass(project: str) -> None:
    command = [sys.executable, "-m", "flowql", "test", "-p", str(PIPELINES / project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_deployed_instance_raises_and_ends_alarms(tmp_path: Path) -> None:
    folder = tmp_path / "sensors"
    shutil.copytree(PIPELINES / "sensors", folder, ignore=shutil.ignore_patterns(".flowql"))
    readings = [
        {"sensor": s, "celsius": 20.0, "at": at} for s, at in (("attic", 1_000), ("barn", 2_000), ("attic", 41_000))
    ]
    with flowql.Instance(folder) as instance:
        shop = instance.connection
        shop.produce("READINGS", readings)
        until(lambda: list(shop.sql("SELECT SENSOR, LAST_SEEN FROM SILENT")), [{"SENSOR": "barn", "LAST_SEEN": 2_000}])
        shop.produce("READINGS", [{"sensor": "barn", "celsius": 19.0, "at": 50_000}])
        until(lambda: list(shop.sql("SELECT * FROM SILENT")), [])
    forget_projects()
