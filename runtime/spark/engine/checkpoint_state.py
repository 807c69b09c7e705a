"""The state of a query out of its checkpoint, by a session: that of a live instance, or one opened for this purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.causes import cause_of
from flowql.runtime.spark.engine.checkpoints import REBUILD
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.state import Pinned
from flowql.runtime.spark.errors import CheckpointLost
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.stage.checkpoint import CheckpointSnapshot
from flowql.runtime.spark.stage.layout import layout_of
from flowql.runtime.state.store import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LazySession: TypeAlias = "Callable[[], SparkSession]"  # started when it is first called


def reader(session: LazySession, site: Site, plan: Plan) -> Callable[[Pinned], Snapshot]:
    """Opens the state of a query at a batch; some Spark jobs. session: asked for then."""

    def read(at: Pinned) -> Snapshot:
        layout, spark = layout_of(plan, at.query, site.partitions(), buckets=at.buckets), session()
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
def session_at_rest(settings: SparkSettings, application_id: str, state_dir: Path) -> Iterator[LazySession]:
    """A session without a live instance: Spark is started when it is first asked for (some seconds)."""
    opened: list[SparkSession] = []

    def session() -> SparkSession:
        if not opened:
            opened.append(open_session(settings, f"{application_id}-query", state_dir))
        return opened[0]

    try:
        yield session
    finally:
        for each in opened:
            close_session(each)
