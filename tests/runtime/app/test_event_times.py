"""Times of records that no operator can use are dead letters, one each; everything else is as without them."""

import pytest

from flowql.cli.status import far_ahead
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.progress import query_status
from flowql.runtime.clock import VirtualClock
from tests.runtime.app.harness import InstanceHarness

LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
YEAR_2150, YEAR_2300 = 5_680_281_600_000, 10_413_792_000_000
DAY_MS = 86_400_000
BY_RECORD = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1{more});
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM U (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='u', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE BESIDE AS SELECT K, SUM(V) AS N FROM U WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY K EMIT CHANGES;
"""
BY_COLUMN = BY_RECORD.replace(
    "V BIGINT) WITH (KAFKA_TOPIC='s'", "V BIGINT, AT {type}) WITH (TIMESTAMP='AT', KAFKA_TOPIC='s'"
)
QUERIES = {
    "tumbling": "CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY K EMIT CHANGES;",
    "hopping": "CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND) "
    "GROUP BY K EMIT CHANGES;",
    "session": "CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S WINDOW SESSION (1 SECOND) GROUP BY K EMIT CHANGES;",
    "final": "CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) "
    "GROUP BY K EMIT FINAL;",
    "final session": "CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S WINDOW SESSION (1 SECOND, GRACE PERIOD 0 SECONDS) "
    "GROUP BY K EMIT FINAL;",
    "left join": "CREATE STREAM R AS SELECT S.K AS K, S.V AS V, T.V AS W FROM S LEFT JOIN T WITHIN 2 SECONDS "
    "GRACE PERIOD 0 SECONDS ON S.K = T.K EMIT CHANGES;",
    "join": "CREATE STREAM R AS SELECT S.K AS K, S.V AS V, T.V AS W FROM S JOIN T WITHIN 2 SECONDS ON S.K = T.K EMIT CHANGES;",
    "rekeyed": "CREATE TABLE R AS SELECT V, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY V EMIT CHANGES;",
    "copy": "CREATE STREAM R AS SELECT K, V + 1 AS V FROM S EMIT CHANGES;",
}
GOOD = [(n % 3, n, 1_000 + 700 * n) for n in range(12)]


def results(world):
    return {topic: [r[2:] for r in world.records(topic)] for topic in ("R", "BESIDE")}


def live(sql, rows, *, vector=None, value=lambda v, at: {"V": v}, stamp=lambda at: at):
    world = InstanceHarness(sql, vector=vector, clock=VirtualClock(YEAR_2150))
    for k, v, at in rows:
        world.send("s", [(k, value(v, at), stamp(at))])
        if at not in (LONG_MAX, LONG_MIN):
            world.send("t", [(k, {"V": v}, at)])
            world.send("u", [(k, {"V": v}, at)])
        world.driver.round()
    world.settle()
    return world


@pytest.mark.turns("cases")
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("bad", [LONG_MAX, LONG_MIN])
@pytest.mark.parametrize("query", QUERIES)
def test_the_time_of_a_record_that_cannot_be_used_makes_one_dead_letter(query, bad, vector):
    """One record with 9223372036854775807 in a windowed aggregate stopped every query for ever; a left join failed without a letter."""
    sql = BY_RECORD.format(more="") + QUERIES[query]
    expected = live(sql, GOOD, vector=vector)
    world = live(sql, [*GOOD[:6], (1, 7, bad), *GOOD[6:]], vector=vector)
    assert results(world) == results(expected)
    assert not world.instance.commit.blocked
    name = "CSAS_R" if "STREAM R" in QUERIES[query] else "CTAS_R"
    (letter,) = world.dead_letters(name)
    assert (letter["CODE"], letter["TOPIC"], letter["OFFSET"], letter["VALUE"]) == ("FQ4023", "s", 6, b'{"V":7}')
    assert letter["MESSAGE"] == f"the time of the record cannot be used: {bad} is not from 1900-01-01 to 2200-01-01"


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("query", ["tumbling", "left join", "copy"])
@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP"])
def test_so_does_that_of_its_timestamp_column(query, kind, vector):
    sql = BY_COLUMN.format(more="", type=kind) + QUERIES[query]
    how = {"vector": vector, "value": lambda v, at: {"V": v, "AT": at}, "stamp": lambda at: 0}
    expected = live(sql, GOOD, **how)
    world = live(sql, [*GOOD[:6], (1, 7, LONG_MAX), (1, 7, LONG_MIN), *GOOD[6:]], **how)
    assert results(world) == results(expected)
    letters = world.dead_letters("CSAS_R" if "STREAM R" in QUERIES[query] else "CTAS_R")
    assert [x["OFFSET"] for x in letters] == [6, 7]
    assert letters[0]["MESSAGE"].startswith("timestamp column AT cannot be used: 9223372036854775807 is not from")


def test_so_does_that_of_a_text():
    """A year that java.time takes and no clock ever shows."""
    sql = BY_COLUMN.format(more=", TIMESTAMP_FORMAT='yyyyyyyyy-MM-dd'", type="STRING") + QUERIES["tumbling"]
    for vector in (False, True):
        world = live(
            sql, [(1, 1, 0), (1, 2, 1)], vector=vector, value=lambda v, at: {"V": v, "AT": f"00000{at}001-01-01"}
        )
        assert len(world.dead_letters("CTAS_R")) == 2


def test_times_before_1970_are_times():
    at = -2_208_988_800_000
    for query in ("tumbling", "hopping", "session", "left join"):
        world = live(BY_RECORD.format(more="") + QUERIES[query], [(1, 5, at), (1, 6, at + 900), (1, 7, at - 1)])
        letters = world.dead_letters("CSAS_R" if "join" in query else "CTAS_R")
        assert {x["OFFSET"] for x in letters} == {2}
        assert world.values("R")[-1] == ({"V": 6, "W": 6} if "join" in query else {"N": 11}), query


@pytest.mark.parametrize("vector", [False, True])
def test_a_source_may_have_a_wider_range_and_so_have_its_results(vector):
    chain = "CREATE STREAM R2 AS SELECT K, V FROM R EMIT CHANGES;"
    world = live(BY_RECORD.format(more=", LATEST_TIME='2400-01-01', EARLIEST_TIME='1600-01-01'") + QUERIES["copy"] + chain,
                 [(1, 1, YEAR_2300), (1, 2, -YEAR_2300), (1, 3, LONG_MAX)], vector=vector)  # fmt: skip
    assert [r[4] for r in world.records("R2")] == [YEAR_2300, -YEAR_2300]
    (letter,) = world.dead_letters("CSAS_R")
    assert letter["MESSAGE"].endswith("is not from 1600-01-01 to 2400-01-01")
    assert world.dead_letters("CSAS_R2") == []


@pytest.mark.parametrize("vector", [False, True])
def test_what_is_too_far_ahead_of_the_clock_is_a_dead_letter_where_the_source_says_so(vector):
    world = live(
        BY_RECORD.format(more=", MAX_AHEAD='1 DAY'") + QUERIES["tumbling"],
        [(1, 1, YEAR_2150), (1, 2, YEAR_2150 + DAY_MS), (1, 3, YEAR_2150 + 2 * DAY_MS)],
        vector=vector,
    )
    (letter,) = world.dead_letters("CTAS_R")
    assert letter["OFFSET"] == 2
    assert letter["MESSAGE"].endswith("2150-01-03 is 172800 s ahead of the clock (MAX_AHEAD is 86400 s)")


@pytest.mark.parametrize(
    "option", ["MAX_AHEAD='soon'", "LATEST_TIME='never'", "EARLIEST_TIME='2300-01-01'", "MAX_AHEAD=0"]
)
def test_options_that_mean_nothing_are_refused(option):
    compiled = compile_project([SourceText("test.sql", BY_RECORD.format(more=f", {option}"))])
    assert [d.code for d in compiled.diagnostics] == ["FQ2011"]


def test_a_dead_letter_of_such_a_record_can_be_read():
    from flowql.compiler.plan.topology import scan_of
    from flowql.query.committed import dead_letter_source
    from flowql.runtime.log.base import EARLIEST, TopicPartition
    from flowql.runtime.operators.base import MicroBatchContext
    from flowql.runtime.operators.decode import Decoder

    world = live(BY_RECORD.format(more="") + QUERIES["copy"], [(1, 1, LONG_MAX)])
    source = dead_letter_source("flowql")
    raw = world.log.reader(TopicPartition(source.topic, 0), EARLIEST).read(10, 1 << 20)
    run = MicroBatchContext(state=None)
    assert len(Decoder(scan_of(source), source.schema).decode(raw, run)) == 1
    assert run.dead_letters == []


def test_status_says_where_stream_time_is_ahead_of_the_clock():
    """A day in 2150 is inside the range; it makes later rows of its partition late, and nothing told so."""
    sql = BY_RECORD.format(more="").replace("PARTITIONS=1", "PARTITIONS=2") + QUERIES["tumbling"]
    world = InstanceHarness(sql, clock=VirtualClock(DAY_MS))
    world.send("s", [(n, {"V": n}, DAY_MS) for n in range(8)])
    world.settle()
    assert query_status(world.instance, "CTAS_R")["ahead"] == []
    world.send("s", [(1, {"V": 7}, YEAR_2150)])
    world.settle()
    (ahead,) = query_status(world.instance, "CTAS_R")["ahead"]
    assert ahead["partition"] == world.partition("s", 1)
    assert (ahead["stream_time"], ahead["ahead_ms"]) == (YEAR_2150, YEAR_2150 - world.clock.wall_ms())
    assert far_ahead(ahead).startswith(f"stream time of partition {ahead['partition']} is 1,577,")
    rows = [(n, {"V": n}, 2 * DAY_MS) for n in range(8)]
    world.send("s", rows)
    world.settle()
    late = query_status(world.instance, "CTAS_R")["late_records"]
    assert late == sum(world.partition("s", n) == ahead["partition"] for n in range(8))
    assert query_status(world.instance, "CTAS_BESIDE")["ahead"] == []


@pytest.mark.parametrize("vector", [False, True])
def test_a_negative_number_in_a_column_is_no_time_unless_the_source_says_so(vector):
    """As in ksqlDB, where -1 means that none is known."""
    rows, how = [(1, 5, -1), (1, 6, 1)], {"vector": vector, "value": lambda v, at: {"V": v, "AT": at}}
    for more, letters in (("", [0]), (", EARLIEST_TIME='1900-01-01'", [])):
        world = live(BY_COLUMN.format(more=more, type="BIGINT") + QUERIES["copy"], rows, stamp=lambda at: 0, **how)
        assert [x["OFFSET"] for x in world.dead_letters("CSAS_R")] == letters
        assert len(world.values("R")) == 2 - len(letters)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_no_window_holds_a_part_of_its_rows(vector, begins):
    """None reaches over 1970, as none starts before it in ksqlDB; unless the source says that its times begin earlier."""
    more = ", EARLIEST_TIME='1900-01-01'" if begins else ""
    times = range(-7_500, 7_500, 500)
    world = live(BY_RECORD.format(more=more) + QUERIES["hopping"], [(1, 1, at) for at in times], vector=vector)
    whole = {start: len([at for at in times if start <= at < start + 3_000]) for start in range(-9_000, 8_000, 1_000)}
    over = {-2_000, -1_000}
    expected = [(1, start, start + 3_000, n) for start, n in whole.items() if begins or start not in over]
    found = world.table("R")
    assert [row for row in found if row[1] >= -7_000] == [row for row in expected if row[1] >= -7_000 and row[3]]


def test_late_rows_of_a_join_of_streams_are_counted():
    """Nobody saw that they met nothing. Of each partition with where its stream time stood."""
    join = "CREATE STREAM R AS SELECT S.K AS K, S.V AS V, T.V AS W FROM S JOIN T WITHIN 1 SECOND GRACE PERIOD 1 SECOND ON S.K = T.K EMIT CHANGES;"
    world = InstanceHarness(BY_RECORD.format(more="") + join)
    for topic, at in (("s", 100_000), ("t", 100_000), ("s", 90_000), ("t", 99_500), ("t", 90_000)):
        world.send(topic, [(1, {"V": at}, at)])
        world.settle()
    status = query_status(world.instance, "CSAS_R")
    assert len(world.values("R")) == 2
    assert status["late_records"] == 2
    (late,) = status["late"]
    assert (late["partition"], late["rows"], late["behind_ms"], late["stream_time"]) == (0, 2, 10_000, 100_000)
    assert "join" in late["operator"]
