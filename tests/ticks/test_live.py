"""The same with threads, files and kill -9."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

LOOKS = 8


@pytest.mark.turns("processes")
def test_no_look_shows_a_part_of_a_transaction_before_and_after_kills(tmp_path: Path) -> None:
    for _ in range(3):
        bank = subprocess.Popen(
            [sys.executable, "-m", "tests.ticks.live", str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert bank.stdout is not None
        looks = [next(bank.stdout).split() for _ in range(LOOKS)]
        bank.send_signal(signal.SIGKILL)
        bank.wait()
        bank.stdout.close()
        assert all(credits == debits and balance == total == "0" for credits, debits, balance, total in looks), looks
        assert len({credits for credits, *_ in looks}) == LOOKS, "it goes on"
