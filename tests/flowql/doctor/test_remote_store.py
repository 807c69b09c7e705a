"""`flowql doctor` says whether a target's object store answers, and how old what it has is."""

import pytest

from flowql.config.load import load_project
from flowql.doctor.remote_store import examine_remote_store
from flowql.runtime.clock import SystemClock
from flowql.runtime.remote.objects import OPENED, objects_at
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.remote.manifest import Manifest, encode_manifest, manifest_name, task_folder
from flowql.runtime.state.values import encode_metadata
from tests.objects import MemoryObjects


@pytest.fixture
def target(tmp_path):
    text = "name: shop\ntargets:\n  prod: {log: kafka, state: {remote: store}}\n  plain: {log: kafka}\n"
    (tmp_path / "flowql.yaml").write_text(text)
    return load_project(tmp_path, target="prod").target


def found(target, *, running=True):
    (finding,) = examine_remote_store("target prod", target, "shop", running=running)
    return finding


def checkpoint(target, age_s):
    record = TaskRecord(0, (), encode_metadata({})).record()
    as_of_ms = SystemClock().wall_ms() - 1000 * age_s
    manifest = Manifest("CTAS_C/0_0", 1, 1, "shop", 7, as_of_ms, record, [])
    name = manifest_name(task_folder("shop", "CTAS_C/0_0"), 1, 1)
    objects_at(target.state.remote).put_new(name, encode_manifest(manifest))


def test_an_empty_store_is_a_warning_while_an_instance_runs(target):
    assert found(target).state == "warning"
    assert found(target, running=False).state == "ok"


@pytest.mark.parametrize(("age_s", "state", "age"), [(30, "ok", "30 s"), (7_000, "warning", "117 minutes")])
def test_the_age_of_what_is_there(target, age_s, state, age):
    checkpoint(target, age_s)
    finding = found(target)
    assert (finding.state, f"checkpoints of 1 tasks, the newest {age} old" in finding.says) == (state, True)
    assert found(target, running=False).state == "ok"


def test_a_store_that_does_not_answer(target):
    OPENED[target.state.remote] = MemoryObjects(target.state.remote, fail=lambda request, name: True)
    try:
        finding = found(target)
    finally:
        del OPENED[target.state.remote]
    assert finding.state == "failed"
    assert "the store is away" in finding.says


def test_a_target_without_a_store_has_no_line(tmp_path, target):
    plain = load_project(tmp_path, target="plain").target
    assert list(examine_remote_store("target plain", plain, "shop", running=True)) == []
