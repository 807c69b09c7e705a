"""An alarm for each sensor that has sent nothing for half a minute, and the end of the alarm when it sends again.

A missing reading is not a record, so SQL cannot see it: a punctuation looks at the time of every sensor's last reading. Stream time counts, so a replay of
old readings raises the same alarms; it goes on as long as any sensor of the partition sends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from flowql import KeyValueStore, Processor, ProcessorContext, Topology

SILENCE_MS = 30_000
LOOK_EVERY = timedelta(seconds=10)


@dataclass
class Sensor:
    """The time of the last reading, in ms, and whether there is an alarm."""

    last_ms: int
    is_silent: bool


class Watch(Processor):
    """Knows when each sensor was seen last."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.sensors = context.store("sensors")
        context.schedule(LOOK_EVERY, self.look)

    def process(self, key: Any, value: Any) -> None:
        known = self.sensors.get(key)
        last_ms = max(self.context.timestamp, known.last_ms if known else 0)
        if known and known.is_silent:
            self._tell(key, "back", last_ms)
        self.sensors.put(key, Sensor(last_ms, is_silent=False))

    def look(self, timestamp: int) -> None:
        for key, sensor in self.sensors.all():
            if not sensor.is_silent and timestamp - sensor.last_ms > SILENCE_MS:
                self._tell(key, "silent", sensor.last_ms)
                self.sensors.put(key, replace(sensor, is_silent=True))

    def _tell(self, key: str, status: str, last_ms: int) -> None:
        self.context.forward(key, {"STATUS": status, "LAST_SEEN": last_ms})


alarms = (
    Topology("ALARMS")
    .add_source("readings", "READINGS")
    .add_processor("watch", Watch, "readings")
    .add_state_store(KeyValueStore("sensors", key=str, value=Sensor), "watch")
    .add_sink("changes", "STATUS_CHANGES", "watch")
)
