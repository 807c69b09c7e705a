"""Errors of the Spark engine. Each has a stable code FQ41xx and says what to type (`help`)."""

from __future__ import annotations

from flowql.runtime.errors import RuntimeFailure


class SparkFailure(RuntimeFailure, code="FQ4100"):
    """Root of what Spark cannot do. `help`: the way round; it is part of the text."""

    def __init__(self, title: str, *, help: str = "") -> None:
        super().__init__(f"{title}\nhelp: {help}" if help else title)
        self.title, self.help = title, help

    def __reduce__(self) -> tuple[object, ...]:
        """Exceptions cross from Spark's workers by pickle, which would call `__init__` with the joined text."""
        return _rebuilt, (type(self), dict(self.__dict__), self.args)


class SparkMissing(SparkFailure, code="FQ4101"):
    """PySpark, or a package it needs, is not installed."""


class JavaMissing(SparkFailure, code="FQ4102"):
    """There is no Java that Spark can run on."""


class SparkVersion(SparkFailure, code="FQ4103"):
    """An installed package has an unsupported version."""


class SessionFailed(SparkFailure, code="FQ4104", retriable=True):
    """Spark did not start."""


class SessionDied(SparkFailure, code="FQ4119", retriable=True):
    """Spark's JVM has ended by itself; what is committed stays, and the next run goes on from there."""


class SessionInUse(SparkFailure, code="FQ4105"):
    """A process has one Spark, and this one has another already."""


class SettingRefused(SparkFailure, code="FQ4106"):
    """A Spark property that decides what results mean is not the user's to set."""


class SparkUnsupported(SparkFailure, code="FQ4110"):
    """A node that cannot run on Spark. way_round: what to write or choose instead."""

    def __init__(self, node: str, reason: str, way_round: str, *, query: str = "") -> None:
        of = f" of query {query}" if query else ""
        super().__init__(f"{node}{of} does not run on Spark: {reason}", help=way_round)
        self.node, self.reason, self.way_round, self.query = node, reason, way_round, query


class CheckpointLost(SparkFailure, code="FQ4111"):
    """A query has run before, and its checkpoint is gone or cannot be read."""


class CheckpointOfOtherQuery(SparkFailure, code="FQ4112"):
    """The checkpoint was made by another definition of the query."""


class ResultsOfBatch(SparkFailure, code="FQ4115"):
    """Results in the log were made as batches and a stream was asked for, or the other way round."""


class ConnectorMissing(SparkFailure, code="FQ4113"):
    """Jars that Spark needs for a source or sink are not here."""


class FilesUnfit(SparkFailure, code="FQ4116"):
    """Files that cannot stand for a topic, or rows that cannot be written to such files."""


class FrameUnfit(SparkFailure, code="FQ4117"):
    """A DataFrame that cannot stand for a source of the plan."""


class WorkersUnfit(SparkFailure, code="FQ4118"):
    """Workers of a cluster lack a package, have another version than the driver, or do not see a folder that they need."""


class StorageFailed(SparkFailure, code="FQ4120", retriable=True):
    """The file system of an address refuses access, has no such bucket, or does not answer."""


class SparkQueryFailed(SparkFailure, code="FQ4114", retriable=True):
    """A query raised inside Spark; the others go on."""


def _rebuilt(kind: type[SparkFailure], state: dict[str, object], args: tuple[object, ...]) -> SparkFailure:
    failure = kind.__new__(kind)
    failure.args = args
    failure.__dict__.update(state)
    return failure
