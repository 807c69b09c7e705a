"""Frames through Spark Connect: no call of the JVM, no setting of the session. Needs the extra `connect`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.spark_here import skip_without_spark

pytestmark = pytest.mark.spark


@pytest.mark.turns("files")
def test_all_batches_of_frames_run_through_connect() -> None:
    """In a process of its own, as one either is a client of Connect or has a Spark."""
    skip_without_spark()
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="the extra `connect` is not installed")
    command = [sys.executable, "-m", "tests.spark_files", "--connect", "--seeds", "1"]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 seeds from 1 on: 0 results differ" in done.stdout
