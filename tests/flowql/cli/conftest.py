from __future__ import annotations

import pytest

from tests.flowql.cli.program import Program


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)
