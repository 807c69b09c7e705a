"""An instance as a member of a group, on a log where it is the only one: the same results, state that comes back."""

from collections import Counter

import pytest

from runtime.app.driver import Driver
from runtime.app.instance import Instance
from runtime.clock import VirtualClock
from runtime.config import InstanceConfig
from runtime.errors import Fenced, OtherMode
from runtime.log.memory import MemoryLog
from runtime.state.memory import MemoryPhysical
from tests.crash.outcome import DEAD_LETTERS, differences, outcome
from tests.crash.project import append, compiled, create_topics, customers, orders


def world():
    log = MemoryLog()
    create_topics(log.admin())
    append(log, customers())
    return log


def start(log, physical=None, **config):
    clock = VirtualClock()
    instance = Instance(log, physical or MemoryPhysical(), clock, InstanceConfig(threads=1, changelogs=True, **config))
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.deploy(compiled())
    return instance, driver


def result(log, instance):
    found = outcome(log, instance.snapshot())
    found.appended[DEAD_LETTERS] = Counter({k[:3]: n for k, n in found.appended[DEAD_LETTERS].items()})
    return found


@pytest.fixture(scope="module")
def expected():
    log = world()
    for part in orders(300, 1, 50):
        append(log, part)
    instance, driver = start(log)
    driver.run_until_caught_up()
    return result(log, instance)


def settle(instance, driver):
    for _ in range(50):
        driver.round()
    driver.run_until_caught_up()


def test_a_member_makes_what_the_only_instance_makes(expected):
    log = world()
    instance, driver = start(log, shared=True, process_id="one")
    for part in orders(300, 1, 50):
        append(log, part)
        settle(instance, driver)
    assert not differences(expected, result(log, instance))
    assert instance.group.trouble == ""


@pytest.mark.parametrize("kept", [True, False])
def test_a_member_goes_on_with_its_state_or_without(expected, kept):
    log, parts = world(), list(orders(300, 1, 50))
    physical = MemoryPhysical()
    instance, driver = start(log, physical, shared=True, process_id="one")
    for part in parts[:3]:
        append(log, part)
        settle(instance, driver)
    append(log, parts[3])
    for _ in range(3):
        driver.round()  # and some of it is not committed
    log.crash()
    instance, driver = start(log, physical if kept else None, shared=True, process_id="two")
    for part in parts[4:]:
        append(log, part)
    settle(instance, driver)
    assert not differences(expected, result(log, instance))
    assert (instance.restoration.records == 0) == kept


def test_a_fenced_member_starts_over(expected):
    log, parts = world(), list(orders(300, 1, 50))
    instance, driver = start(log, shared=True, process_id="one")
    for n, part in enumerate(parts):
        append(log, part)
        driver.round()
        if n % 2:
            log.producer("flowql-one").close()  # as the brokers do to one whose transaction took too long
        settle(instance, driver)
    assert instance.fatal is None
    assert not differences(expected, result(log, instance))


def test_the_only_instance_ends_when_it_is_fenced():
    log = world()
    _, driver = start(log)
    append(log, next(iter(orders(50, 1, 50))))
    log.producer("flowql")
    with pytest.raises(Fenced):
        driver.run_until_caught_up()


@pytest.mark.parametrize("shared", [True, False])
def test_an_application_cannot_change_between_one_instance_and_many(shared):
    log = world()
    _, driver = start(log, shared=shared, process_id="one")
    settle(_, driver)
    driver.commit()
    log.crash()
    with pytest.raises(OtherMode, match="another app_id"):
        start(log, shared=not shared, process_id="one")
