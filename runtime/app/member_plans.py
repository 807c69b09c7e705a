"""The plans that a member learns of. While it cannot read the newest one it is out of its group: an instance of the version that wrote it takes over."""

from __future__ import annotations

from flowql.compiler.plan.deployed import Deployed
from flowql.runtime.app.plan_topic import PlanReader
from flowql.runtime.errors import NewerVersion
from flowql.runtime.events import ERROR, INFO, say
from flowql.runtime.placement.step import PlacementStep


class MemberPlans:
    """outdated: why this version cannot run what is deployed; for status. One thread, but for `stay_away` and `outdated`."""

    def __init__(self, reader: PlanReader | None, placement: PlacementStep) -> None:
        assert reader is not None, "a member reads the plan"
        self._reader, self._placement = reader, placement
        self.at_start = reader.at_start  # what was deployed when this instance began
        self._is_stuck = False
        self.outdated = ""

    @property
    def seen(self) -> int:
        """See `PlanReader.seen`. An unreadable record was not seen."""
        return 0 if self.outdated else self._reader.seen

    def newer(self, *, arrived: bool = False) -> Deployed | None:
        """See `PlanReader.newer`. NewerVersion: this member has left its group; any other LogError: nothing has changed."""
        try:
            self._placement.check_formats()
            found = self._reader.newer(arrived=arrived)
        except NewerVersion as error:
            if not self.outdated:
                say(ERROR, "member.outdated", f"{error}; this instance has left its group", code=error.code)
            self._set_outdated(str(error))
            raise
        if self.outdated:
            say(INFO, "member.returned", "it can read the newest plan: it joins its group again")
            self._set_outdated("")
        return found

    def stay_away(self, *, away: bool) -> None:
        """Leaves the group while a step of this member does not end, or joins it again. Any thread."""
        self._is_stuck = away
        self._tell()

    def _set_outdated(self, why: str) -> None:
        self.outdated = why
        self._tell()

    def _tell(self) -> None:
        self._placement.stay_away(away=self._is_stuck or bool(self.outdated))
