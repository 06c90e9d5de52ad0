"""A port for a benchmark on this computer."""

import socket


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
