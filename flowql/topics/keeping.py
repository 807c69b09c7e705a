"""How long records are kept, as people say it and as a topic's config has it."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.analyze.options import duration_ms
from flowql.config.reader import size_bytes
from flowql.errors import CommandError
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.policy import SEGMENT_BYTES, TopicPolicy

MEANINGLESS = "FQ5013"
# Whole segments go, so that each is an eighth of the limit at most. Brokers take no smaller ones than 1 MiB.
_PARTS, _SEGMENT_BYTES_MIN = 8, 1 << 20


def retention_changes(
    config: Mapping[str, str], age: str | None, size: str | None, compact: bool | None
) -> dict[str, str | None]:
    """Options to change, None for those taken back. CommandError for what is no age or size.

    A limit counts also for a topic that is compacted: the policy says so, or it would be there and mean nothing. Segments become small enough for it.

    >>> retention_changes({"cleanup.policy": "compact"}, "8 days", None, None)
    {'retention.ms': '691200000', 'segment.ms': '86400000', 'cleanup.policy': 'compact,delete'}
    """
    changes: dict[str, str | None] = {}
    if age is not None:
        wanted = "'7 days', '12 hours', forever"
        age_ms = None if age == "forever" else _number(age, duration_ms(age), "age", wanted)
        changes |= _limits("ms", age_ms, max(1, (age_ms or 0) // _PARTS))
    if size is not None:
        wanted = "'1 GB', unlimited"
        size_max = None if size == "unlimited" else _number(size, size_bytes(size), "size", wanted)
        part = max(_SEGMENT_BYTES_MIN, (size_max or 0) // _PARTS)
        changes |= _limits("bytes", size_max, min(SEGMENT_BYTES, part))
    if not changes and compact is None:
        return {}
    compacts = TopicPolicy.of(config).compacts if compact is None else compact
    limited = any(
        changes.get(limit, config.get(limit)) not in (None, "-1") for limit in ("retention.ms", "retention.bytes")
    )
    changes["cleanup.policy"] = ("compact,delete" if limited else "compact") if compacts else None
    return changes


def _limits(name: str, limit: int | None, part: int) -> dict[str, str | None]:
    """part: of the limit, which a segment may have."""
    return {
        f"retention.{name}": None if limit is None else str(limit),
        f"segment.{name}": None if limit is None else str(part),
    }


def _number(text: str, value: int | None, what: str, wanted: str) -> int:
    if not value:
        raise CommandError(f"{text!r} is not a valid {what}", code=MEANINGLESS, help=f"such as {wanted}")
    if text.strip().isdigit():  # it would be milliseconds or bytes, and nearly all records would go
        raise CommandError(
            f"{text!r} is not a valid {what}: of which unit?", code=MEANINGLESS, help=f"such as {wanted}"
        )
    return value


def retention_text(config: Mapping[str, str]) -> str:
    """The meaning of a config, in a sentence.

    >>> retention_text({"cleanup.policy": "compact"})
    'of each key the last record is kept'
    >>> retention_text({"retention.ms": "86400000", "retention.bytes": "1048576"})
    'records are kept for 1 day, up to 1 MB of a partition'
    """
    policy = TopicPolicy.of(config)
    parts = ["of each key the last record is kept"] if policy.compacts else []
    if policy.deletes:
        age = f" for {_age(policy.retention_ms)}" if policy.retention_ms >= 0 else ""
        limits = (
            [age, f" up to {_size(policy.retention_bytes)} of a partition"] if policy.retention_bytes >= 0 else [age]
        )
        parts.append("records are kept" + ",".join(limit for limit in limits if limit))
    return ", and ".join(parts) or "records are kept for ever"


def letters_kept(kept: LetterRetention) -> str:
    """How long dead letters stay, behind "dead letters are".

    >>> letters_kept(LetterRetention())
    'kept for 7 days, up to 1 GB'
    >>> letters_kept(LetterRetention(-1, -1))
    'kept for ever'
    """
    age = f"kept for {_age(kept.age_ms)}" if kept.age_ms >= 0 else "kept for ever"
    return age if kept.size_bytes < 0 else f"{age}, up to {_size(kept.size_bytes)}"


def _age(ms: int) -> str:
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if ms >= length and ms % length == 0:
            return f"{ms // length} {unit}{'s' * (ms != length)}"
    return f"{ms} ms"


def _size(n: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if n >= 1 << 10 * power and n % (1 << 10 * power) == 0:
            return f"{n >> 10 * power} {unit}"
    return f"{n:,} bytes"
