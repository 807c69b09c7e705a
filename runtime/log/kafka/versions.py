"""Which release of Kafka brokers run, as far as they tell, and the known faults of it. The client library does not report it.

Any client may send an ApiVersions request before it authenticates. Since Kafka 3.3 the answer has the highest `metadata.version` that the broker
supports, which names its minor release, whatever the cluster has finalized (KIP-584, `org.apache.kafka.server.common.MetadataVersion`).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress

TIMEOUT_S = 5.0
# KAFKA-20734: `KRaftMetadataCache.getPartitionLeaderEndpoint` of 4.3 (Java) takes a partition without a live leader for a deleted one, where 4.2 (Scala)
# answers `Node.noNode`. A transaction coordinator that loads a prepared transaction then completes it without a marker for such a partition.
FAULTY_SINCE = 30  # 4.3-IV0; 4.3.0 and 4.3.1 have the fault, and no release is known to be without it again
FAULT_CODE = "FQ4085"
_API_VERSIONS, _VERSION = 18, 3
_SUPPORTED_FEATURES = 0
_TLS = ("SSL", "SASL_SSL")
_RELEASES = {30: "4.3", 29: "4.2", 28: "4.2", 27: "4.1", 26: "4.1", 25: "4.0"}


def metadata_level(bootstrap: str, options: Mapping[str, str] | None = None) -> int | None:
    """The highest `metadata.version` level that a broker of `bootstrap` supports; None if no broker says it."""
    levels = [_level_of(address.strip(), options or {}) for address in bootstrap.split(",")]
    return max((level for level in levels if level is not None), default=None)


def known_fault(level: int | None) -> str:
    """A sentence about what brokers of this level may lose, or nothing."""
    if level is None:
        return (
            "the release of the brokers is not known, so KAFKA-20734 cannot be ruled out: Kafka 4.3 can lose parts of a committed transaction when a "
            "broker dies during a commit"
        )
    if level < FAULTY_SINCE:
        return ""
    release = (
        f"Kafka {_RELEASES[level]}" if level in _RELEASES else f"a release newer than Kafka {_RELEASES[FAULTY_SINCE]}"
    )
    may = "loses" if level in _RELEASES else "may lose"
    return f"the brokers run {release}, which {may} parts of a committed transaction if a broker dies during the commit (KAFKA-20734)"


def release_of(level: int) -> str:
    """The release as text, such as `4.2`; empty for one that is older or newer than the known ones."""
    return _RELEASES.get(level, "")


def _level_of(address: str, options: Mapping[str, str]) -> int | None:
    host, _, port = address.rpartition(":")
    is_tls = options.get("security.protocol", "").upper() in _TLS
    with (
        suppress(OSError, ValueError, struct.error, IndexError),
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as plain,
        _tls(plain, host, options) if is_tls else plain as stream,
    ):
        stream.sendall(_request())
        return _features(_answer(stream)).get("metadata.version")
    return None


def _tls(plain: socket.socket, host: str, options: Mapping[str, str]) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif options.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if certificate := options.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
    return context.wrap_socket(plain, server_hostname=host)


def _request() -> bytes:
    header = struct.pack(">hhih", _API_VERSIONS, _VERSION, 1, 6) + b"flowql" + b"\0"  # no tagged fields
    body = b"\x07flowql\x021\0"  # name and version of the client, no tagged fields
    return struct.pack(">i", len(header) + len(body)) + header + body


def _answer(stream: socket.socket) -> bytes:
    """The body after the correlation id."""
    (size,) = struct.unpack(">i", _read(stream, 4))
    return _read(stream, size)[4:]


def _read(stream: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        if not (more := stream.recv(size - len(got))):
            raise OSError("the broker closed the connection")
        got += more
    return bytes(got)


def _features(body: bytes) -> dict[str, int]:
    """Feature -> the highest level that the broker supports. body: as of version 3 of the answer; IndexError, struct.error where it is another."""
    (error,) = struct.unpack_from(">h", body)
    at, found = 2, dict[str, int]()
    if error:
        return found
    count, at = _number(body, at)
    for _ in range(count - 1):
        _, at = _tagged(body, at + 6)
    tagged, _ = _tagged(body, at + 4)  # after the throttle time
    features = tagged.get(_SUPPORTED_FEATURES, b"\x01")
    count, at = _number(features, 0)
    for _ in range(count - 1):
        length, at = _number(features, at)
        name, at = features[at : at + length - 1].decode(), at + length - 1
        found[name] = struct.unpack_from(">h", features, at + 2)[0]
        _, at = _tagged(features, at + 4)
    return found


def _tagged(body: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Tagged fields by number, and where they end."""
    count, at = _number(body, at)
    found: dict[int, bytes] = {}
    for _ in range(count):
        tag, at = _number(body, at)
        size, at = _number(body, at)
        found[tag], at = body[at : at + size], at + size
    return found, at


def _number(body: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and where it ends."""
    value = shift = 0
    while True:
        byte = body[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
