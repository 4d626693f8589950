"""Ports stay ours between two lives of a child."""

from __future__ import annotations

import socket

import pytest

from controlplane.stack.failures import StackError
from controlplane.stack.ports import PortReservations


def listen(port: int) -> socket.socket:
    """What every server does: SO_REUSEADDR, bind, listen."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


@pytest.fixture
def ports() -> PortReservations:
    return PortReservations()


def test_child_can_listen_on_a_reserved_port_again_and_again(ports: PortReservations) -> None:
    port = ports.reserve(0, setting="PORT")
    for _ in range(3):
        with listen(port), socket.create_connection(("127.0.0.1", port)):
            pass
    ports.release()


def test_nobody_gets_a_reserved_port_meanwhile(ports: PortReservations) -> None:
    taken = {ports.reserve(0, setting="PORT") for _ in range(50)}
    assert len(taken) == 50
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", min(taken)))
    ports.release()


def test_taken_port_names_the_setting(ports: PortReservations) -> None:
    with listen(0) as other:
        port = other.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} .* SHOAL_WEB_PORT"):
            ports.reserve(port, setting="SHOAL_WEB_PORT")


def test_port_with_connections_of_the_last_stack_can_be_had_again(ports: PortReservations) -> None:
    with listen(0) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        # the side that closes first lingers in TIME_WAIT
        accepted.close()
        client.close()
    assert ports.reserve(port, setting="PORT") == port
    ports.release()
