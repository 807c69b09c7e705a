"""A gateway in the process of a test, so that the test can look into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from flowql.config.api import ApiSettings
from flowql.gateway.gateway import Gateway
from flowql.server import listening
from flowql.server.address import read_address
from flowql.server.gateway_process import GatewayProcess
from flowql.server.host import Host
from flowql.server.ports import bound


@contextmanager
def gateway_of(host: Host, api: ApiSettings) -> Iterator[Gateway]:
    """Serves `api` for a running instance, at a port of its own choice."""
    settings = replace(host._settings, api=api)
    address = read_address(settings.data_dir)
    assert address is not None
    made = Gateway(settings, (address.port, address.token))
    try:
        made.serve_api(api, bound("127.0.0.1", 0, "api"))
        yield made
    finally:
        made.close()


def port_of(gateway: Gateway) -> int:
    (port,) = gateway.ports
    return port.number


class GatewayHere(GatewayProcess):
    """Serves `api` in threads of this process."""

    gateway: Gateway | None = None

    def begin(self, port: int, token: str) -> None:
        assert self._settings.api is not None
        self.gateway = Gateway(self._settings, (port, token))
        self.gateway.serve_api(self._settings.api, self._listeners["api"])

    def ask_end(self) -> None:
        pass

    def end(self) -> None:
        if self.gateway is not None:
            self.gateway.close()
        super().end()


@contextmanager
def served_here() -> Iterator[None]:
    """Instances that start meanwhile have a `GatewayHere`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "GatewayProcess", GatewayHere)
        yield


def gateway_here(host: Host) -> Gateway:
    assert host.listening is not None
    assert isinstance(host.listening.gateway, GatewayHere)
    assert host.listening.gateway.gateway is not None
    return host.listening.gateway.gateway
