"""Programs of the peers in Java, built by Maven into FlowQL's cache, once for each state of their sources."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from flowql.bench.measuring import BenchFailed
from flowql.kafka.jars import cache_dir, one_at_a_time

HERE = Path(__file__).parent
BUILD_S = 900


def built(part: str) -> Path:
    """The folder with the jars of `kafka_streams` or `flink_sql`. BenchFailed with the words of Maven."""
    folder = cache_dir() / f"peers-{part}-{_digest(HERE / part)}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchFailed("the peers are built by Maven (`mvn`), which is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent), tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
        work = Path(scratch) / part
        shutil.copytree(HERE / part, work, ignore=shutil.ignore_patterns("target"))
        done = subprocess.run([maven, "-B", "-q", "package"], cwd=work, capture_output=True, text=True, timeout=BUILD_S)
        if done.returncode:
            raise BenchFailed(f"{part} cannot be built: {(done.stdout + done.stderr)[-2000:]}")
        (work / "target").rename(folder)
    return folder


def version_of(part: str, name: str) -> str:
    """A version that a pom sets.

    >>> version_of("flink_sql", "flink.version").split(".")[0]
    '2'
    """
    found = re.search(rf"<{name}>(.+)</{name}>", (HERE / part / "pom.xml").read_text())
    assert found is not None, name
    return found.group(1)


def _digest(source: Path) -> str:
    files = sorted(p for p in source.rglob("*") if p.suffix in (".java", ".xml") and "target" not in p.parts)
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in files)).hexdigest()[:12]
