"""An S3 server of moto on this machine, and the properties of a Spark that reaches it as `s3a:`.

FLOWQL_S3_JARS: a folder with hadoop-aws, software.amazon.awssdk:bundle and analyticsaccelerator-s3 (700 MB). FLOWQL_S3_PYTHON: a Python
that has `moto[server]`. Tests are skipped without them. The versions of the jars are in docs/guide/object-stores.md; moto 5.2.5 was tried.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, S3FileSystem

JARS, PYTHON = "FLOWQL_S3_JARS", "FLOWQL_S3_PYTHON"
BUCKET, KEY, SECRET = "lake", "AKIAFLOWQL", "wJalrXUtnFEMIsecret"
WAIT_S = 60
_NEEDED = ("hadoop-aws", "bundle", "analyticsaccelerator-s3")
_SERVER = Path(__file__).with_name("s3_moto.py")


def s3_jars() -> list[Path]:
    """Skips the test where they are not."""
    folder = Path(os.environ.get(JARS) or "/nonexistent")
    found = [next(folder.glob(f"{name}-*.jar"), None) for name in _NEEDED]
    if None in found or not os.environ.get(PYTHON):
        pytest.skip(f"s3a needs {JARS} (a folder with {', '.join(_NEEDED)}) and {PYTHON} (a Python with moto[server])")
    return [f for f in found if f is not None]


@dataclass(frozen=True, slots=True)
class S3:
    port: int
    folder: Path
    process: int = 0

    def properties(self, *, key: str = KEY, port: int = 0) -> dict[str, str]:
        """Of a Spark, without its jars. Times are those of a person that waits for an error."""
        fs = {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "endpoint.region": "us-east-1",
            "access.key": key,
            "secret.key": SECRET,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "optimized.copy.from.local.enabled": "false",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in fs.items()}

    def files(self) -> S3FileSystem:
        """The same bucket without Spark."""
        at = f"127.0.0.1:{self.port}"
        return S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=at, scheme="http", region="us-east-1")

    def write(self, path: str, rows: pa.Table) -> None:
        """Parquet; path: in the bucket."""
        pq.write_table(rows, f"{BUCKET}/{path}", filesystem=self.files())

    def read(self, path: str) -> pa.Table:
        """All Parquet files below a folder of the bucket, by Spark's names for them alone."""
        there = self.files()
        found = there.get_file_info(FileSelector(f"{BUCKET}/{path}", recursive=True))
        names = sorted(f.path for f in found if f.path.endswith(".parquet") and "/_" not in f.path)
        return pa.concat_tables([pq.read_table(n, filesystem=there, partitioning=None) for n in names])

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        """slow: 503. gone: connections are closed."""
        (self.folder / kind).touch()
        try:
            yield
        finally:
            (self.folder / kind).unlink()


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """A server with an empty bucket. folder: of its log and faults."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with (folder / "s3.log").open("ab") as log:
        command = [os.environ[PYTHON], str(_SERVER), str(port), str(folder), KEY]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd="/")
    try:
        _make_bucket(port, process)
        yield S3(port, folder, process.pid)
    finally:
        process.kill()
        process.wait()


def _make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}
    end = time.monotonic() + WAIT_S
    while True:
        try:
            with urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT", headers=signed), timeout=10):
                return
        except (URLError, OSError):
            assert process.poll() is None, "the S3 server has ended"
            assert time.monotonic() < end, "the S3 server does not answer"
            time.sleep(0.1)
