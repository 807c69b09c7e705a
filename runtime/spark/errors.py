"""Errors of the Spark engine. Each has a stable code FQ41xx and says what to type (`help`)."""

from __future__ import annotations

from flowql.runtime.errors import RuntimeFailure


class SparkFailure(RuntimeFailure):
    """Root of what Spark cannot do. `help`: the way round; it is part of the text."""

    code = "FQ4100"

    def __init__(self, title: str, *, help: str = "") -> None:
        super().__init__(f"{title}\nhelp: {help}" if help else title)
        self.title, self.help = title, help

    def __reduce__(self) -> tuple[object, ...]:
        """Exceptions cross from Spark's workers by pickle, which would call `__init__` with the joined text."""
        return _rebuilt, (type(self), dict(self.__dict__), self.args)


class SparkMissing(SparkFailure):
    """PySpark, or a package it needs, is not installed."""

    code = "FQ4101"


class JavaMissing(SparkFailure):
    """There is no Java that Spark can run on."""

    code = "FQ4102"


class SparkVersion(SparkFailure):
    """What is installed is of another version than this was made for."""

    code = "FQ4103"


class SessionFailed(SparkFailure):
    """Spark did not start."""

    code = "FQ4104"
    retriable = True


class SessionDied(SparkFailure):
    """Spark's JVM has ended by itself; what is committed stays, and the next run goes on from there."""

    code = "FQ4119"
    retriable = True


class SessionInUse(SparkFailure):
    """A process has one Spark, and this one has another already."""

    code = "FQ4105"


class SettingRefused(SparkFailure):
    """A Spark property that decides what results mean is not the user's to set."""

    code = "FQ4106"


class SparkUnsupported(SparkFailure):
    """A node that cannot run on Spark. way_round: what to write or choose instead."""

    code = "FQ4110"

    def __init__(self, node: str, reason: str, way_round: str, *, query: str = "") -> None:
        of = f" of query {query}" if query else ""
        super().__init__(f"{node}{of} does not run on Spark: {reason}", help=way_round)
        self.node, self.reason, self.way_round, self.query = node, reason, way_round, query


class CheckpointLost(SparkFailure):
    """A query has run before, and its checkpoint is gone or cannot be read."""

    code = "FQ4111"


class CheckpointOfOtherQuery(SparkFailure):
    """The checkpoint was made by another definition of the query."""

    code = "FQ4112"


class ResultsOfBatch(SparkFailure):
    """Results in the log were made as batches and a stream was asked for, or the other way round."""

    code = "FQ4115"


class ConnectorMissing(SparkFailure):
    """Jars that Spark needs for a source or sink are not here."""

    code = "FQ4113"


class FilesUnfit(SparkFailure):
    """Files that cannot stand for a topic, or rows that cannot be written to such files."""

    code = "FQ4116"


class FrameUnfit(SparkFailure):
    """A DataFrame that cannot stand for a source of the plan."""

    code = "FQ4117"


class WorkersUnfit(SparkFailure):
    """Workers of a cluster lack a package, have another version than the driver, or do not see a folder that they need."""

    code = "FQ4118"


class StorageFailed(SparkFailure):
    """The file system of an address refuses access, has no such bucket, or does not answer."""

    code = "FQ4120"
    retriable = True


class SparkQueryFailed(SparkFailure):
    """A query raised inside Spark; the others go on."""

    code = "FQ4114"
    retriable = True


def _rebuilt(kind: type[SparkFailure], state: dict[str, object], args: tuple[object, ...]) -> SparkFailure:
    failure = kind.__new__(kind)
    failure.args = args
    failure.__dict__.update(state)
    return failure
