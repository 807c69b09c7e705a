"""The one line of an exception of Spark that says what went wrong. No pyspark."""

from __future__ import annotations

import re

from flowql.runtime import errors
from flowql.runtime.errors import KeysMisplaced, RuntimeFailure
from flowql.runtime.spark import errors as spark_errors
from flowql.runtime.spark.errors import ConnectorMissing, SparkFailure, StorageFailed, WorkersUnfit
from flowql.runtime.spark.storage import storage_failure

LENGTH_MAX = 400
_PYTHON_END = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Failure|Exit|Interrupt|Missing|Lost|Unsupported|Corrupt|Full)?: .+$"
)
_JAVA = re.compile(r"(?:Caused by: )?((?:[a-z][\w]*\.)+[A-Z][\w$]*): ?(.*)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] *(.*)")
# A worker that registered after the others were compared with the driver.
_NO_FLOWQL, _WHERE = "No module named 'flowql", re.compile(r"\((\S+) executor (\S+)\)")
# The end of the traceback of one of our own errors of this engine, which a micro-batch has raised in the driver.
_OF_SPARK = re.compile(r"\bruntime\.spark\.errors\.(\w+): ([^\n]*)(?:\n\s*help: ([^\n]*))?")
_WRAPPERS = ("Py4JJavaError", "SparkException", "StreamingQueryException", "PythonException")


def cause_of(error: BaseException) -> str:
    """The message for a person: the error behind Spark's, without stacks; of a task on a cluster also its host."""
    cause, where = _cause(error), _WHERE.search(str(error))
    if where is None or where[2] == "driver" or WorkersUnfit.code in cause:
        return cause
    return _short(f"on {where[1]}: {cause}")


def _cause(error: BaseException) -> str:
    known = runtime_failure(error)
    if known is not None:
        return f"{type(known).__name__}: {known}"
    if _NO_FLOWQL in str(error):
        where = _WHERE.search(str(error))
        return f"{WorkersUnfit.__name__} ({WorkersUnfit.code}): worker {where[1] if where else 'of the cluster'} has no FlowQL"
    if isinstance(error, StorageFailed | ConnectorMissing):
        return f"{type(error).__name__} ({error.code}): {error.title}; {error.help}"
    if (failed := storage_failure(error)) is not None:
        return f"{type(failed).__name__} ({failed.code}): {failed.title}; {failed.help}"
    if isinstance(error, RuntimeFailure):
        return _short(f"{type(error).__name__}: {error}".splitlines()[0])
    if (told := _OF_SPARK.search(str(error))) is not None:
        kind = getattr(spark_errors, told[1], SparkFailure)
        return _short(f"{told[1]} ({kind.code}): {told[2]}" + (f"; {told[3]}" if told[3] else ""))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _short(
        _python_line(lines) or _java_line(lines) or _lost_task(lines) or (lines[0] if lines else type(error).__name__)
    )


def _python_line(lines: list[str]) -> str:
    """The last line of the last Python traceback in a text."""
    starts = [i for i, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if not starts:
        return ""
    for line in lines[starts[-1] + 1 :]:
        if _PYTHON_END.match(line) and not line.startswith(("File ", "at ")):
            return line
    return ""


def _java_line(lines: list[str]) -> str:
    """The innermost cause that says something; of a condition such as [CANNOT_LOAD_STATE_STORE] its text."""
    causes = [m for line in lines if (line.startswith("Caused by: ") or line is lines[0]) and (m := _JAVA.match(line))]
    for found in reversed(causes):
        name = found[1].rpartition(".")[2]
        if found[2] and (name not in _WRAPPERS or found is causes[0]):
            return f"{name}: {found[2]}"
    for line in lines:
        condition = _CONDITION.search(line)
        if condition is not None:
            return f"{condition[1]}: {condition[2]}"
    return ""


def _lost_task(lines: list[str]) -> str:
    """Why a task was lost, of the line that names stage, task and host as well."""
    where = _WHERE.search(lines[0]) if lines else None
    if where is None:
        return ""
    said = lines[0][where.end() :].removeprefix(":").strip()
    named = _JAVA.match(said)
    return said if named is None else f"{named[1].rpartition('.')[2]}: {named[2]}"


def _short(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else f"{text[: LENGTH_MAX - 3]}..."


# The last line of a Python traceback: module, class, message. The message ends with its line.
_RAISED = re.compile(r"\bruntime\.errors\.(\w+): ([^\n]*)")


def runtime_failure(error: BaseException) -> RuntimeFailure | None:
    """The runtime's error behind an exception of Spark, of its own class; None if it was another.

    A data source runs in Spark's Python workers: what it raises comes back as text inside an exception of Spark or py4j.
    """
    if isinstance(error, KeysMisplaced):
        return error
    for found in _RAISED.finditer(str(error)):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, RuntimeFailure):
            return kind(found[2].strip())
    return None
