"""The configuration of one broker that is also its own controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def server_properties(data: Path, port: int, controller_port: int, more: Mapping[str, str]) -> str:
    """The text of server.properties. more: beats what is here.

    Sessions end quickly, so that an instance that was killed is missed after seconds. Topics are made by who needs them, never
    because somebody asked about one that is gone.
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
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        # Records carry the times of what happened: by the usual seven days history would be gone as soon as it is written.
        "log.retention.ms": "-1",
        # A stopped broker should not wait for anything; a started one recovers few, small logs.
        "controlled.shutdown.enable": "false",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }
    return "".join(f"{name}={value}\n" for name, value in {**properties, **more}.items())
