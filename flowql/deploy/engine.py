"""The one place that opens an engine: log, state and instance of a data directory."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from flowql.deploy.at_rest import process_id
from flowql.deploy.settings import Settings
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateDamaged, StateError
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.layout import APPLICATION, MARKER, RUN, decode_number, encode_number
from flowql.runtime.state.physical import Physical
from flowql.runtime.state.rocks import RocksPhysical, open_rocks


def config_of(settings: Settings) -> InstanceConfig:
    shared = settings.kafka is not None and settings.kafka.shared
    return InstanceConfig(
        settings.application_id,
        settings.data_dir,
        settings.threads,
        settings.memory_bytes,
        settings.has_gateway,
        settings.guarantee,
        changelogs=settings.kafka is not None,
        shared=shared,
        process_id=process_id(settings.data_dir) if shared else "",
        standbys=settings.kafka.standbys if settings.kafka is not None else 0,
        rack=settings.kafka.rack if settings.kafka is not None else "",
        remote_state=settings.state.remote,
        latency_target_ms=settings.latency_target_ms,
        dead_letters=settings.dead_letters,
        without=settings.without,
    )


def open_instance(log_dir: Path, state_dir: Path, config: InstanceConfig) -> Instance:
    """The engine on its directories, with the embedded log. See `open_on`."""
    return open_on(EmbeddedLog(log_dir), state_dir, config)


def open_on(log: Log, state_dir: Path, config: InstanceConfig) -> Instance:
    """The engine on a log and a directory, recovered to the last commit; threads not started, nothing resumed.

    Raises InstanceRunning when another process has them. The log is closed with the instance, also with one that fails to start.
    """
    try:
        physical = _open_state(state_dir, log, config)
        try:
            _check_application(physical, state_dir, config.application_id)
            if not isinstance(log, EmbeddedLog):
                return Instance(log, physical, SystemClock(), config)
            _check_history(log, physical, state_dir, config)
            run = secrets.randbits(62) + 1
            log.begin_run(config.transactional_id, run)
            instance = Instance(log, physical, SystemClock(), config)
            physical.keep(RUN, encode_number(run))  # it is at the log's last commit now
            return instance
        except BaseException:
            physical.close()
            raise
    except BaseException:
        log.close()
        raise


def _open_state(state_dir: Path, log: Log, config: InstanceConfig) -> RocksPhysical:
    budget = config.budget
    blocks, writes = budget.block_cache_bytes, budget.write_buffer_bytes
    try:
        return open_rocks(state_dir, cache_bytes=blocks, write_buffer_bytes=writes)
    except StateDamaged as error:
        _check_alone(log, config.application_id)
        aside = _aside(state_dir)
        say(WARNING, "state.damaged", f"{error.found}: it is kept as {aside.name}, and recomputed")
        return open_rocks(state_dir, cache_bytes=blocks, write_buffer_bytes=writes)
    except StateError:
        _check_alone(log, config.application_id)
        raise


def _check_application(physical: RocksPhysical, state_dir: Path, application_id: str) -> None:
    """StateError if the state belongs to another application: this one would process all input again and write other topics."""
    known = physical.get(APPLICATION)
    if known is None:
        physical.keep(APPLICATION, application_id.encode())
    elif (before := known.decode()) != application_id:
        raise StateError(
            f"the state in {state_dir} belongs to the application {before}, not to {application_id}: undo the change of the project's name, "
            "`app_id` or `prefix` in flowql.yaml, or give the target another data_dir"
        )


def _check_history(log: EmbeddedLog, physical: Physical, state_dir: Path, config: InstanceConfig) -> None:
    """StateError for a state that was made from another log, or from what this one was before it was restored."""
    applied, run = (decode_number(physical.get(key), 0) for key in (MARKER, RUN))
    if why := log.why_foreign(config.transactional_id, applied, run):
        raise StateError(
            f"{why}; put back the log that the state was made from, or  mv {state_dir} {state_dir}.old  to recompute it"
        )


def _check_alone(log: Log, application_id: str) -> None:
    """Raises InstanceRunning, with its process, if another instance runs on the log."""
    if isinstance(log, EmbeddedLog):
        with closing(EmbeddedLog(log.directory)) as probe:  # a log is held until it is closed
            probe.hold(application_id)
    else:
        log.hold(application_id)


def _aside(state_dir: Path) -> Path:
    """Another name for a state that cannot be opened, under which it is now."""
    number = next(n for n in range(1, 1_000) if not state_dir.with_name(f"{state_dir.name}.damaged-{n}").exists())
    return state_dir.rename(state_dir.with_name(f"{state_dir.name}.damaged-{number}"))
