"""Five kills of a real process (`python -m tests.crash --rounds 50`: fifty)."""

import random
import subprocess

import pytest

from flowql.deploy.engine import open_instance
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import InstanceRunning
from tests.crash.kills import Shape, command, disturbed, prepare, undisturbed


@pytest.mark.turns("load")
@pytest.mark.crash
def test_kill_9_changes_no_result(tmp_path):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    for name in ("undisturbed", "disturbed"):
        (tmp_path / name).mkdir()
    expected = undisturbed(tmp_path / "undisturbed", Shape(1000, 0, 0, seed))
    report = disturbed(tmp_path / "disturbed", Shape(1000, 6.0, 5, seed, moments=seed), expected)
    assert not report.differences, f"seed {seed}: {report.differences}"
    assert report.kills == 5
    assert report.commits > 1  # how many there is time for says nothing


@pytest.mark.crash
def test_a_second_instance_is_told_which_process_has_the_directory(tmp_path):
    prepare(tmp_path)
    child = subprocess.Popen(command(tmp_path, Shape(0, 0, 0, 1)), stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(InstanceRunning, match=f"process {child.pid} runs flowql"):
            open_instance(tmp_path / "log", tmp_path / "state", InstanceConfig())
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    open_instance(tmp_path / "log", tmp_path / "state", InstanceConfig()).close()
