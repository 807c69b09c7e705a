"""File systems behind addresses such as `s3a://lake/orders`: whether they answer, and what their errors mean.

Hadoop's clients repeat a request for minutes where no server answers, and report a refusal as an exception of Java. So an address is looked up
with a limit of time before Spark uses it, and errors become `StorageFailed`. No text of the file system is passed on: it may hold what is secret.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flowql.runtime.clock import SystemClock
from flowql.runtime.spark.errors import ConnectorMissing, SettingRefused, SparkFailure, StorageFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_S = 15.0
START_TIMEOUT = (
    "spark.flowql.startTimeout"  # how long file systems and workers have for an answer, where a person says so
)
LONGER = f"a cluster that is busy, or starts executors slowly, gets more time by  conf: {{{START_TIMEOUT}: 2min}}"
FORGET_MS = 15_000  # so long no query waits again for a file system that has not answered
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s:'`\"]+")
_DURATION, _SECONDS = re.compile(r"(\d+)\s*(s|min|m|h)?"), {"s": 1, "m": 60, "min": 60, "h": 3600}
_PATTERN = re.compile(r"[^/]*[*?\[{]")
_LOGIN = re.compile(r"(?<=://)[^/@:]*:[^/]*@")
_STATUS = re.compile(r"Status Code: (\d+)")
_S3 = "spark.hadoop.fs.s3a"
# Names of exceptions in what Java says, why, and what to do. The first that is found counts.
_REASONS = (
    (
        r"NoSuchBucket|UnknownStoreException|ContainerNotFound|FilesystemNotFound",
        "there is no such bucket or container",
        f"make it, or correct the address or the endpoint ({_S3}.endpoint for s3a)",
    ),
    (
        r"AccessDeniedException|AccessControlException|NoAuthWithAWSException|InvalidAccessKeyId|SignatureDoesNotMatch|"
        r"CredentialInitializationException|Unable to load credentials|AbfsRestOperationException[^\n]*40[13]",
        "access is refused",
        f"give Spark credentials that have rights there, in `conf` of the target or of the session ({_S3}.access.key and {_S3}.secret.key, "
        "or a provider of credentials, for s3a)",
    ),
    (
        r"UnknownHostException|NoRouteToHostException|ConnectException|ConnectTimeout|SocketTimeoutException|SocketException|NoHttpResponse|"
        r"AWSServiceThrottledException|AWSServiceIOException|AWSStatus500Exception|ApiCallTimeout|ApiCallAttemptTimeout|AWSClientIOException|"
        r"SlowDown|Unable to execute HTTP request",
        "its server does not answer",
        f"see whether the endpoint is right ({_S3}.endpoint for s3a) and answers on this machine; then run it again: nothing is lost",
    ),
)
_NO_CLIENT = re.compile(
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\.\S+ not found"
)
_JARS = (
    "add the jars of its client. For s3a:  conf: {spark.jars.packages: 'org.apache.hadoop:hadoop-aws:3.5.0,"
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1'}"
)
_SILENT, SILENT_HELP = _REASONS[-1][1:]

_clock = SystemClock()
_lock = threading.Lock()  # guards `_failed`
_failed: dict[str, int] = {}  # when a file system has not answered


def reach(spark: SparkSession, *paths: str) -> None:
    """Asks the file systems of addresses. Raises StorageFailed or ConnectorMissing after ANSWER_S, or what START_TIMEOUT says.

    Folders of this machine, and what a session of Spark Connect reads, are not asked for.
    """
    for path in paths:
        if is_remote(path) and hasattr(spark, "_jsparkSession"):
            _reach(spark, path)


def answer_s(spark: SparkSession, usual: float) -> float:
    """Seconds that file systems and workers have for an answer. Raises SettingRefused for a value that is no duration."""
    said = spark.conf.get(START_TIMEOUT, None)
    if said is None:
        return usual
    found = _DURATION.fullmatch(said.strip())
    if found is None or not int(found[1]):
        raise SettingRefused(f"{START_TIMEOUT} is {said!r}, which is not a duration", help="write 90s, 2min or 1h")
    return float(int(found[1]) * _SECONDS[found[2] or "s"])


def is_remote(path: str) -> bool:
    """Whether an address is of another file system than this machine's."""
    return "://" in path and urlsplit(path).scheme not in ("", "file")


@contextmanager
def told_of_storage(place: str = "") -> Iterator[None]:
    """Raises what file systems report as StorageFailed; other errors pass. place: an address, "" to take the one of the error."""
    try:
        yield
    except SparkFailure:
        raise
    except Exception as error:  # PySpark has a class of its own for some of Spark's
        found = storage_failure(error, place)
        if found is None:
            raise
        raise found from error


def storage_failure(error: BaseException, place: str = "") -> SparkFailure | None:
    """The failure for an error of Spark about the file system of an address; None for other errors."""
    said = str(error)
    if not place:
        found = _ADDRESS.search(said)
        place = found[0].rstrip("/.,;)") if found else ""
    if not is_remote(place):
        return None
    if _NO_CLIENT.search(said):
        return ConnectorMissing(
            f"{_shown(place)} cannot be used: this Spark has no client for {_scheme(place)}", help=_JARS
        )
    for names, reason, help_ in _REASONS:
        if re.search(names, said):
            status = _STATUS.search(said)
            return StorageFailed(
                f"{_shown(place)} cannot be used: {reason}{f' ({status[1]})' if status else ''}", help=help_
            )
    return None


def _reach(spark: SparkSession, path: str) -> None:
    where = urlsplit(path)
    system = f"{where.scheme}://{where.netloc}"
    seconds = answer_s(spark, ANSWER_S)
    silent = StorageFailed(
        f"{_shown(path)} cannot be used: {_SILENT} within {seconds:.0f} s", help=f"{SILENT_HELP}; {LONGER}"
    )
    with _lock:
        if system in _failed and _clock.timer_ms() - _failed[system] < FORGET_MS:
            raise silent
    answered, failure = _asked(spark, path, seconds)
    if not answered:
        with _lock:
            _failed[system] = _clock.timer_ms()
        raise silent
    if failure is not None:
        raise failure


def _asked(spark: SparkSession, path: str, seconds: float) -> tuple[bool, SparkFailure | None]:
    """Whether the file system has answered in time, and how it failed."""
    said: list[BaseException | None] = []

    def ask() -> None:
        try:
            file_system, at = hadoop(spark, _PATTERN.split(path, maxsplit=1)[0])
            file_system.exists(at)
            said.append(None)
        except Exception as error:  # of Java, of every kind
            said.append(error)

    if not ends_within(seconds, ask):
        return False, None
    return True, None if said[0] is None else storage_failure(said[0], path)


def ends_within(seconds: float, call: Callable[[], object]) -> bool:
    """Calls something that may not come back for minutes, in a thread; whether it has ended in that time. What it raises it has to handle itself."""
    thread = threading.Thread(target=call, name="spark-storage", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of an address, as Spark's own writers find it, and the path in it."""
    at = spark._jvm.org.apache.hadoop.fs.Path(path)
    return at.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), at


def _shown(place: str) -> str:
    """An address without credentials."""
    return _LOGIN.sub("", place)


def _scheme(place: str) -> str:
    return urlsplit(place).scheme
