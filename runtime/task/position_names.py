"""Names of positions in the metadata of a task."""

from __future__ import annotations

from collections.abc import Mapping

OF_SOURCE = "#"  # in names of positions, before the source of a channel or the ordinal; no topic has it in its name


def topic_named(position: str) -> str:
    """The topic of a position of that name (`LogInput.name`)."""
    return position.partition(OF_SOURCE)[0]


def source_named(position: str) -> int:
    """The source of the channel of a position of that name."""
    return int(position.partition(OF_SOURCE)[2])


def positions_of_input(positions: Mapping[str, int], ordinal: int) -> dict[str, int]:
    """By topic, the positions of the inputs of this ordinal; those of the first where an older version wrote one for all."""
    own = {name: at for name, at in positions.items() if OF_SOURCE not in name}
    return {topic: positions.get(numbered(topic, ordinal), at) for topic, at in own.items()} if ordinal else own


def numbered(topic: str, number: int) -> str:
    """The name of a position in a topic that has several."""
    return f"{topic}{OF_SOURCE}{number}"
