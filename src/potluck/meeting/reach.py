"""Whether two machines can dial each other on a real high port, as Gloo will: a listener, a word, a dial."""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

DIAL_S = 3.0
_WORD_BYTES = 32


@dataclass(frozen=True, slots=True)
class Listening:
    """A port that answers with a word, for a short time."""

    port: int
    word: str


@contextmanager
def listening(address: str) -> Iterator[Listening]:
    """Answer on a port that the kernel chooses, as it does for Gloo, until the block ends."""
    word = secrets.token_bytes(_WORD_BYTES)
    with socket.create_server((address, 0), backlog=8) as server:
        thread = threading.Thread(target=_answer, args=(server, word), name="potluck-reach", daemon=True)
        thread.start()
        try:
            yield Listening(server.getsockname()[1], word.hex())
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer(server: socket.socket, word: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(DIAL_S)
            connection.sendall(word)


def dial(address: str, port: int, word: str, timeout_s: float = DIAL_S) -> str:
    """Why that port cannot be dialled; empty if it answers with its word."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            answer = b""
            while len(answer) < _WORD_BYTES and (part := connection.recv(_WORD_BYTES - len(answer))):
                answer += part
    except TimeoutError:
        return f"no answer in {timeout_s:.0f} s, as when a firewall drops it"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return "" if answer.hex() == word else "something else answers there"
