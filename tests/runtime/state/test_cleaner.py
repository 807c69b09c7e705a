"""The step that gives space back."""

from flowql.runtime.errors import LogCorrupt, LogFull, StateError
from flowql.runtime.state.cleaner import INTERVAL_MS, Cleaner, checkpoint_name
from tests.runtime.state.support import commit, manager_on, put, rows, table


def test_the_cleaner_drops_what_no_plan_uses_at_the_second_look(tmp_path):
    manager = manager_on()
    put(manager, manager.open_task("q", 0, [table(), table("U")]), "T", rows(1))
    commit(manager)
    for n in (1, 2, 10):
        (tmp_path / checkpoint_name(n)).mkdir()
    cleaner = Cleaner(manager, lambda: {"U"}, checkpoints=tmp_path)
    cleaner.run_once(0)
    cleaner.run_once(INTERVAL_MS)
    assert {s.name for s in manager.stores()} == {"T", "U"}, "an open task uses it"
    manager.close_task("q")
    cleaner.run_once(2 * INTERVAL_MS)
    assert {s.name for s in manager.stores()} == {"T", "U"}
    assert cleaner.run_once(2 * INTERVAL_MS + 1) == INTERVAL_MS - 1
    cleaner.run_once(3 * INTERVAL_MS)
    commit(manager)
    with manager.snapshot() as snapshot:
        assert [s.name for s in snapshot.stores()] == ["U"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [checkpoint_name(2), checkpoint_name(10)]


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
    cleaner = Cleaner(manager, lambda: None, upkeep=upkeep)
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
