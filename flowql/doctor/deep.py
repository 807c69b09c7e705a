"""`flowql doctor --deep`: reads every record of the embedded log and every row of the state, and compares their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

from flowql.config.project import Target
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.runtime.errors import RuntimeFailure, StateDamaged
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import MIB, damage_in, open_rocks
from flowql.server.running import process_of

# A progress bar: its title and its total; gives a function that advances it.
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
SHOWN = 3
_CACHE_BYTES = 8 * MIB  # each block is read once
_LOW, _HIGH = b"", b"\xff" * 16  # below and above all keys


def examine_deep(name: str, target: Target, bar: Bar) -> Iterator[Finding]:
    """For targets on the runtime; nothing of a log on brokers, which verify it themselves."""
    if target.engine != "runtime":
        return
    try:
        if target.log == "embedded" and target.log_dir.is_dir():
            yield _log(f"{name}: records", target, bar)
        if (target.state_dir / "CURRENT").exists():
            yield _state(f"{name}: rows", target, bar)
    except (RuntimeFailure, OSError) as error:
        yield failed(f"{name}: data", str(error), "may this user read the data directory?")


def _log(check: str, target: Target, bar: Bar) -> Finding:
    with (
        closing(EmbeddedLog(target.log_dir, damaged=True)) as log,
        bar("reading the log", log.stored_bytes()) as advance,
    ):
        found = log.verify(advance)
    new = [f"{d.tp} offsets {d.first} to {d.end - 1}: {d.problem}" for d in found.damages if not d.skipped]
    if problems := [*new, *found.other]:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        return failed(
            check,
            "; ".join(problems[:SHOWN]) + more,
            f"flowql log verify -t {target.name}   # names all, and the ways out",
        )
    left = len(found.damages) - len(new)
    out = f"; {left} damaged before are left out" if left else ""
    return ok(
        check,
        f"{found.batches:,} batches of {found.segments:,} segments, {found.bytes:,} bytes: all as they were written{out}",
    )


def _state(check: str, target: Target, bar: Bar) -> Finding:
    """As of its last flush, also beside an instance that has it open."""
    path, alive = target.state_dir, process_of(target.data_dir) is not None
    try:
        with closing(open_rocks(path, cache_bytes=_CACHE_BYTES, read_only=True)) as physical:
            rows, size = 0, 0
            about = physical.property("rocksdb.estimate-num-keys") or 0
            with bar("reading the state", about) as advance, closing(physical.snapshot()) as snapshot:
                for keys, values in snapshot.chunks(_LOW, _HIGH):
                    rows, size = rows + len(keys), size + sum(map(len, keys)) + sum(map(len, values))
                    advance(len(keys))
    except StateDamaged as error:
        return warning(
            check,
            f"{path} is damaged: {error.found}: it is rebuilt from its inputs at the next start",
            _remedy(target, path, alive=alive),
        )
    return ok(check, f"{rows:,} rows, {size:,} bytes: all can be read")


def _remedy(target: Target, path: Path, *, alive: bool) -> str:
    """The next start sets a state aside in which damage was noted; where it could not be, the user does."""
    stop = f"flowql stop -t {target.name}, then  " if alive else ""
    aside = "" if damage_in(path) else f"mv {path} {path}.damaged, then  "
    return f"{stop}{aside}flowql run -t {target.name}   # or flowql deploy"
