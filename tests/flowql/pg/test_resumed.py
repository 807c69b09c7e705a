"""Subscriptions that continue at a token, begin and end at a tick, or show rows with an envelope."""

from __future__ import annotations

import base64
import json
from collections import Counter
from contextlib import closing
from itertools import count, islice
from random import Random

import pytest

from flowql.config.load import read_project
from flowql.deploy.settings import settings_of
from flowql.pg.reading import Reading
from flowql.pg.subscribe_statement import Subscribe
from flowql.pg.subscribing import LiveRows
from flowql.query.errors import QueryError
from flowql.runtime.clock import SystemClock
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, Failed, Wire, bind, execute, parse, rows_of, tags

Row = tuple[str | None, ...]
ENVELOPES = ("", "ENVELOPE UPSERT", "ENVELOPE DEBEZIUM (KEY (id))")
HEAD = 3  # columns before those of the envelope, with PROGRESS
WAIT = "WITH (TIMEOUT = '20s')"


def fetched(w: Wire, sql: str, *, resume: str = "", progress: bool = True) -> list[Row]:
    """The rows that a new subscription sends at once."""
    options = ["PROGRESS"] * progress + [f"RESUME = '{resume}'"] * bool(resume)
    w.ask("ROLLBACK")
    rows_of(w.ask(f"BEGIN; DECLARE c CURSOR FOR {sql}" + f" WITH ({', '.join(options)})" * bool(options)))
    try:
        return w.rows("FETCH ALL c")
    finally:
        w.ask("ROLLBACK")


def token(rows: list[Row]) -> str:
    """The token of the last row that tells how far changes are complete."""
    found = [r[2] for r in rows if r[1] == "t"][-1]
    assert found is not None
    return found


def folded(rows: list[Row], into: Counter[Row], envelope: str) -> None:
    """Applies changes as a client does, and checks what they say of the rows before."""
    for row in (r[HEAD:] for r in rows if r[1] == "f"):
        if not envelope:
            into[row[1:]] += int(row[0] or 0)
            continue
        state, key, *values = row
        was = [r for r in into if r[0] == key and into[r]]
        if "DEBEZIUM" in envelope:
            before, values = tuple(values[: len(values) // 2]), values[len(values) // 2 :]
            assert (state == "insert") == (not was), row
            assert state == "insert" or was == [(key, *before)], row
        for r in was:
            del into[r]
        if state != "delete":
            into[(key, *values)] = 1


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_changes_of_resumed_subscriptions_add_up_to_the_rows(shop: Shop, envelope: str) -> None:
    rng, rows, at = Random(11), Counter[Row](), ""
    with shop.wire() as w, shop.wire() as other:
        for _ in range(10):
            ids = rng.sample(range(9_000, 9_010), 3)
            if rng.randrange(3):
                given = ", ".join(f"({i}, 'n{rng.randrange(9)}')" for i in ids)
                other.ask(f"INSERT INTO notes VALUES {given} ON CONFLICT (id) DO UPDATE SET note = excluded.note")
            else:
                other.ask(f"DELETE FROM notes WHERE id IN ({ids[0]}, {ids[1]})")
            told = fetched(w, f"SUBSCRIBE notes {envelope}", resume=at)
            assert told[0][1:HEAD] == ("t", at or None)
            folded(told, rows, envelope)
            at = token(told)
            assert sorted(r for r in rows if rows[r]) == sorted(other.rows("SELECT * FROM notes"))
            assert set(rows.values()) <= {0, 1}
        other.ask("DELETE FROM notes WHERE id >= 9000")


def test_envelopes_of_a_view(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        told = fetched(w, "SUBSCRIBE spent ENVELOPE UPSERT", progress=False)
        assert sorted(r[1:] for r in told) == [("upsert", "ada", "2", "11.75"), ("upsert", "bob", "1", "20.00")]
        w.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE spent ENVELOPE DEBEZIUM (KEY (customer)) WITH (SNAPSHOT = false)")
        other.ask("INSERT INTO orders VALUES (6100, 'ada', 1)")
        assert [r[1:] for r in w.rows(f"FETCH ALL c {WAIT}")] == [("upsert", "ada", "2", "11.75", "3", "12.75")]
        other.ask("DELETE FROM orders WHERE id = 6100")
        assert [r[1:] for r in w.rows(f"FETCH ALL c {WAIT}")] == [("upsert", "ada", "3", "12.75", "2", "11.75")]
        other.ask("INSERT INTO orders VALUES (6101, 'eve', 1)")
        assert [r[1:] for r in w.rows(f"FETCH ALL c {WAIT}")] == [("insert", "eve", None, None, "1", "1.00")]
        other.ask("DELETE FROM orders WHERE id = 6101")
        assert [r[1:] for r in w.rows(f"FETCH ALL c {WAIT}")] == [("delete", "eve", "1", "1.00", None, None)]
        w.ask("COMMIT")


def compact(shop: Shop, topic: str) -> None:
    """Removes all records of a topic that newer ones replace."""
    with closing(EmbeddedLog(shop.folder / "data" / "log")) as log:
        before = log.admin().topics()[topic].config
        wanted = {"segment.bytes": "1", "min.cleanable.dirty.ratio": "0"}
        log.admin().alter_topic(topic, wanted)
        try:
            with shop.wire() as w:
                w.ask("INSERT INTO notes VALUES (9900, 'x'); DELETE FROM notes WHERE id = 9900")
            log.maintain(SystemClock().wall_ms())
        finally:
            log.admin().alter_topic(topic, {n: before.get(n) for n in wanted})


def test_what_was_compacted_away_is_an_error_and_never_a_gap(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        other.ask("INSERT INTO notes VALUES (9100, 'a'), (9101, 'b')")
        rows = Counter[Row]()
        told = fetched(w, "SUBSCRIBE notes ENVELOPE UPSERT")
        folded(told, rows, "ENVELOPE UPSERT")
        at = token(told)
        other.ask("UPDATE notes SET note = 'c' WHERE id = 9100; DELETE FROM notes WHERE id = 9101")
        assert ("-1", "9101", "b") in [r[HEAD:] for r in fetched(w, "SUBSCRIBE notes", resume=at)]
        compact(shop, "notes")
        for envelope in ("", "ENVELOPE DEBEZIUM"):
            with pytest.raises(Failed, match="compaction has removed records") as failed:
                fetched(w, f"SUBSCRIBE notes {envelope}", resume=at)
            assert failed.value.state == "55000"
        folded(fetched(w, "SUBSCRIBE notes ENVELOPE UPSERT", resume=at), rows, "ENVELOPE UPSERT")
        assert sorted(rows) == sorted(other.rows("SELECT * FROM notes"))
        assert ("9100", "c") in rows
        late = json.loads(base64.urlsafe_b64decode(at + "=" * (-len(at) % 4)))
        late[3][2] -= 3_600_001
        old = base64.urlsafe_b64encode(json.dumps(late).encode()).decode()
        with pytest.raises(Failed, match="deletions are kept for an hour") as failed:
            fetched(w, "SUBSCRIBE notes ENVELOPE UPSERT", resume=old)
        assert failed.value.state == "55000"
        other.ask("DELETE FROM notes WHERE id >= 9000")


def test_a_token_is_of_one_relation(shop: Shop) -> None:
    with shop.wire() as w:
        at = token(fetched(w, "SUBSCRIBE notes"))
        for name, given, state in (("spent", at, "55000"), ("notes", "nonsense", "22023"), ("notes", "", "22023")):
            with pytest.raises(Failed, match=state):
                rows_of(w.ask(f"COPY (SUBSCRIBE {name} WITH (RESUME = '{given}')) TO STDOUT"))


def test_from_a_tick_to_a_tick(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        now = int(fetched(w, "SUBSCRIBE spent")[0][0] or 0)
        assert fetched(w, f"SUBSCRIBE spent UP TO {now}", progress=False) == []
        assert len(fetched(w, "SUBSCRIBE spent AS OF AT LEAST 0", progress=False)) == 2
        for clauses, state in (
            ("AS OF 0", "55000"),
            (f"UP TO {now - 1}", "22023"),
            ("AS OF 7 UP TO 6", "22023"),
            ("AS OF now()", "22023"),
            ("AS OF " + "9" * 6_000, "22023"),  # more digits than Python converts
            ("AS OF " + "CAST(" * 3_000, "42601"),
            ("AS OF 1 WITH (RESUME = 'x')", "22023"),
            ("WITH (SNAPSHOT = maybe)", "22023"),
            ("WITHIN TIMESTAMP ORDER BY total", "0A000"),
            ("ENVELOPE UPSERT (KEY (total))", "0A000"),
            ("ENVELOPE UPSERT (KEY (nope))", "42703"),
            ("ENVELOPE NONE", "42601"),
            ("UP TO 7 UP TO 8", "42601"),
            ("AS OF", "42601"),
        ):
            with pytest.raises(Failed, match=state):
                rows_of(w.ask(f"COPY (SUBSCRIBE spent {clauses}) TO STDOUT"))
        w.ask(f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE spent AS OF {now + 1}")
        assert w.rows("FETCH ALL c") == []
        with shop.wire() as ending:
            ending.send((b"Q", f"COPY (SUBSCRIBE TO spent UP TO {now + 1}) TO STDOUT\0".encode()))
            other.ask("INSERT INTO orders VALUES (6200, 'zoe', 1)")
            assert tags(ending.until_ready()) == ["COPY 2"]
            assert ending.rows("SELECT 1") == [("1",)]
        found = w.rows(f"FETCH ALL c {WAIT}")
        assert ("1", "zoe", "1", "1.00") in [r[1:] for r in found]
        assert all(int(r[0] or 0) > now for r in found)
        w.ask("COMMIT")
        other.ask("DELETE FROM orders WHERE id = 6200")
        while other.rows("SELECT * FROM spent WHERE customer = 'zoe'"):
            pass


def test_a_token_is_a_parameter(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        at = token(fetched(w, "SUBSCRIBE notes"))
        other.ask("INSERT INTO notes VALUES (9300, 'a')")
        w.send(parse("SUBSCRIBE notes WITH (RESUME = $1) UP TO $2"), bind(at.encode(), str(1 << 40).encode()), execute(1), SYNC)  # fmt: skip
        assert [r[1:] for r in rows_of(w.until_ready())] == [("1", "9300", "a")]
        w.ask("BEGIN")
        w.send(parse("DECLARE c CURSOR FOR SUBSCRIBE notes WITH (RESUME = $1)"), bind(at.encode()), execute(), SYNC)
        assert tags(w.until_ready()) == ["DECLARE CURSOR"]
        assert [r[1:] for r in w.rows("FETCH ALL c")] == [("1", "9300", "a")]
        w.ask("COMMIT")
        other.ask("DELETE FROM notes WHERE id = 9300")


def test_a_rebuild_ends_subscriptions_and_their_tokens(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as running:
        told = fetched(w, "SUBSCRIBE spent")
        running.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE spent")
        assert len(running.rows("FETCH ALL c")) == 2
        shop.instance.connection.deploy(full_refresh=("spent",))
        with pytest.raises(Failed, match="rebuilt") as failed:
            running.rows(f"FETCH ALL c {WAIT}")
        assert failed.value.state == "55000"
        with pytest.raises(Failed, match="cannot continue: the token is of another") as failed:
            fetched(w, "SUBSCRIBE spent", resume=token(told))
        assert failed.value.state == "55000"
        assert Counter(r[HEAD:] for r in fetched(w, "SUBSCRIBE spent")) == Counter(r[HEAD:] for r in told)


def test_fetch_all_ends_while_commits_go_on(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look after a commit has something to tell, and FETCH ALL looked until one had nothing."""
    with closing(Reading(settings_of(read_project(shop.folder)))) as reading:
        changes, asked = reading.subscribe(Subscribe("spent", progress=True)), count(1 << 40)
        changes.begin()
        monkeypatch.setattr(type(reading._log), "last_sequence", lambda *_: next(asked) // 2)
        rows = LiveRows(changes, ())
        for expected in (4, 1, 1):
            assert sum(b.num_rows for b in islice(rows.taken(None), 9)) == expected


def test_a_look_is_between_two_commits_or_none(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look while commits came all the time had the number of an earlier commit, and a row of a later one."""
    reading = Reading(settings_of(read_project(shop.folder)))
    with closing(reading):
        changes = reading.subscribe(Subscribe("spent"))
        changes.begin()
        log, numbers = type(reading._log), iter(range(1, 1 << 30))
        with monkeypatch.context() as patch:
            patch.setattr(log, "last_sequence", lambda *_: next(numbers))
            patch.setattr("flowql.pg.reading.SETTLE_S", 0.05)
            assert changes.poll() == []
            with pytest.raises(QueryError, match="commits come faster"):
                reading.subscribe(Subscribe("spent")).begin()
        assert sum(b.num_rows for b in changes.poll()) == 2
