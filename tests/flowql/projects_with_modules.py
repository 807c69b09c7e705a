"""Projects with Python modules of their own, and instances that run them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flowql
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
from tests.registries import forget_projects


def made(folder: Path, yaml: str, sql: str, **modules: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "flowql.yaml").write_text(yaml)
    (folder / "shop.sql").write_text(sql)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    return folder


@contextmanager
def running(folder: Path) -> Iterator[flowql.Connection]:
    with flowql.Instance(folder) as instance:
        yield instance.connection


@contextmanager
def resumed(folder: Path) -> Iterator[flowql.Connection]:
    """What was deployed goes on, as in a new process, which has loaded nothing before."""
    forget_projects()
    host = Host(settings_of(load_project(folder)))
    host.start()
    try:
        yield flowql.connect(folder)
    finally:
        host.close()


def until(found: Callable[[], Any], expected: Any) -> None:
    limit = time.monotonic() + 60
    while (last := found()) != expected:
        assert time.monotonic() < limit, last
        time.sleep(0.05)


def state_of(instance: flowql.Connection, query: str) -> dict[str, Any]:
    return next(q for q in instance.status()["queries"] if q["id"] == query)
