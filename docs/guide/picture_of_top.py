"""Draws docs/guide/top.svg: `flowql top` over a critical query beside three batch queries that always have work.

python docs/guide/picture_of_top.py

The instance, its queries and all figures are real; only the number of its process is another.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from flowql.bench.isolation import BATCH, SOURCES, plan_of
from flowql.bench.nexmark_input import write_log
from flowql.cli.monitoring.screen import Screen
from flowql.cli.monitoring.table import View
from flowql.deploy.settings import Settings
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.host import Host

FILE = Path(__file__).with_name("top.svg")
WIDTH, HEIGHT, EVENTS, WATCH_S, LOOK_S = 118, 9, 1_500_000, 14.0, 2.0


def draw(folder: Path) -> str:
    """The picture after some seconds of work."""
    write_log(folder, EVENTS, ["bid"])
    log = EmbeddedLog(folder / "log")
    log.admin().create_topic("pulse", 1)
    log.close()
    host = Host(Settings(folder, "shop", 2, 512 << 20))
    host.start()
    feed = subprocess.Popen([sys.executable, "-m", "flowql.bench.isolation", "--feed", str(folder), "pulse"])
    try:
        host.service.deploy(plan_of(SOURCES.format(pulse="pulse") + BATCH))
        screen = Screen(host.service.status, View(), LOOK_S)
        until = time.monotonic() + WATCH_S
        while time.monotonic() < until:
            screen.refresh()
            time.sleep(LOOK_S)
    finally:
        feed.kill()
        feed.wait()
        host.close()
    assert screen.status is not None
    screen.status = {**screen.status, "instance": {**screen.status["instance"], "pid": 4711}}
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    console.print(screen.show(WIDTH, HEIGHT + 2))
    svg = console.export_svg(title="flowql top")
    # No fonts from the network: whoever has none of that name sees another of fixed width.
    return re.sub(r"@font-face\s*{[^}]*}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        FILE.write_text(draw(Path(name)), encoding="utf-8")
