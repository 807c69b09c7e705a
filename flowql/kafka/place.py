"""Where a project's broker is. Light: every reading of a project may ask."""

from __future__ import annotations

import json
from pathlib import Path

BROKER_DIR = ".flowql/broker"  # apart from the folders of targets, which may be deleted
STATE_FILE = "broker.json"


def last_bootstrap(directory: Path) -> str | None:
    """Where the broker of a directory listens, or listened when it last ran; None if there never was one."""
    try:
        port = json.loads((directory / STATE_FILE).read_text())["port"]
    except FileNotFoundError:
        return None
    return f"127.0.0.1:{port}"
