"""Reads the options of listed topics when somebody asks for one. Most readers of a list need names and partitions alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Lock

Ask = Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]


class Listed:
    """Topics that were listed together: the first read of an option of any asks for those of all, once. Safe from any thread."""

    def __init__(self, topics: Collection[str], ask: Ask) -> None:
        self._topics, self._ask, self._lock = topics, ask, Lock()
        self._found: Mapping[str, Mapping[str, str]] | None = None

    def options(self, topic: str) -> Mapping[str, str]:
        """Empty for a topic that has been deleted. LogDenied, LogUnavailable: the next call asks again."""
        with self._lock:
            if self._found is None:
                self._found = self._ask(self._topics)
            return self._found.get(topic, {})


class TopicOptions(Mapping[str, str]):
    """The options of one topic; a copy or a pickle of it is a dict."""

    def __init__(self, listed: Listed, topic: str) -> None:
        self._listed, self._topic = listed, topic

    def __getitem__(self, option: str) -> str:
        return self._listed.options(self._topic)[option]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed.options(self._topic))

    def __len__(self) -> int:
        return len(self._listed.options(self._topic))

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (dict(self),)
