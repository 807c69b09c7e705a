from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
INSERT INTO S (K, V) VALUES ('a', 1);
INSERT INTO S (K, V) VALUES ('b', 22);
INSERT INTO S (K, V) VALUES ('a', NULL);
"""


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose stream S holds three rows, counted in A."""
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(SQL)
    return tmp_path


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    """Its live instance, in this process."""
    made = Host(settings_of(load_project(folder)))
    made.start()
    made.service.deploy(plan_of(SQL))
    yield made
    made.close()
