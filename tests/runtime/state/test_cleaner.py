"""The step that gives space back."""

from flowql.runtime.errors import LogCorrupt, LogFull, StateError
from flowql.runtime.state.cleaner import INTERVAL_MS, Cleaner
from tests.runtime.state.support import manager_on


def test_upkeep_that_fails_is_said_once_and_tried_again_and_the_log_does_not_wait_for_the_state(caplog, monkeypatch):
    """It was passed over without a word: a damaged file of a compacted topic, and its disk filled up."""
    manager, rounds = manager_on(), []
    troubles = iter([LogFull("no space"), LogFull("no space"), LogCorrupt("damaged"), None, LogCorrupt("damaged")])

    def upkeep():
        rounds.append(error := next(troubles))
        if error is not None:
            raise error

    def compact(**_):
        raise StateError("the state is opened again")

    monkeypatch.setattr(manager, "compact", compact)
    cleaner = Cleaner(manager, upkeep=upkeep)
    with caplog.at_level("WARNING"):
        for n in range(5):
            assert cleaner.run_once(n * INTERVAL_MS) == INTERVAL_MS
    assert len(rounds) == 5
    assert [r.message.rpartition(": ")[2] for r in caplog.records] == [
        "the state is opened again",
        "no space",
        "damaged",
        "damaged",
    ]
