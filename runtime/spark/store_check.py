"""Whether Spark can use the object store behind an `s3a:` address, asked by this process itself before Spark is started. No pyspark.

A session takes seconds to start and Hadoop's client repeats requests that fail, so a mistake in an address or in credentials is told at once
where it is certain: nothing listens at the endpoint, the store refuses the credentials, or has no such bucket. All else passes, as where the
configuration is not that of the target alone (proxies, providers of credentials, Hadoop's own files): Spark's file system is asked for
the address after its start in any case (`storage.reach`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from flowql.runtime.secret import revealed
from flowql.runtime.spark.errors import StorageFailed
from flowql.runtime.spark.storage import SILENT_HELP, ends_within, storage_failure

ANSWER_S, CONNECT_S = 5.0, 3.0
_S3 = "spark.hadoop.fs.s3a"
_ELSEWHERE = ("proxy.host", "aws.credentials.provider", "security.credential.provider.path", "assumed.role.arn")
_PORTS = {"http": 80, "https": 443}
# Words of pyarrow's client, and the name by which `storage_failure` knows it. The first that is found counts.
_CERTAIN = (
    ("INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId"),
    ("SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch"),
    ("NO_SUCH_BUCKET", "NoSuchBucket"),
    ("ACCESS_DENIED", "AccessDeniedException"),
)


@dataclass(frozen=True, slots=True)
class Store:
    """Where a bucket is, of Spark's properties. endpoint: "" for Amazon's own. key, secret: "" where they are not given."""

    bucket: str
    endpoint: str
    region: str
    key: str
    secret: str
    token: str
    path_style: bool

    @property
    def server(self) -> tuple[str, int]:
        where = urlsplit(self.endpoint)
        return where.hostname or "", where.port or _PORTS[where.scheme]


def check_store(conf: Mapping[str, str], address: str) -> None:
    """Raises StorageFailed where it is certain that Spark with these properties cannot use an address. Blocks for CONNECT_S and ANSWER_S at most."""
    store = store_of(conf, address)
    if store is None:
        return
    if store.endpoint and not _listens(store.server):
        host, port = store.server
        raise StorageFailed(f"{address} cannot be used: its server {host}:{port} does not answer", help=SILENT_HELP)
    answered = _answer(store, address)
    failure = storage_failure(RuntimeError(answered), address) if answered else None
    if failure is not None:
        raise failure


def store_of(conf: Mapping[str, str], address: str) -> Store | None:
    """None where the properties do not tell how Spark would reach it."""
    where = urlsplit(address)
    if where.scheme != "s3a" or "@" in where.netloc or "HADOOP_CONF_DIR" in os.environ:
        return None
    bucket = where.netloc

    def option(name: str) -> str:
        return revealed(conf.get(f"{_S3}.bucket.{bucket}.{name}", conf.get(f"{_S3}.{name}", ""))).strip()

    if any(option(name) for name in _ELSEWHERE):
        return None
    endpoint = option("endpoint")
    if endpoint and "://" not in endpoint:
        scheme = "http" if option("connection.ssl.enabled").lower() == "false" else "https"
        endpoint = f"{scheme}://{endpoint}"
    if endpoint and urlsplit(endpoint).scheme not in _PORTS:
        return None
    return Store(
        bucket,
        endpoint,
        option("endpoint.region") or "us-east-1",
        option("access.key"),
        option("secret.key"),
        option("session.token"),
        option("path.style.access").lower() == "true",
    )


def _listens(server: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(server, timeout=CONNECT_S):
            return True
    except OSError:
        return False


def _answer(store: Store, address: str) -> str:
    """The store's error for a look at the address; "" for none, and where this is not certain."""
    if not store.key or not store.secret:
        return ""
    said: list[str] = []
    ends_within(ANSWER_S, lambda: said.append(_look(store, address)))
    return said[0] if said else ""


def _look(store: Store, address: str) -> str:
    from pyarrow import fs  # loads a client of 20 MB

    try:
        found = fs.S3FileSystem(
            access_key=store.key,
            secret_key=store.secret,
            session_token=store.token or None,
            region=store.region,
            endpoint_override=store.endpoint.rpartition("://")[2] or None,
            scheme=urlsplit(store.endpoint).scheme or "https",
            force_virtual_addressing=bool(store.endpoint) and not store.path_style,
            connect_timeout=CONNECT_S,
            request_timeout=CONNECT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        )
        path = urlsplit(address).path.strip("/")
        found.get_file_info(fs.FileSelector(f"{store.bucket}/{path}".rstrip("/"), allow_not_found=True))
    except OSError as error:
        return next((name for known, name in _CERTAIN if known in str(error)), "")
    with suppress(OSError):  # credentials for a part of a bucket may be refused here, and are good
        if found.get_file_info(store.bucket).type == fs.FileType.NotFound:
            return "NoSuchBucket"
    return ""
