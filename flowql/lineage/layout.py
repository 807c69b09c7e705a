"""Where boxes and lines of a graph go: in layers from left to right (after Sugiyama, Tagawa and Toda, 1981).

Each box is one layer right of the last one it is made of, and a box nothing comes into as far right as its readers let it. A line
over several layers bends in each of them. Orders within layers are improved by barycentres, keeping the best found; heights are the
least-squares fit to the neighbours' heights that keeps the order and the gaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 16
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """layer: of each box, 0 left. height: of its middle, in units of one box and gap, from 0. bends: of each line, its heights in the
    layers between its ends.
    """

    layer: Mapping[str, int]
    height: Mapping[str, float]
    bends: Mapping[Edge, tuple[float, ...]]

    @property
    def layers(self) -> int:
        return 1 + max(self.layer.values(), default=0)

    @property
    def rows(self) -> float:
        heights = [*self.height.values(), *(h for bends in self.bends.values() for h in bends)]
        return 1 + max(heights, default=0.0)


def lay_out(names: Sequence[str], edges: Sequence[Edge]) -> GraphLayout:
    """names: each once. edges: between them; those that close a circle do not count for layers and get no bends."""
    forward = _without_circles(names, edges)
    layer = _layers(names, forward)
    chains = {e: _chain(e, layer) for e in forward}
    order = _ordered(names, layer, chains)
    steps = [(a, b) for chain in chains.values() for a, b in itertools.pairwise(chain)]
    height = _heights(order, steps)
    lowest = min(height.values(), default=0.0)
    height = {n: h - lowest for n, h in height.items()}
    bends = {e: tuple(height[n] for n in chain[1:-1]) for e, chain in chains.items()}
    return GraphLayout(layer, {n: height[n] for n in names}, {e: bends.get(e, ()) for e in edges})


def _without_circles(names: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    after: dict[str, list[str]] = {n: [] for n in names}
    for a, b in dict.fromkeys(edges):
        after[a].append(b)
    kept: list[Edge] = []
    done: set[str] = set()
    path: set[str] = set()

    def visit(name: str) -> None:
        path.add(name)
        for other in after[name]:
            if other in path:
                continue
            kept.append((name, other))
            if other not in done:
                visit(other)
        path.discard(name)
        done.add(name)

    for name in names:
        if name not in done:
            visit(name)
    return kept


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    layer = dict.fromkeys(names, 0)
    for _ in names:  # longest paths: at most so many rounds, usually few
        changed = False
        for a, b in edges:
            if layer[b] <= layer[a]:
                layer[b], changed = layer[a] + 1, True
        if not changed:
            break
    entered = {b for _, b in edges}
    for name in names:
        readers = [layer[b] for a, b in edges if a == name]
        if name not in entered and readers:
            layer[name] = min(readers) - 1
    return layer


def _chain(edge: Edge, layer: Mapping[str, int]) -> list[str]:
    """The line's ends and a name for each of its bends."""
    a, b = edge
    return [a, *(f"{a}\0{b}\0{i}" for i in range(layer[a] + 1, layer[b])), b]


def _ordered(names: Sequence[str], layer: Mapping[str, int], chains: Mapping[Edge, list[str]]) -> list[list[str]]:
    """The boxes and bends of each layer, from top to bottom."""
    order: list[list[str]] = [[] for _ in range(1 + max(layer.values(), default=0))]
    for name in names:
        order[layer[name]].append(name)
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for (a, _), chain in chains.items():
        for i, bend in enumerate(chain[1:-1], layer[a] + 1):
            order[i].append(bend)
        for left, right in itertools.pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    best, least = [list(o) for o in order], _crossings(order, after)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(1, len(order)) if down else range(len(order) - 2, -1, -1):
            _sort(order[i], order[i - 1 if down else i + 1], before if down else after)
        found = _crossings(order, after)
        if found < least:
            best, least = [list(o) for o in order], found
    return best


def _sort(layer: list[str], fixed: Sequence[str], neighbours: Mapping[str, list[str]]) -> None:
    at = {n: i for i, n in enumerate(fixed)}
    here = {n: float(i) for i, n in enumerate(layer)}

    def barycentre(name: str) -> float:
        places = [at[n] for n in neighbours.get(name, ())]
        return sum(places) / len(places) if places else here[name]

    layer.sort(key=barycentre)


def _crossings(order: Sequence[Sequence[str]], after: Mapping[str, list[str]]) -> int:
    total = 0
    for left, right in itertools.pairwise(order):
        at = {n: i for i, n in enumerate(right)}
        ends = [at[n] for name in left for n in sorted(after.get(name, ()), key=lambda n: at[n])]
        total += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return total


def _heights(order: Sequence[Sequence[str]], steps: Sequence[Edge]) -> dict[str, float]:
    height = {n: float(i) for layer in order for i, n in enumerate(layer)}
    neighbours: dict[str, list[str]] = {}
    for a, b in steps:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)

    def wanted(name: str) -> float:
        near = neighbours.get(name)
        return sum(height[n] for n in near) / len(near) if near else height[name]

    for sweep in range(SWEEPS):
        for layer in order if sweep % 2 else reversed(order):
            height.update(zip(layer, _spread(layer, wanted), strict=True))
    return height


def _spread(layer: Sequence[str], wanted: Callable[[str], float]) -> list[float]:
    """Heights in this order, at least 1 apart and as near as possible to those wanted (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean of wanted minus rank, boxes
    for i, name in enumerate(layer):
        mean, size = wanted(name) - i, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    return [mean + i for i, mean in enumerate(means)]
