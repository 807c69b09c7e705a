"""An instance with connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import flowql
from tests.flowql.api.shop import Shop, project
from tests.gateway import served_here


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    url = project(tmp_path / "shop")
    with served_here(), flowql.Instance(tmp_path / "shop") as instance:
        made = Shop(tmp_path / "shop", url, instance)
        with made.remote:
            yield made
