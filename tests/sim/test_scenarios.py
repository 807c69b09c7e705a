"""Named stories on the simulated cluster: bugs that the simulation found here, and themes of those of Kafka Streams."""

from collections import Counter
from functools import partial

import pytest

from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.scheduler import executor
from flowql.runtime.state.changelog import changelog_topic
from tests.sim import project
from tests.sim.checks import APP, judge
from tests.sim.cluster import PURGE_MS, SILENT_MS, SimulatedCluster
from tests.sim.faults import CALM
from tests.sim.groups import Violation

REPARTITION = f"{APP}-CTAS_ITEMS-aggregate-1-repartition"


@pytest.fixture
def world():
    return SimulatedCluster(1, CALM, orders=20)


def running(world):
    """One process with all tasks."""
    first = world.begin()
    world.run_until(lambda: len(tasks(first)) == 10)
    return first


def feed(world, *numbers):
    for n in numbers or range(len(world.input)):
        world.feed(n)
    world.run_for(300)


def hidden(world, tp):
    """What comes to a partition from now on, behind an open transaction, until the answer is called."""
    epoch = world.broker.init("another")
    world.broker.write("another", epoch, tp, world.input[0][0][1])
    return lambda: world.broker.end("another", epoch, commit=False)


def ends_well(world):
    world.settle()
    assert judge(world) == []


def tasks(process):
    return sorted(str(t) for t in process.group._tasks)


def open_state(process):
    """Tasks whose state is open; every instance also has that of its local repartitions."""
    return sorted(t for t in process.instance.state.open_tasks() if "/" in t)


def failing(process, what, *, step=None, times=1, after=0):
    """Calls of one kind fail, some of them."""
    left = [after, times]
    world = process.link.world

    def broken(called):
        if called != what or (step is not None and (not world.stack or world.stack[-1][1] != step)):
            return
        if left[0] > 0:
            left[0] -= 1
        elif left[1] > 0:
            left[1] -= 1
            raise LogUnavailable(f"brokers are away: {what}")

    process.link.broken = broken


# Found by the simulation


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Scenarios count on moments: threads that have nothing to do look as often as those that have."""
    monkeypatch.setattr(executor, "QUIET_MS_MAX", executor.IDLE_MS)


def test_a_plan_that_is_read_as_brokers_go_away_is_not_lost(world):
    """The second read, which finds the end, failed: the plan of the first one was never applied."""
    running(world)
    second = world.start()
    failing(second, "read", step="reconciler", after=1)
    world.run_until(lambda: second.instance.queries)
    feed(world)
    ends_well(world)


@pytest.mark.parametrize("nth", range(0, 16, 3))
def test_tasks_half_made_as_brokers_go_away_are_made_again(world, nth):
    """They stayed open in the state manager, and nobody could make them again."""
    running(world)
    feed(world)
    second = world.start()
    failing(second, "begin offset" if nth else "topics", step="reconciler", after=nth)
    world.run_until(lambda: tasks(second))
    ends_well(world)


@pytest.mark.parametrize("wiped", [False, True])
def test_what_is_deleted_of_a_repartition_is_not_what_its_next_owner_begins_with(world, wiped):
    """Positions of the group move over markers, records of tasks do not: those in between were deleted, and the query stopped."""
    first = running(world)
    feed(world, 0, 1)
    epoch = world.broker.init("a process that died")
    for p in range(2):
        place = TopicPartition(REPARTITION, p)
        world.broker.write("a process that died", epoch, place, world.input[0][0][1])
    world.broker.end("a process that died", epoch, commit=False)
    world.run_for(3 * PURGE_MS)
    assert any(p.start > 0 for tp, p in world.broker.partitions.items() if tp.topic == REPARTITION)
    world.kill(first, wiped=wiped)
    world.start(first.name)
    feed(world)
    ends_well(world)


def test_a_zombie_that_finds_its_records_deleted_goes_on_when_it_is_a_member_again(world):
    """Others had processed and deleted them: it took the query for broken, and never ran it again."""
    zombie = running(world)
    feed(world, 0)
    world.freeze(zombie, SILENT_MS + 2_500)
    second = world.start()
    world.run_until(lambda: len(tasks(second)) == 10)
    feed(world)
    world.run_until(lambda: zombie.frozen_ms < world.now)
    world.run_for(500)
    ends_well(world)
    assert not zombie.instance.query_states.having(STOPPED)


def test_a_zombie_commits_nothing_of_what_others_have(world):
    """It was frozen within its commit; its session has ended when it goes on."""
    zombie = running(world)
    feed(world, 0, 1)
    second = world.start()
    frozen = []

    def broken(what):
        if what == "positions" and not frozen:
            frozen.append(True)
            world.interlude(zombie, SILENT_MS + 500, freeze=True)

    zombie.link.broken = broken
    feed(world)
    assert frozen
    world.run_until(lambda: len(tasks(zombie)) == len(tasks(second)) == 5)
    ends_well(world)


def test_a_restore_reads_what_comes_to_be_seen_while_it_looks(world):
    """An answer without records was older than the look at the end that took them for markers: rows were missing, and for good."""
    changelog = TopicPartition(changelog_topic(APP, "CTAS_TOTALS-aggregate-1"), 1)
    first = running(world)
    feed(world, 0)
    show = hidden(world, changelog)
    feed(world, 1)
    world.kill(first)
    second = world.start()

    def answered():
        restoring = second.instance.restoration._tasks.get("CTAS_TOTALS/0_1")
        chunks = [c.chunk for c in restoring.cursors if c.tp == changelog] if restoring else [None]
        return chunks[0] is not None and chunks[0].done() and not chunks[0].result()

    world.run_until(answered)
    show()
    feed(world)
    ends_well(world)


def test_state_that_a_lost_member_wanted_to_drop_is_not_dropped_later(world):
    """The commit with the drop was lost with the membership, the drop was not: it deleted what others had made meanwhile."""
    first = running(world)
    feed(world, 0)
    world.cut_off(first, 20_000)
    second, frozen = world.start(), []
    world.run_until(lambda: {"CTAS_TOTALS/0_0", "CTAS_TOTALS/0_1"} <= set(tasks(second)))

    def broken(what):
        epoch = second.instance.state._in_flight
        if what == "positions" and not frozen and epoch is not None and epoch.drops.tasks:
            frozen.append(sorted(epoch.drops.tasks))
            world.start()
            world.interlude(second, SILENT_MS + 1_000, freeze=True)

    second.link.broken = broken
    world.later = world.watch.rereads = True
    world.deploy(second, project.later_plan())
    feed(world)
    world.run_until(lambda: frozen and second.frozen_ms < world.now and tasks(second))
    assert frozen == [["CTAS_TOTALS/0_0", "CTAS_TOTALS/0_1"]]
    ends_well(world)


def test_a_commit_right_after_a_loss_moves_no_position_of_what_was_lost(world):
    """Tasks that were lost were still looked at by a cut, whose positions then went out with the proof of the new membership."""
    lost = running(world)
    feed(world, 0)
    start_over = lost.instance.commit.start_over

    def then_commit():
        done = start_over()
        done.add_done_callback(lambda _: lost.instance.commit.request())  # somebody deploys
        return done

    lost.instance.commit.start_over = then_commit
    world.start()
    world.freeze(lost, SILENT_MS + 300)
    world.run_for(SILENT_MS + 500)
    feed(world)
    ends_well(world)


# Themes of the bugs of Kafka Streams


def test_a_query_refused_in_the_cut_its_tasks_leave_with_moves_no_position(world):
    """The tasks were no more the query's when it was sent back to the last commit: their positions were committed without results."""
    first = running(world)
    world.refusing["items"] = world.now + 10_000
    for n in range(3):
        world.feed(n)
    world.run_until(lambda: all(world.outside.end_offset(TopicPartition(REPARTITION, p)) for p in range(2)))
    world.stall(first, "commit", 600)
    world.start()
    world.run_until(lambda: "items" in first.instance.query_states.of("CTAS_ITEMS").reason)
    assert len(first.instance.queries["CTAS_ITEMS"].built.tasks) == 2  # of 4
    world.run_until(lambda: len(tasks(first)) < 10)  # the rest of the cut is committed
    assert world.broker.group(APP).positions[TopicPartition(REPARTITION, 1)].offset == 0
    ends_well(world)


def test_partitions_that_come_while_a_query_is_refused_wait_for_it(world):
    """Its tasks there were not made, so nothing held their positions back, and they went back when it was restarted."""
    first, second = running(world), world.start()
    world.run_until(lambda: len(tasks(second)) == 5)
    world.refusing["totals"] = world.now + 10_000
    feed(world)
    world.run_until(lambda: second.instance.query_states.of("CTAS_TOTALS").state is SUSPENDED)
    world.kill(first)
    world.run_until(lambda: len(tasks(second)) == 8)
    world.run_for(300)
    assert world.broker.group(APP).positions[TopicPartition("orders", 0)].offset == 0
    ends_well(world)


def test_two_rebalances_before_the_first_is_looked_at_make_no_task_twice(world):
    """KAFKA-12904's theme: assigned, revoked and assigned again in one go."""
    first = running(world)
    feed(world, 0)
    world.stall(first, "reconciler", 3_000)
    for _ in range(2):
        second = world.start()
        world.run_for(500)
        world.leave(second)
        world.run_for(500)
    feed(world)
    ends_well(world)
    assert len(tasks(first)) == 10


def test_positions_that_cannot_be_asked_for_lose_no_task(world):
    """PR 16570's theme: the group's positions were not to be had, and a task was left between two owners."""
    running(world)
    feed(world, 0)
    second = world.start()
    failing(second, "stable positions", times=10)
    world.run_until(lambda: tasks(second))
    feed(world)
    ends_well(world)


def test_a_revoke_before_there_are_tasks_is_acknowledged(world):
    """The theme of locks of an empty set: nothing to wait for is no reason to wait."""
    running(world)
    second = world.start()
    failing(second, "stable positions", times=1_000)  # it never gets as far as tasks
    world.run_until(lambda: second.instance.placement.owned)
    third = world.start()
    world.run_until(lambda: third.instance.placement.owned or world.now > 1_003_000)
    second.link.broken = lambda what: None
    feed(world)
    ends_well(world)


def fails(*_):
    raise RuntimeError("a bug")


def test_a_task_that_fails_is_revoked_and_fails_nobody_else(world):
    """PR 14281's theme: a task with an exception is not given out again before somebody has looked at it."""
    first = running(world)
    for task in first.group._tasks.values():
        if task.id.query == "CTAS_TOTALS":
            task.program.program.execute = fails
    feed(world)
    totals = {t for t in tasks(first) if t.startswith("CTAS_TOTALS")}
    assert first.instance.metrics.query("CTAS_TOTALS").errors == len(totals)  # each once: held at once
    second = world.start()
    world.run_until(lambda: totals & set(tasks(second)))
    world.kill(first)
    ends_well(world)


def instead_of_runs(process, call):
    """Calls this for micro-batches of one query, single and joint ones, with the function that would be called and its arguments."""
    for task in process.group._tasks.values():
        if str(task.id).startswith("CTAS_TOTALS/0_"):
            program = task.program.program
            program.execute = partial(call, program.execute)
            program.execute_jointly = partial(call, program.execute_jointly)


def test_a_run_that_hangs_holds_up_a_rebalance_and_nothing_else(world):
    """The race of a task that is given back with one that is taken away: whoever waits for it gets it when the run has ended."""
    first = running(world)
    calls = []

    def slow(execute, *given):
        if not calls:
            calls.append(tasks(first))
            world.start()
            world.interlude(first, 1_500, freeze=False)
            calls.append(world.outside.end_offset(TopicPartition("big", 0)))
        return execute(*given)

    instead_of_runs(first, slow)
    feed(world)
    assert calls[1] > 0  # others went on and were committed
    ends_well(world)


@pytest.mark.parametrize("fate", ["lost", "late", "done"])
def test_a_commit_without_an_answer_counts_once(world, fate):
    """librdkafka's and Jepsen's theme: a request to commit that arrives late must not commit what came after it."""
    first = running(world)
    commit, unanswered = first.link.commit, []

    def strange(send, send_later):
        if len(unanswered) < 3:
            unanswered.append(world.now)
            if fate != "lost":
                send_later(250) if fate == "late" else send()
            raise LogUnavailable("no answer")
        commit(send, send_later)

    first.link.commit = strange
    for n in range(len(world.input)):
        feed(world, n)
    ends_well(world)
    assert len(unanswered) == 3


def test_markers_that_are_late_hold_up_who_comes_next(world):
    """What was committed is not to be seen yet: the next owner waits for it instead of processing it again."""
    first = running(world)
    world.broker.marker_delay_ms = lambda place: 700
    feed(world)
    world.start()
    world.run_for(200)
    world.kill(first)
    ends_well(world)


def test_a_restore_that_has_to_wait_does_not_run_in_circles(world):
    """PR 12749's theme: nothing arrives, as a transaction hides it, and no thread takes time from those that work."""
    changelog = TopicPartition(changelog_topic(APP, "CTAS_TOTALS-aggregate-1"), 1)
    first = running(world)
    show = hidden(world, changelog)
    feed(world)
    world.kill(first)
    second = world.start()
    world.run_until(lambda: "CTAS_TOTALS/0_1" in second.instance.restoration._tasks)
    rounds = Counter()
    for name, step in second.steps.items():
        second.steps[name] = lambda now_ms, name=name, step=step: rounds.update([name]) or step(now_ms)
    world.run_for(1_000)
    assert "CTAS_TOTALS/0_1" in second.instance.restoration._tasks
    assert max(rounds.values()) <= 500, rounds  # in circles: 1,000
    show()
    ends_well(world)


def test_a_restore_that_dies_again_and_again_comes_to_an_end(world):
    """KIP-892's theme: a mark of half a store must not outlive its cause."""
    first = running(world)
    feed(world)
    world.run_for(500)
    for _ in range(6):
        world.kill(first, wiped=True)
        first = world.start(first.name)
        world.stall(first, "restoration", 30)
        world.run_until(lambda first=first: first.instance.state.restoring())
    ends_well(world)


def test_state_of_what_comes_and_goes_can_always_be_opened_again(world):
    """KAFKA-14442's and PR 20646's theme: of a task that was given away nothing stays open, nor locked."""
    first = running(world)
    for n in range(4):
        feed(world, n % len(world.input))
        second = world.start("second")
        world.run_until(lambda second=second: len(tasks(first)) == len(tasks(second)) == 5)
        assert [open_state(p) for p in (first, second)] == [tasks(first), tasks(second)]
        world.kill(second) if n % 2 else world.leave(second)
        world.run_until(lambda: len(tasks(first)) == 10)
        assert open_state(first) == tasks(first)
    ends_well(world)


def test_a_revoke_as_an_instance_stops_holds_up_nobody(world):
    """The theme of a task that is taken away during a shutdown: nobody is left to acknowledge, and nobody waits for it."""
    first = running(world)
    feed(world, 0)
    world.stall(first, "reconciler", 60_000)
    second = world.start()
    world.run_until(lambda: first.instance.placement._leaving)
    world.leave(first)
    world.run_until(lambda: len(tasks(second)) == 10)
    feed(world)
    ends_well(world)


def test_a_task_that_calls_the_log_is_noticed(world):
    """PR 14226's theme: calls of a client from where tasks are processed."""
    first = running(world)
    instead_of_runs(first, lambda *_: first.log.end_offset(TopicPartition("big", 0)))
    with pytest.raises(Violation, match=r"processing-[01] calls the log: end offset"):
        feed(world)


def test_who_leaves_in_order_comes_back_without_restoring(world):
    """PR 22490's theme: what is in memory is on disk before the process ends."""
    first = running(world)
    feed(world)
    world.leave(first)
    world.run_until(lambda: not world.processes)
    world.disks[first.name] = first.disk.after_crash(0)  # the machine goes down as well
    back = world.start(first.name)
    world.run_until(lambda: tasks(back))
    ends_well(world)
    assert back.instance.restoration.records == 0


def test_a_source_that_lost_records_stops_its_readers_and_nobody_else(world):
    """The log starts past a position: the gap is named, the others go on."""
    first = running(world)
    first.instance.manager.hold("CSAS_NAMED")
    feed(world, 0, 1)
    big = TopicPartition("big", 1)
    world.run_until(lambda: world.outside.end_offset(big))
    world.kill(first)
    world.outside.drop_before(big, end := world.outside.end_offset(big))
    assert end
    first = world.start(first.name)
    feed(world)
    world.run_until(lambda: len(tasks(first)) == 8)  # without those of the one that stops
    world.run_for(1_000)
    assert first.instance.query_states.having(STOPPED) == ["CSAS_NAMED"]
    assert f"below the log's start {end}" in first.instance.query_states.of("CSAS_NAMED").reason
    found = project.seen(world.outside)
    expected = project.expected(world.outside)
    assert {t for t in expected if found[t] != expected[t]} <= {"named", "big"}  # of big, records are gone


def test_a_topic_that_nobody_may_read_for_a_while_costs_no_task(world):
    """Positions in it cannot be moved either: its readers wait, also over a rebalance, the others are committed."""
    first = running(world)
    feed(world, 0)
    world.denied["customers"] = world.now + 60_000
    second = world.start()
    feed(world)
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 4)  # those of the readers are taken apart
    world.run_for(2_000)
    found, expected = project.seen(world.outside), project.expected(world.outside)
    assert [t for t in expected if found[t] != expected[t]] == ["named"]
    ends_well(world)
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)  # each tries again when its own time has come


def test_positions_of_a_refused_query_are_not_committed_by_who_gave_them_up(world):
    """Seed 958: it has no tasks, so a revoke was acknowledged while a commit with its positions was under way."""
    first = running(world)
    for n in range(len(world.input)):
        world.feed(n)
    world.run_until(lambda: first.instance.commit.dirty)
    world.denied["orders"] = world.now + 60_000
    world.run_until(lambda: any(q.restart_positions for q in first.instance.queries.values()))
    failing(first, "positions", step="commit", times=3)
    world.run_until(lambda: len(tasks(first)) == 2)
    first.group._learn_plan(
        first.instance.plan
    )  # as when one is deployed now: what nobody may read is not subscribed to
    world.run_for(2_000)  # a commit of what is not owned is a Violation
    ends_well(world)


def test_partitions_do_not_move_on_without_a_refused_query_that_has_never_committed(world):
    """Seed 1656: it had no record to be kept back by, so the group's positions went on, and back as it began."""
    for n in range(len(world.input)):
        world.feed(n)
    world.refusing["big"] = world.now + 60_000
    first = world.begin()
    world.run_until(lambda: first.group.planned.topics)
    world.stall(first, "commit", 600)  # what it began with is in the same commit as the first results
    world.run_until(lambda: first.instance.query_states.having(SUSPENDED))
    assert first.instance.state.local_record("CSAS_BIG/0_0") is None
    first.group.lose()
    world.run_until(lambda: len(tasks(first)) == 8)
    world.run_for(500)
    ends_well(world)  # a position that goes back is a Violation


def test_channels_of_a_query_that_is_not_to_be_known_of_any_more_are_not_looked_at(world):
    """Seed 2845: the plan was learnt anew for another query while its own tasks, which waited, were still to be given up."""
    first = running(world)
    feed(world, 0)
    channels = [i for task in first.group._tasks.values() for i in task.logs.values() if i.channel is not None]
    world.denied["orders"] = world.now + 2_000
    first.group._learn_plan(first.instance.plan)
    first.group._look_at_ms = 0
    for channel in channels:
        channel.complete = -1  # not even for a round that nobody waits for
    assert channels
    assert first.group.run_once(world.now) >= 0
    feed(world)
    ends_well(world)


def test_a_frozen_member_that_is_back_in_time_keeps_its_tasks(world):
    first = running(world)
    feed(world, 0)
    world.start()
    world.run_for(500)
    kept = {id(t) for t in first.group._tasks.values()}
    world.freeze(first, SILENT_MS - 150)
    feed(world)
    ends_well(world)
    assert {id(t) for t in first.group._tasks.values()} == kept
    assert not first.instance.placement._recovering


def test_what_another_member_deployed_just_before_is_not_taken_for_no_change():
    """The second deployment compared its plan with what its member knew to run, and answered that nothing changes."""
    world = SimulatedCluster(1, CALM, orders=20, change=project.CHANGES[0])
    first = running(world)
    second = world.start()
    world.run_for(1_000)
    world.stall(second, "reconciler", 3_000)
    for process, world.change in ((first, project.CHANGES[1]), (second, project.CHANGES[0])):
        world.deploy(process, project.changed_plan(world.change))
    feed(world)
    ends_well(world)


def test_positions_of_others_do_not_say_that_a_query_which_has_not_begun_is_there(world):
    """A bounded run of members ended before what had just been deployed was computed: positions are of a partition, not of a query."""
    first = running(world)
    second = world.start()
    feed(world)
    world.settle()
    world.stall(second, "reconciler", 3_000)
    world.later = True
    world.deploy(first, project.later_plan())
    world.run_for(1_000)
    assert not caught_up(first.instance, source_ends(first.instance))
    ends_well(world)
