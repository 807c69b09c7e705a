"""Whether a query may go on from what is on disk, and how far it is. No Spark: checkpoints are made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flowql.compiler.plan.topology import QueryPlan
from flowql.query.spark import SparkCommit
from flowql.runtime.errors import OutsideRecords, StateError, TopicMissing
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicDescription, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.checkpoint_state import Pinned, SparkSnapshot, apart, pin, sequence_of
from flowql.runtime.spark.engine.checkpoints import (
    NONE,
    Progress,
    check_fits,
    check_partitions,
    lag,
    positions_after,
    progress_of,
)
from flowql.runtime.spark.engine.deployed import FILE, Deployed, Form, How, Record, checkpoint_of, load
from flowql.runtime.spark.engine.deployment import check, decide_rebuild, prepare
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.status import Rates, stopped_status
from flowql.runtime.spark.errors import CheckpointLost, CheckpointOfOtherQuery, ResultsOfBatch
from flowql.runtime.spark.log_append import CommittedEpochs, EmittedRecords, Target, append
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.state.store import Snapshot
from tests.crash.contents import records_of
from tests.relations import table_of
from tests.runtime.spark.test_engine_order import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 1;
CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
CREATE TABLE ALONE AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
INSERT INTO S (K, V) VALUES ('a', 5);
"""


ONE = pa.RecordBatch.from_pylist(
    [{"timestamp": 1, "key": b"k", "value": b"{}", "headers": None}], schema=PRODUCE_SCHEMA
)


def batches(folder: Path, planned: int, committed: int) -> Path:
    """A checkpoint with batches 0 to `planned` planned and to `committed` done."""
    for name, last in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir(parents=True)
        for n in range(last + 1):
            (folder / name / str(n)).write_text(f'v1\n{{}}\n{{"s": {{"0": {10 * (n + 1)}}}}}\n')
            (folder / name / f".{n}.crc").touch()
    return folder


@pytest.fixture
def query() -> QueryPlan:
    return plan_of(SQL).queries[0]


@pytest.fixture
def record(query: QueryPlan) -> Record:
    return Record(query.definition, "run 1", "stream")


@pytest.mark.parametrize(
    ("planned", "committed", "logged", "fits"),
    [
        (-1, -1, None, True),  # it never ran
        (0, -1, None, True),  # killed in its first batch
        (0, -1, 0, True),  # killed between the log's commit and Spark's
        (4, 4, 4, True),
        (5, 4, 4, True),  # killed in a batch
        (5, 4, 5, True),
        (-1, -1, 4, False),  # deleted
        (3, 3, 7, False),  # an old copy
        (5, 5, 3, False),  # an old copy of the log
        (5, 5, None, False),  # a new log
        (3, 3, 4, False),  # offsets of the batch in the log are gone
    ],
)
def test_checkpoint_and_log_must_be_at_one_place(
    tmp_path: Path, query: QueryPlan, record: Record, planned: int, committed: int, logged: int | None, fits: bool
) -> None:
    checkpoint = batches(tmp_path / "c", planned, committed)
    in_log = None if logged is None else CommittedEpochs("run 1", logged + 1)
    if fits:
        check_fits(query, record, in_log, checkpoint)
        return
    with pytest.raises(CheckpointLost, match="--rebuild"):
        check_fits(query, record, in_log, checkpoint)


def test_what_else_stands_against_going_on(tmp_path: Path, query: QueryPlan, record: Record) -> None:
    checkpoint = batches(tmp_path / "c", 1, 1)
    committed = CommittedEpochs("run 1", 2)
    with pytest.raises(CheckpointOfOtherQuery, match=f"{query.id} has changed since its checkpoint was made"):
        check_fits(replace(query, definition="another"), record, committed, checkpoint)
    with pytest.raises(ResultsOfBatch, match="as a batch"):
        check_fits(query, replace(record, form="batch"), committed, checkpoint)
    with pytest.raises(CheckpointLost, match="its checkpoint is gone"):
        check_fits(query, None, committed, tmp_path / "nowhere")
    check_fits(query, None, None, tmp_path / "nowhere")


def test_positions(tmp_path: Path) -> None:
    checkpoint = batches(tmp_path / "c", 2, 1)
    (checkpoint / "offsets" / "2").write_text(
        'v1\n{}\n{"s": {"0": 7, "1": 9}, "t": {"0": 1}}\n{"s": {"0": 5, "1": 9}}\n-'
    )
    assert progress_of(checkpoint) == Progress(2, 1)
    assert positions_after(checkpoint, 2) == {"s": {"0": 5, "1": 9}, "t": {"0": 1}}
    assert positions_after(checkpoint, 9) == {}
    first, after = {"s": {"0": 2, "1": 0}, "t": {"0": 0}}, {"s": {"0": 12, "1": 10}, "t": {"0": 4}}
    assert lag(positions_after(checkpoint, 2), first, after) == 7 + 1 + 3
    assert lag({}, first, after) == 10 + 10 + 4


# -- deployments


def test_partitions_that_a_topic_has_got_need_a_rebuild(tmp_path: Path, query: QueryPlan) -> None:
    """Spark tried such a stream again and again, and what it said to do did not help."""
    checkpoint = batches(tmp_path, 1, 0)
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"s": {"0": 3, "1": 4}}')
    for fitting in ({}, {"other": TopicDescription("", 9)}, {"s": TopicDescription("id", 2)}):
        check_partitions(query, checkpoint, fitting)
    with pytest.raises(CheckpointOfOtherQuery, match=f"s has 3 partitions, and had 2 when {query.id} began") as refused:
        check_partitions(query, checkpoint, {"s": TopicDescription("id", 3)})
    assert "--rebuild" in str(refused.value.help)
    check_partitions(query, tmp_path / "none", {"s": TopicDescription("id", 3)})


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    log = EmbeddedLog(tmp_path / "log")
    yield Site(tmp_path / "log", tmp_path / "state", log, "app", SparkSettings())
    log.close()


def deployed(site: Site, sql: str = SQL, *, form: Form = "stream", rebuild: tuple[str, ...] = ()) -> Deployed:
    plan = plan_of(sql)
    return prepare(
        site, load(site.state_dir), plan, {q.id: "exact" for q in plan.queries}, form=form, rebuild=rebuild, now_ms=1
    )


def ran(site: Site, state: Deployed, query: str, topic: str, epochs: int = 1) -> None:
    """As if batches of a query had gone through, each with one record."""
    for epoch in range(epochs):
        target = site.target(query, state.records[query].run)
        piece = EmittedRecords("sink", topic, 0, 0, 0, ONE)
        append(site.log, target, epoch, [piece], [{"records_in": 2, "late": {"x": 1}}], {TopicPartition("s", 0): 1})
    batches(site.checkpoint(query), epochs - 1, epochs - 1)


def held(site: Site, topic: str) -> int:
    tp = TopicPartition(topic, 0)
    return site.log.end_offset(tp) - site.log.begin_offset(tp)


def values(site: Site, topic: str) -> list[bytes | None]:
    return [r["value"] for _, r in records_of(site.log, topic)]


def decided(site: Site, sql: str, *, asked: bool = False) -> frozenset[str]:
    plan, before = plan_of(sql), load(site.state_dir)
    return decide_rebuild(site, before, plan, {q.id: "exact" for q in plan.queries}, "stream", asked=asked)


def test_a_deployment_comes_back_from_its_file(site: Site) -> None:
    state = deployed(site)
    assert load(site.state_dir) == state
    assert {r.form for r in state.records.values()} == {"stream"}
    assert len({r.run for r in state.records.values()}) == 3
    assert load(site.state_dir / "elsewhere") == Deployed()
    (site.state_dir / FILE).write_text("{")
    with pytest.raises(StateError, match=r"plan\.json is damaged"):
        load(site.state_dir)
    (site.state_dir / FILE).write_text(json.dumps({"format": 99}))
    with pytest.raises(StateError, match="another FlowQL"):
        load(site.state_dir)


def test_rows_of_insert_values_are_written_once(site: Site) -> None:
    for _ in range(2):
        deployed(site)
        assert held(site, "s") == 1
    row = "INSERT INTO S (K, V) VALUES ('b', 6);\n"
    deployed(site, SQL + row)
    assert held(site, "s") == 2
    deployed(site, SQL + row + row)
    assert held(site, "s") == 3, "an equal row is a row of its own"


def test_a_missing_topic_is_named_before_anything_is_written(site: Site) -> None:
    with pytest.raises(TopicMissing, match="s "):
        deployed(site, SQL.replace("PARTITIONS=1, ", ""))
    assert not (site.state_dir / FILE).exists()


def test_a_query_that_is_built_anew_takes_with_it_who_reads_it(site: Site) -> None:
    before = deployed(site)
    for query, topic in (("CSAS_A", "A"), ("CTAS_N", "N"), ("CTAS_ALONE", "ALONE")):
        ran(site, before, query, topic)
    after = deployed(site, rebuild=("CSAS_A",))
    assert [values(site, t) for t in ("A", "N", "ALONE")] == [[], [None], [b"{}"]], "a follower of N sees the key go"
    same = {q for q in before.records if before.records[q] == after.records[q]}
    assert same == {"CTAS_ALONE"}
    assert site.epochs_of_record("CSAS_A", after.records["CSAS_A"]) is None
    assert not site.checkpoint("CSAS_A").exists()
    assert site.checkpoint("CTAS_ALONE").exists()
    assert check(site, after, after.plan, "stream") == {}


def test_what_does_not_fit_is_found_before_it_runs(site: Site) -> None:
    state = deployed(site)
    ran(site, state, "CSAS_A", "A")
    changed = plan_of(SQL.replace("V > 1", "V > 2"))
    found = check(site, state, changed, "stream")
    assert {q: type(f) for q, f in found.items()} == {"CSAS_A": CheckpointOfOtherQuery}
    assert {q: type(f) for q, f in check(site, state, state.plan, "batch").items()} == {"CSAS_A": ResultsOfBatch}
    assert {q: type(f) for q, f in check(site, Deployed(), state.plan, "stream").items()} == {"CSAS_A": CheckpointLost}


def test_another_number_of_hash_buckets_needs_a_rebuild(site: Site) -> None:
    """Keys of the checkpoint would be looked for where they are not."""
    wanted = replace(site, settings=SparkSettings(hash_buckets={"N": 4}))
    state = deployed(wanted)
    assert {q: r.buckets for q, r in load(site.state_dir).records.items()} == {
        "CSAS_A": 0,
        "CTAS_N": 4,
        "CTAS_ALONE": 0,
    }
    assert {p.query.id: p.buckets for p in pin(site, state)} == {"CSAS_A": 0, "CTAS_N": 4, "CTAS_ALONE": 0}
    ran(site, state, "CTAS_N", "N")
    assert check(wanted, state, state.plan, "stream") == {}
    more = replace(site, settings=SparkSettings(hash_buckets={"CTAS_N": 8}))
    for other, text in ((site, "one task per partition of its topics"), (more, "8 hash buckets")):
        found = check(other, state, state.plan, "stream")
        assert {q: type(f) for q, f in found.items()} == {"CTAS_N": CheckpointOfOtherQuery}
        assert f"in 4 hash buckets, and is to keep it in {text}" in str(found["CTAS_N"])
        assert "hash_buckets: {CTAS_N: 4}" in found["CTAS_N"].help
        with pytest.raises(CheckpointOfOtherQuery, match="4 hash buckets"):
            decided(other, SQL)
    assert decided(more, SQL, asked=True) == {"CTAS_N"}
    assert deployed(more, rebuild=("CTAS_N",)).records["CTAS_N"].buckets == 8


def test_before_its_first_batch_a_stream_keeps_no_rows(site: Site) -> None:
    def unread(at: Pinned) -> Snapshot:
        raise AssertionError(f"{at.query.id} has no checkpoint to read")

    state = deployed(site)
    ran(site, state, "CSAS_A", "A")
    pinned = pin(site, state)
    assert {p.query.id: p.batch for p in pinned} == {"CSAS_A": 0, "CTAS_N": NONE, "CTAS_ALONE": NONE}
    snapshot = SparkSnapshot(pinned, sequence_of(site, state), unread)
    (store,) = [s.name for s in snapshot.stores() if s.name.startswith("CTAS_ALONE")]
    assert (list(snapshot.scan(store)), snapshot.get(store, ("a",))) == ([], None)
    asked = SparkCommit(state.plan, snapshot, site.log, site.application_id)
    assert table_of(asked.relations()[store]()).num_rows == 0
    batch = deployed(site, form="batch")
    left_out = SparkCommit(
        batch.plan, SparkSnapshot(pin(site, batch), 0, unread), site.log, site.application_id
    ).relations()
    assert (store in left_out, "ALONE" in left_out) == (False, True)


def test_queries_that_share_input_say_how_far_each_is(site: Site) -> None:
    state = deployed(site)
    ran(site, state, "CSAS_A", "A")
    both = {"CSAS_A", "CTAS_ALONE"}
    said = "of s-0 CSAS_A has read up to offset 1, CTAS_ALONE has read up to offset 0"
    assert apart(site, state, both) == said
    assert apart(site, state, {"CSAS_A", "CTAS_N"}) == "", "they share no topic"
    ran(site, state, "CTAS_ALONE", "ALONE")
    assert apart(site, state, both) == ""


def test_a_query_that_was_removed_may_come_back(site: Site) -> None:
    ran(site, deployed(site), "CTAS_ALONE", "ALONE")
    without = deployed(site, SQL.replace("CREATE TABLE ALONE AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n", ""))
    assert "CTAS_ALONE" not in without.records
    assert not site.checkpoint("CTAS_ALONE").exists()
    assert check(site, without, plan_of(SQL), "stream") == {}
    assert values(site, "ALONE") == [b"{}"], "its results stay"
    with pytest.raises(CheckpointOfOtherQuery, match="CTAS_ALONE cannot go on: ALONE holds records of an earlier"):
        decided(site, SQL)
    renamed = SQL.replace("TABLE ALONE", "TABLE SINGLE WITH (KAFKA_TOPIC='ALONE')")
    with pytest.raises(CheckpointOfOtherQuery, match="CTAS_SINGLE cannot go on: ALONE holds records of an earlier"):
        decided(site, renamed)
    deployed(site, SQL, rebuild=tuple(decided(site, SQL, asked=True)))
    assert values(site, "ALONE") == [None]


def test_all_that_would_begin_anew_are_named_with_why(site: Site) -> None:
    state = deployed(site)
    for query, topic in (("CSAS_A", "A"), ("CTAS_N", "N"), ("CTAS_ALONE", "ALONE")):
        ran(site, state, query, topic)
    with pytest.raises(CheckpointOfOtherQuery) as refused:
        decided(site, SQL.replace("V > 1", "V > 2"))
    said = str(refused.value)
    assert "CSAS_A: CSAS_A has changed since its checkpoint was made" in said
    assert "CTAS_N: it reads results of CSAS_A" in said
    assert "--rebuild" in said
    assert "CTAS_ALONE" not in said
    with pytest.raises(CheckpointOfOtherQuery, match="CSAS_A cannot go on: INSERT_A_1 writes to A, too"):
        decided(site, SQL + "INSERT INTO A SELECT * FROM S WHERE V < 0;\n")
    assert decided(site, SQL) == frozenset()
    assert decided(site, SQL.replace("V > 1", "V > 2"), asked=True) == {"CSAS_A", "CTAS_N"}


def test_a_crash_while_results_are_replaced_leaves_no_checkpoint_that_fits(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = deployed(site)
    for query, topic in (("CSAS_A", "A"), ("CTAS_N", "N")):
        ran(site, state, query, topic)
    with monkeypatch.context() as patch:
        patch.setattr("flowql.runtime.spark.engine.deployment.remove", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            deployed(site, SQL.replace("V > 1", "V > 2"), rebuild=("CSAS_A",))
    assert load(site.state_dir) == state
    assert {q: type(f) for q, f in check(site, state, state.plan, "stream").items()} == {
        "CSAS_A": CheckpointLost,
        "CTAS_N": CheckpointLost,
    }
    after = deployed(site, rebuild=tuple(decided(site, SQL, asked=True)))
    assert check(site, after, after.plan, "stream") == {}


def test_rows_of_insert_values_in_a_result_are_written_once_more_with_it(site: Site) -> None:
    sql = SQL + "INSERT INTO A (K, V) VALUES ('own', 9);\n"
    ran(site, deployed(site, sql), "CSAS_A", "A")
    assert len(values(site, "A")) == 2
    deployed(site, sql, rebuild=("CSAS_A",))
    assert values(site, "A") == [b'{"V":9}']
    assert len(values(site, "s")) == 1
    ran(site, deployed(site, sql, form="batch"), "CSAS_A", "A")
    assert deployed(site, sql, form="batch").records["CSAS_A"].replaces == {}
    assert values(site, "A") == [b'{"V":9}']


def test_batches_take_the_place_of_batches(site: Site) -> None:
    first = deployed(site, form="batch")
    ran(site, first, "CSAS_A", "A")
    assert check(site, first, first.plan, "batch") == {}
    second = deployed(site, form="batch")
    assert held(site, "A") == 1, "earlier results stay until there are others"
    assert {q: r.replaces for q, r in second.records.items()} == {
        "CSAS_A": {"A": {"0": 1}},
        "CTAS_N": {},
        "CTAS_ALONE": {},
    }
    assert load(site.state_dir) == second
    assert second.records["CSAS_A"].run != first.records["CSAS_A"].run
    assert second.records["CSAS_A"].form == "batch"


def test_results_of_a_paused_query_are_input_of_a_batch_until_it_changes(site: Site) -> None:
    first = deployed(site, form="batch")
    ran(site, first, "CSAS_A", "A")
    how: dict[str, How] = {q.id: "exact" for q in first.plan.queries}
    paused = replace(first.plan, paused=("CSAS_A",))
    after = prepare(site, first, paused, how, form="batch", rebuild=(), now_ms=1)
    assert (after.records["CSAS_A"].replaces, held(site, "A")) == ({}, 1)
    prepare(site, after, paused, how, form="batch", rebuild=("CSAS_A",), now_ms=1)
    assert held(site, "A") == 0, "readers would mix the old text with the new"


def test_results_among_records_from_outside_are_not_taken_out(site: Site) -> None:
    sql = SQL.replace(
        "CREATE TABLE ALONE",
        "CREATE STREAM T (K STRING KEY, V INT) WITH (KAFKA_TOPIC='t', PARTITIONS=1, VALUE_FORMAT='JSON');\nINSERT INTO T SELECT * FROM S;\nCREATE TABLE ALONE",
    )
    state = deployed(site, sql)
    (query,) = (q.id for q in state.plan.queries if q.sink == "T")
    ran(site, state, query, "t")
    deployed(site, sql, rebuild=(query,))
    assert held(site, "t") == 0, "they were its results alone"
    ran(site, load(site.state_dir), query, "t")
    append(site.log, Target("other", "r", "elsewhere"), 0, [EmittedRecords("sink", "t", 0, 0, 0, ONE)], [])
    with pytest.raises(OutsideRecords, match=f"t holds records from outside of elsewhere-spark-other .* {query}"):
        deployed(site, sql, rebuild=(query,))
    assert held(site, "t") == 2


def test_the_status_of_what_does_not_run(site: Site) -> None:
    state = deployed(site)
    ran(site, state, "CSAS_A", "A", epochs=3)
    query = state.plan.queries[0]
    found = stopped_status(site, query, state.records[query.id])
    assert {k: found[k] for k in ("state", "engine", "batch", "records_in", "records_out", "late_records", "lag")} == {
        "state": "stopped", "engine": "spark", "batch": 2, "records_in": 6, "records_out": 3, "late_records": 3, "lag": 0,
    }  # fmt: skip
    new = stopped_status(site, state.plan.queries[2], state.records["CTAS_ALONE"])
    assert (new["batch"], new["records_in"], new["lag"]) == (None, 0, 1)


def test_ids_become_folders(tmp_path: Path) -> None:
    assert checkpoint_of(tmp_path, "a/b").parent == tmp_path / "queries"


def test_rates() -> None:
    rates = Rates()
    assert rates.of("q") == 0.0
    for now, records in ((0, 0), (1000, 50), (2000, 100)):
        rates.add("q", records, now)
    assert rates.of("q") == 50.0
    rates.add("q", 10, 3000)  # it began anew
    assert rates.of("q") == 0.0
