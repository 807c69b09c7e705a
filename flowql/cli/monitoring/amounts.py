"""Numbers as people read them at a glance, at most seven characters wide."""

from __future__ import annotations

NONE = "-"


def count(n: float | None) -> str:
    """A number of things, or of things a second.

    >>> [count(n) for n in (None, 0, 0.4, 7, 950.4, 1_234, 14_918, 1_234_567, 3e9)]
    ['-', '0', '0.4', '7', '950', '1234', '14.9k', '1.2M', '3.0G']
    """
    if n is None:
        return NONE
    if 0 < n < 9.95 and n != int(n):
        return f"{n:.1f}"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size * (10 if unit == "k" else 1):
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"


def size(n: int | None) -> str:
    """Bytes, by powers of 1024.

    >>> [size(n) for n in (None, 0, 1023, 1950, 5 << 20, 3 << 40)]
    ['-', '0', '1023', '1.9K', '5.0M', '3.0T']
    """
    if n is None:
        return NONE
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if n >= 1 << 10 * power:
            return f"{n / (1 << 10 * power):.1f}{unit}"
    return str(n)


def duration(ms: float | None) -> str:
    """A latency or an age.

    >>> [duration(ms) for ms in (None, 0.4, 13.4, 724, 1_240, 61_000, 7_300_000, 3e8)]
    ['-', '<1ms', '13ms', '724ms', '1.2s', '61s', '2.0h', '3.5d']
    """
    if ms is None:
        return NONE
    if ms < 1:
        return "<1ms"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000)):
        if ms >= length:
            return f"{ms / length:.1f}{unit}"
    if ms >= 10_000:
        return f"{ms / 1000:.0f}s"
    return f"{ms / 1000:.1f}s" if ms >= 1_000 else f"{ms:.0f}ms"


def percent(part: float | None) -> str:
    """
    >>> [percent(p) for p in (None, 0.0, 0.004, 0.376, 1.0)]
    ['-', '0%', '0.4%', '38%', '100%']
    """
    if part is None:
        return NONE
    return f"{part:.1%}" if 0 < part < 0.0095 else f"{part:.0%}"
