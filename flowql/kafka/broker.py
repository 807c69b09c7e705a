"""One broker in one directory: made, started, asked, stopped."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from flowql.errors import CommandError
from flowql.kafka.bootstrap import STATE_FILE
from flowql.kafka.jars import KAFKA_VERSION, kafka_jars
from flowql.kafka.java import find_java
from flowql.runtime.log.kafka.connection import answers
from flowql.runtime.log.kafka.versions import FAULTY_SINCE, release_of

NOT_STARTED, PORT_TAKEN = "FQ5503", "FQ5504"
PORT_DEFAULT = 9092
MEMORY_MB = 512
READY_S, STOP_S = 90.0, 30.0
_POLL_S = 0.1
_FEATURE = b"\x11metadata.version"  # with its length, as in Kafka's records
_NO_PROPERTIES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker's process. started: when, as the system tells it, so that another process with its number is not taken for it."""

    pid: int
    port: int
    controller_port: int
    started: float

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


class Broker:
    """The broker of a directory; its records survive `stop` and `kill`.

    >>> Broker(Path("nowhere")).running() is None
    True
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log_file = self.directory / "broker.log"
        self._file = self.directory / STATE_FILE

    def running(self) -> BrokerProcess | None:
        """Its process, if there is one."""
        known = self._known()
        return known if known is not None and _process(known) is not None else None

    def start(
        self,
        *,
        port: int | None = None,
        memory_mb: int = MEMORY_MB,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        java_options: Sequence[str] = (),
    ) -> BrokerProcess:
        """Start it if it does not run, and wait until it answers.

        port: else the one it had before, else 9092, else a free one. Raises CommandError with the end of its log.
        """
        running = self.running()
        if running is None:
            running = self._launch(self._ports(port), properties, [f"-Xmx{memory_mb}m", *java_options])
        elif port not in (None, running.port):
            title = f"the broker of {self.directory} runs on port {running.port}"
            raise CommandError(title, code=PORT_TAKEN, help="flowql kafka down   # first")
        self._await_ready(running)
        return running

    def stop(self) -> bool:
        """End it in order; True if it ran."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """End it as a power cut would (for tests); True if it ran."""
        return self._end(signal.SIGKILL)

    def _known(self) -> BrokerProcess | None:
        try:
            return BrokerProcess(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None

    def _ports(self, wanted: int | None) -> tuple[int, int]:
        known = self._known()
        if wanted is not None and not _free(wanted):
            raise CommandError(
                f"port {wanted} is taken", code=PORT_TAKEN, help="flowql kafka up --port 0   # any free one"
            )
        if wanted is None:
            before = known.port if known is not None else PORT_DEFAULT
            wanted = before if _free(before) else 0
        port = wanted or _free_port()
        controller = known.controller_port if known is not None and _free(known.controller_port) else _free_port()
        return port, controller

    def _launch(self, ports: tuple[int, int], more: Mapping[str, str], options: Sequence[str]) -> BrokerProcess:
        java, jars, data = str(find_java()), kafka_jars(), self.directory / "data"
        if (level := _metadata_level(data)) >= FAULTY_SINCE:
            title = (
                f"{self.directory} was made by Kafka {release_of(level) or '(a newer release)'}, and brokers of {KAFKA_VERSION} do not open it: its "
                f"metadata.version ({level}) cannot be lowered"
            )
            raise CommandError(title, code=NOT_STARTED, help="flowql kafka up --dir OTHER   # an empty directory")
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text(server_properties(data, *ports, more))
        classes = ["-cp", f"{jars}/*"]
        with self.log_file.open("ab") as log:
            if not (data / "meta.properties").exists():
                self._format([java, "-XX:TieredStopAtLevel=1", *classes, "kafka.tools.StorageTool", "format"], config)
            process = subprocess.Popen(
                [java, "-XX:+UseSerialGC", *options, *classes, "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process.returncode = 0  # it outlives this process: no complaint when this object goes
        running = BrokerProcess(process.pid, *ports, psutil.Process(process.pid).create_time())
        self._file.write_text(json.dumps({name: getattr(running, name) for name in BrokerProcess.__slots__}))
        return running

    def _format(self, tool: list[str], config: Path) -> None:
        said = subprocess.run(
            [*tool, "-t", cluster_id(), "-c", str(config), "--standalone"],
            capture_output=True,
            text=True,
            timeout=READY_S,
        )
        if said.returncode:
            title = f"the broker's directory cannot be made: {(said.stderr or said.stdout).strip()[-500:]}"
            raise CommandError(title, code=NOT_STARTED)

    def _await_ready(self, running: BrokerProcess) -> None:
        limit = time.monotonic() + READY_S
        while not answers(running.bootstrap):
            process = _process(running)
            if process is None or time.monotonic() > limit:
                reason = "ended" if process is None else f"does not answer after {READY_S:.0f} s"
                raise CommandError(
                    f"the broker {reason}: {self._last_words()}", code=NOT_STARTED, help=f"see {self.log_file}"
                )
            time.sleep(_POLL_S)

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _end(self, how: signal.Signals) -> bool:
        known = self._known()
        process = _process(known) if known is not None else None
        if process is None:
            return False
        process.send_signal(how)
        _reap(process)
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            _reap(process)
        return True


def _metadata_level(data: Path) -> int:
    """The highest `metadata.version` in the metadata of a directory; 0 for a new one. In a FeatureLevelRecord the level follows the name."""
    files = [*data.glob("bootstrap.checkpoint"), *data.glob("__cluster_metadata-0/*.checkpoint")]
    parts = (part[:2] for file in files for part in file.read_bytes().split(_FEATURE)[1:])
    return max((int.from_bytes(part, "big") for part in parts), default=0)


def cluster_id() -> str:
    """A new cluster's id as Kafka writes them: 22 characters that do not look like an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _process(running: BrokerProcess) -> psutil.Process | None:
    try:
        process = psutil.Process(running.pid)
        same = abs(process.create_time() - running.started) < 1.0
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def _reap(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ChildProcessError):  # it was started by another process
        os.waitpid(process.pid, os.WNOHANG)


def _free(port: int) -> bool:
    if port == 0:
        return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_properties(data: Path, port: int, controller_port: int, more: Mapping[str, str]) -> str:
    """The text of server.properties. more: beats what is here.

    Sessions end quickly, so that an instance that was killed is missed after seconds. Brokers create no topics by themselves: a request for the
    metadata of a deleted topic would make it again.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Records carry the times of what happened: by the usual seven days history would be gone as soon as it is written.
        "log.retention.ms": "-1",
        # A stopped broker should not wait for anything; a started one recovers few, small logs.
        "controlled.shutdown.enable": "false",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }
    return "".join(f"{name}={value}\n" for name, value in {**properties, **more}.items())
