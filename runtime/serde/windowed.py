"""Windowed keys: the bytes Kafka Streams' WindowedSerdes write behind the key.

Time windows: key, window start. Sessions: key, window end, window start. Each 8 bytes, big endian, milliseconds.
"""

from __future__ import annotations

import struct

from flowql.compiler.plan.schema import KeyWindow
from flowql.runtime.errors import BadRecord

_ONE, _TWO = struct.Struct(">q"), struct.Struct(">qq")
LARGEST = 2**63 - 1


def split_window(data: bytes, window: KeyWindow) -> tuple[bytes, int, int]:
    """The key, window start and window end of a windowed key. Raises BadRecord."""
    size = 8 if window.kind == "time" else 16
    if len(data) < size:
        raise BadRecord(f"a windowed key has at least {size} bytes, this one {len(data)}")
    key = data[:-size]
    if window.kind == "session":
        end, start = _TWO.unpack(data[-16:])
        return key, start, end
    (start,) = _ONE.unpack(data[-8:])
    # A time window of unknown size is read without an end in Kafka Streams, too: the largest time stands for it, and for an end beyond it.
    return key, start, min(start + window.size_ms, LARGEST) if window.size_ms is not None else LARGEST


def join_window(key: bytes, window: KeyWindow, start: int, end: int) -> bytes:
    """The bytes of a windowed key."""
    return key + (_TWO.pack(end, start) if window.kind == "session" else _ONE.pack(start))
