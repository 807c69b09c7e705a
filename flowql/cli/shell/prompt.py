"""The terminal: a prompt with history, completion and several lines. The one door to prompt_toolkit, with `flowql dev`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from flowql.cli.shell.complete import suggestions
from flowql.cli.shell.session import Session
from flowql.cli.shell.split import split


class Prompt:
    """Asks a person for statements."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._name = session.project.name
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(history_file())),
            completer=_Completer(session),
            complete_while_typing=Condition(lambda: False),  # on Tab: a list that jumps up at every key is in the way
            multiline=True,
            prompt_continuation=lambda width, line, soft: "-> ".rjust(width),
            key_bindings=_keys(),
            enable_history_search=False,
        )

    def read(self) -> str:
        """The typed text, at least one statement or nothing. Raises EOFError (Ctrl-D) and KeyboardInterrupt (Ctrl-C)."""
        return self._prompt.prompt(f"{self._name}> ")


def history_file() -> Path:
    """In the user's folder for such things; readable by the user alone, as statements may name people."""
    state = os.environ.get("XDG_STATE_HOME")
    file = (Path(state) if state else Path.home() / ".local" / "state") / "flowql" / "history"
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    return file


def is_whole(text: str) -> bool:
    """Enter ends it: nothing, a command, or statements that all end with a semicolon."""
    whole, rest = split(text)
    return not rest or (not whole and rest.strip().lower() in ("quit", "exit", "help", "?"))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # takes what is chosen, and goes on
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


class _Completer(Completer):
    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions: tuple[str, ...] | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        return self._found(document)

    def _found(self, document: Document) -> Iterator[Completion]:
        if self._functions is None:
            from flowql.cli.shell.show import functions  # loads the catalogue, which the first prompt need not wait for

            self._functions = tuple(name for name, *_ in functions().rows)
        before = document.text_before_cursor
        _, begun = split(before)
        for s in suggestions(begun or before.strip(), document.text_after_cursor, self._session.names, self._functions):
            yield Completion(s.text, start_position=-s.length, display_meta=s.kind)
