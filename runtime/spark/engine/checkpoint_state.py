"""The state of a query out of its checkpoint, by a session: that of a live instance, or one opened for the question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.causes import cause_of
from flowql.runtime.spark.engine.checkpoints import REBUILD
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.state import Pinned
from flowql.runtime.spark.errors import CheckpointLost
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.stage.checkpoint import CheckpointSnapshot
from flowql.runtime.spark.stage.layout import layout_of
from flowql.runtime.state.store import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reader(spark: SparkSession, site: Site, plan: Plan) -> Callable[[Pinned], Snapshot]:
    """Opens the state of a query at a batch; some Spark jobs."""

    def read(at: Pinned) -> Snapshot:
        layout = layout_of(plan, at.query, site.partitions())
        try:
            assert (
                spark.streams.active is not None
            )  # asking for it makes the coordinator of state stores, which readers call
            return CheckpointSnapshot(spark, site.checkpoint(at.query.id), layout, at.batch)
        except Exception as error:  # what Spark raises has no common root, and its text dies with the session
            raise CheckpointLost(
                f"the state of {at.query.id} cannot be read: {cause_of(error)}", help=REBUILD
            ) from error

    return read


@contextmanager
def reader_at_rest(site: Site, plan: Plan) -> Iterator[Callable[[Pinned], Snapshot]]:
    """The same without a live instance: Spark is started for the first query whose state is asked for (some seconds)."""
    opened: list[SparkSession] = []

    def read(at: Pinned) -> Snapshot:
        if not opened:
            opened.append(open_session(site.settings, f"{site.application_id}-question", site.state_dir))
        return reader(opened[0], site, plan)(at)

    try:
        yield read
    finally:
        for session in opened:
            close_session(session)
