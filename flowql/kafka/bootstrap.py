"""The address of a project's broker. Imports little, as every reading of a project may call it."""

from __future__ import annotations

import json
from pathlib import Path

BROKER_DIR = ".flowql/broker"  # apart from the folders of targets, which may be deleted
STATE_FILE = "broker.json"


def last_bootstrap(directory: Path) -> str | None:
    """The address of the broker of a directory, also while it is stopped; None if it was never started."""
    try:
        port = json.loads((directory / STATE_FILE).read_text())["port"]
    except FileNotFoundError:
        return None
    return f"127.0.0.1:{port}"
