"""Whether this machine's loopback interface takes any address of 127.0.0.0/8, as Linux does by itself."""

import socket

ANY_ADDRESS = "127.77.16.1"  # an address that nothing else uses
_PATIENCE_S = 1.0


def try_loopback(address: str = ANY_ADDRESS) -> str:
    """Listen on the address, connect to it and send a byte; empty if that works, else what went wrong."""
    try:
        with socket.create_server((address, 0)) as server:
            server.settimeout(_PATIENCE_S)
            with socket.create_connection(server.getsockname(), timeout=_PATIENCE_S) as dialled:
                met, _ = server.accept()
                with met:
                    met.sendall(b"!")
                    if dialled.recv(1) != b"!":
                        return "something else answers there"
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()
    return ""
