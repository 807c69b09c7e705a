"""A background instance: `python -m flowql.server.daemon` is its process. `flowql.server.spawn` starts one."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace

from flowql.deploy.settings import Settings
from flowql.errors import CommandError, RuntimeFailure
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.events import ERROR, say
from flowql.server.host import Host
from flowql.server.supervised import adopted, is_started_again


def main(arguments: list[str]) -> int:
    """The background process: the file descriptor to report to, `-` for none; settings come as JSON on its standard input."""
    adopted()
    settings = Settings.loads(sys.stdin.read())
    if is_started_again():
        settings = replace(settings, without=())  # paused by the first start; perhaps resumed since
    report_fd = None if arguments[0] == "-" else int(arguments[0])
    if settings.engine == "runtime":
        leave_pandas_out()
    host = Host(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: host.request_stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        host.start()
    except CommandError as error:
        return _report(report_fd, {"code": error.code, "title": error.title, "help": error.help})
    except RuntimeFailure as error:
        return _report(report_fd, {"code": error.code, "title": str(error), "help": ""})
    _report(report_fd, {"ready": "yes"})
    try:
        host.serve()
    except CommandError as error:
        say(ERROR, "instance.broken", error.title)
        return 1
    finally:
        host.close()
    return 0


def _report(fd: int | None, answer: dict[str, str]) -> int:
    if fd is None and "title" in answer:
        say(ERROR, "instance.broken", answer["title"])
    elif fd is not None and not _told(fd, answer) and "title" in answer:
        sys.stderr.write(f"error[{answer['code']}]: {answer['title']}\n")  # there may be no log yet
    return 1


def _told(fd: int, answer: dict[str, str]) -> bool:
    """Whether the command that started the instance still waits for its answer."""
    try:
        os.write(fd, json.dumps(answer).encode())
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
