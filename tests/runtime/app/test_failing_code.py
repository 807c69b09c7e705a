"""How code of a project that fails while it runs is shown: the code of the error, the text, and the lines of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowql.compiler.processors.stores import KeyValueStore
from flowql.compiler.processors.topology import Topology
from tests.registries import forget_projects
from tests.runtime.app.topologies import Topologies

MODULE = """
from flowql import Processor

class Sound(Processor):
    def process(self, key, value):
        self.context.forward(key, value)

"""
# What the module has besides, and what makes the processor. Only what fails for one record leaves a dead letter.
MISTAKES = {
    "exception in init": (
        "class P(Sound):\n    def init(self, context):\n        raise ValueError('no connection')\n",
        "P",
    ),
    "factory that raises": ("def made():\n    return Sound(port=1)\n", "made"),
    "factory that makes no processor": ("def made():\n    return object()\n", "made"),
    "exception in a punctuation": (
        "class P(Sound):\n    def init(self, context):\n        super().init(context)\n        context.schedule(10)\n\n"
        "    def punctuate(self, timestamp):\n        raise ValueError('no')\n",
        "P",
    ),
    "name that is not there": ("class P(Sound):\n    def process(self, key, value):\n        undefined\n", "P"),
    "exception in process": ("class P(Sound):\n    def process(self, key, value):\n        1 / 0\n", "P"),
    "unserialisable state": (
        "class P(Sound):\n    def process(self, key, value):\n        self.context.store('s').put(key, object())\n",
        "P",
    ),
    "state of another type": (
        "class P(Sound):\n    def process(self, key, value):\n        self.context.store('s').put(key, 'one')\n",
        "P",
    ),
    "store without a name": (
        "class P(Sound):\n    def process(self, key, value):\n        self.context.store('t')\n",
        "P",
    ),
    "value of another type": (
        "class P(Sound):\n    def process(self, key, value):\n        self.context.forward(key, {'N': 'one'})\n",
        "P",
    ),
}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_projects()


def shown(source: str, name: str) -> str:
    """The dead letter, or why the query failed."""
    module: dict[str, Any] = {"__name__": "m"}
    exec(compile(MODULE + source, "m.py", "exec"), module)
    mine = (
        Topology("MINE")
        .add_source("s", "IN_")
        .add_processor("p", module[name], "s")
        .add_state_store(KeyValueStore("s", key=int, value=int), "p")
        .add_sink("o", "OUT", "p")
    )
    world = Topologies(mine)
    world.send("in", [(1, {"N": 1}, 10), (1, {"N": 2}, 30)])
    world.rest()
    letters = world.dead_letters("MINE")
    return (
        f"{letters[0]['CODE']}: {letters[0]['MESSAGE']}" if letters else world.instance.query_states.of("MINE").reason
    )


def test_failures_have_a_code_and_the_lines_of_the_module(golden: Callable[[str, str], None]) -> None:
    found = {name: shown(*mistake) for name, mistake in MISTAKES.items()}
    golden("functions/failing_code.txt", "\n\n".join(f"-- {n}\n{text}" for n, text in found.items()) + "\n")
    assert all(text.startswith("FQ403") for text in found.values())
