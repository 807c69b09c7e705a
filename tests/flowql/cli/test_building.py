"""Commands that wait for generations give up those that will not be built."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.cli import building, run
from flowql.errors import CommandError

LOST = "GenerationDamaged: damaged records of BIG@2-0 are left out"


class Stopped:
    """An engine, its host and a client of it, with a generation that has stopped."""

    def __init__(self, state: str) -> None:
        self.engine, self.looks, self.blocked = self, 0, None
        built = {
            "id": "Q",
            "generation": 2,
            "state": state,
            "lag": 0,
            "records_in": 5,
            "errors": 1,
            "last_error": LOST,
            "why": LOST,
        }
        self.query: dict[str, Any] = {**built, "generation": 1, "state": "running", "building": built}

    def status(self) -> dict[str, Any]:
        return {"instance": {}, "queries": [self.query]}

    def catch_up(self) -> Any:
        return lambda: False

    def wait(self, _s: float) -> bool:
        self.looks += 1
        return self.looks > 100


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "QUIET_S", -1.0)
    monkeypatch.setattr(run, "QUIET_S", -1.0)
    monkeypatch.setattr(building, "_LOOK_S", 0.0)


def test_a_run_until_caught_up_ends_with_the_error_of_the_generation() -> None:
    """It went on without end, and said nothing."""
    host: Any = Stopped("error")
    with pytest.raises(CommandError, match="Q: GenerationDamaged") as stopped:
        run._catch_up(host, [host.query])
    assert stopped.value.code == "FQ5205"
    goes_on: Any = Stopped("running")
    run._catch_up(goes_on, [goes_on.query])
    assert goes_on.looks > 100


def test_a_deployment_ends_with_the_error_of_the_generation() -> None:
    client: Any = Stopped("error")
    with pytest.raises(CommandError, match="Q: GenerationDamaged"):
        building.await_built(client)
