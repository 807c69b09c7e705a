"""A target: its folder and disk, its instance, and what its log and engine need."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from flowql.compiler.plan.topology import Plan
from flowql.config.load import memory_there_is
from flowql.config.project import Target
from flowql.config.sections import RemoteSettings
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.doctor.remote_store import examine_remote_store
from flowql.doctor.stored import examine_stored
from flowql.errors import CommandError
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.kafka.connection import answers
from flowql.runtime.log.kafka.permissions import missing_permissions
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.log.kafka.versions import FAULT_CODE, known_fault, metadata_level, release_of
from flowql.runtime.secret import revealed
from flowql.runtime.spark.java import find_java
from flowql.runtime.spark.session import require_spark
from flowql.server.address import FILE
from flowql.server.remote_client import RemoteClient
from flowql.server.running import NotAnswering, connect, process_of

FREE_LEAST = 1 << 30
FSYNC_SLOW_MS = 50.0  # the commit waits for it, every 100 ms by default
FSYNCS = 9


def examine_target(
    target: Target, application_id: str, environment: dict[str, str], plan: Plan | None = None
) -> Iterator[Finding]:
    """Writes and removes one small folder in the target's own, and asks brokers; starts nothing. plan: of the project, if it compiles."""
    name = f"target {target.name}"
    if target.remote is not None:
        yield _remote(f"{name}: instance", target.remote, target.name)
        return
    yield from _folder(name, target)
    yield _instance(name, target)
    yield from examine_stored(name, target, application_id)
    yield from examine_remote_store(name, target, application_id, running=process_of(target.data_dir) is not None)
    yield _memory(name, target)
    if target.log == "kafka":
        yield (brokers := _kafka(name, target))
        named = target.kafka is not None and target.kafka.bootstrap
        if brokers.state != "failed" and plan is not None and named and target.engine == "runtime":
            assert target.kafka is not None
            yield _permissions(f"{name}: permissions", target.kafka, application_id, plan)
    if target.engine == "spark":
        yield _spark(name)
        yield _java(name, environment)


def _remote(check: str, remote: RemoteSettings, target: str) -> Finding:
    """The instance at a URL, its token and its certificate."""
    try:
        with closing(RemoteClient(remote.url, revealed(remote.token), remote.certificate or None)) as client:
            queries = client.status()["queries"]
    except CommandError as error:
        return failed(check, error.title, error.help)
    return _of_queries(check, f"the instance at {remote.url}", queries, target)


def _folder(name: str, target: Target) -> Iterator[Finding]:
    check = f"{name}: disk"
    there = next(p for p in (target.data_dir, *target.data_dir.parents) if p.is_dir())
    free = shutil.disk_usage(there).free
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".flowql-doctor-") as scratch:
            took, locks = _fsync_ms(Path(scratch)), _locks(Path(scratch))
    except OSError as error:
        yield failed(
            check, f"{there} cannot be written to: {error.strerror}", "choose another `data_dir` in flowql.yaml"
        )
        return
    says = f"{target.data_dir}, {free / (1 << 30):.1f} GB free, a write is safe after {took:.1f} ms"
    if not locks:
        yield failed(check, f"{there} is on a file system without locks", "choose a `data_dir` on a local disk")
    elif free < FREE_LEAST:
        yield warning(check, says, "make room: a full disk holds up commits")
    elif took > FSYNC_SLOW_MS:
        yield warning(check, says, "a slow disk makes results late; put `data_dir` on a quicker one")
    else:
        yield ok(check, says)


def _fsync_ms(folder: Path) -> float:
    """The middle of some small writes that are made safe."""
    file = DiskFiles().open(str(folder / "probe"), create=True, write=True)
    took = []
    for n in range(FSYNCS):
        file.pwrite(n * 4096, [b"x" * 4096])
        start = time.perf_counter()
        file.fsync()
        took.append((time.perf_counter() - start) * 1000)
    file.close()
    return statistics.median(took)


def _locks(folder: Path) -> bool:
    files, path = DiskFiles(), str(folder / "lock")
    lock = files.lock(path, wait=False)
    if lock is None:
        return False
    second = files.lock(path, wait=False)
    lock.release()
    return second is None


def _instance(name: str, target: Target) -> Finding:
    check = f"{name}: instance"
    process = process_of(target.data_dir)
    if process is None:
        left = (target.data_dir / FILE).exists()
        return ok(check, "none runs" + (" (the last one was killed; the next start recovers)" if left else ""))
    try:
        client = connect(target.data_dir)
    except NotAnswering as error:
        return failed(
            check, error.title, f"flowql status -t {target.name}   # or: flowql stop --force -t {target.name}"
        )
    if client is None:
        return ok(check, "none runs")
    try:
        status = client.status()
    except CommandError as error:
        return failed(check, f"process {process.pid}: {error}", f"flowql stop -t {target.name}")
    finally:
        client.close()
    return _of_queries(check, f"process {process.pid}", status["queries"], target.name)


def _of_queries(check: str, who: str, queries: Sequence[Mapping[str, Any]], target: str) -> Finding:
    broken = [q["id"] for q in queries if q["state"] in ("failed", "hung", "stopped")]
    says = f"{who} runs {len(queries)} queries"
    if broken:
        return warning(check, f"{says}, not {', '.join(broken)}", f"flowql status -t {target}")
    return ok(check, says)


def _memory(name: str, target: Target) -> Finding:
    check, total = f"{name}: memory", memory_there_is()
    says = f"{target.memory_bytes / (1 << 20):,.0f} MB of {total / (1 << 20):,.0f} MB, {target.threads} threads"
    if target.memory_bytes > total * 0.8:
        return warning(check, says, f"set `memory` of target {target.name} to at most {total * 0.6 / (1 << 20):.0f} MB")
    return ok(check, says)


def _kafka(name: str, target: Target) -> Finding:
    check = f"{name}: kafka"
    bootstrap = target.kafka.bootstrap if target.kafka is not None else ""
    if not bootstrap:
        return warning(check, "no broker is named", "flowql kafka up   # or `kafka: {bootstrap: ...}` in flowql.yaml")
    assert target.kafka is not None
    if not answers(bootstrap, target.kafka.options, timeout_s=5.0):
        fix = "is it up, and do `options` fit (TLS, SASL)?  One to try with:  flowql kafka up"
        return failed(check, f"{bootstrap} does not answer", fix)
    level = metadata_level(bootstrap, target.kafka.options)
    if fault := known_fault(level):
        return warning(check, f"{bootstrap} answers; {fault}", f"flowql explain {FAULT_CODE}")
    release = release_of(level or 0)
    return ok(check, f"{bootstrap} answers" + (f", Kafka {release}" if release else ""))


def _permissions(check: str, kafka: KafkaSettings, application_id: str, plan: Plan) -> Finding:
    """One command for each permission that the user of the target lacks."""
    results = {q.topic for q in plan.queries} | {s.topic for s in plan.sources if s.is_own_table}
    sources = {s.topic for s in plan.listed} - results
    try:
        missing = missing_permissions(kafka, application_id, sources, results)
    except (RuntimeFailure, TimeoutError) as error:
        says = str(error) or f"{kafka.bootstrap} did not answer in time"
        return failed(check, says, "flowql doctor   # again, when brokers answer")
    if not missing:
        return ok(check, "the user of the target has those that it needs")
    says = "; ".join(f"{', '.join(m.operations)} on {m.kind} {m.name}{'*' if m.prefixed else ''}" for m in missing)
    user = kafka.options.get("sasl.username", "USER")
    return failed(check, f"missing: {says}", "\n  ".join(m.command(kafka.bootstrap, user) for m in missing))


def _spark(name: str) -> Finding:
    try:
        require_spark()
    except RuntimeFailure as error:
        return failed(f"{name}: spark", str(error), getattr(error, "help", ""))
    return ok(f"{name}: spark", "PySpark is here")


def _java(name: str, environment: dict[str, str]) -> Finding:
    try:
        java = find_java(environment)
    except RuntimeFailure as error:
        return failed(f"{name}: java", str(error), getattr(error, "help", ""))
    return ok(f"{name}: java", f"Java {java.version} of {java.origin}, {java.home}")
