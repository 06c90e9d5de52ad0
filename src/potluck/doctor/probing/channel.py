"""A connection between two machines that know the same token: every line carries a keyed checksum."""

import hmac
import secrets
import socket

import msgspec

from potluck.core.proofs import prove
from potluck.doctor.probing.asks import Answer, Ask, StationLostError

_LONGEST_BYTES = 1 << 22
_NONCE_HEX = 32
_HANDSHAKE_S = 5.0
_ANSWER_S = 60.0


class WrongTokenError(Exception):
    """The other side does not know the token."""


class Channel:
    """Lines of JSON, each with a checksum over its direction, its number and its text, keyed for this connection."""

    def __init__(self, connection: socket.socket, token: str, *, is_server: bool, begun: bytes = b"") -> None:
        """`begun` holds the bytes of the client's nonce that a server has already read."""
        self._connection = connection
        self._begun = begun
        self._reader = connection.makefile("rb")
        try:
            self._greet(token, is_server=is_server)
        except (OSError, WrongTokenError):
            self._reader.close()
            raise

    def _greet(self, token: str, *, is_server: bool) -> None:
        """Both sides send a nonce, and prove that they know the token with a key made of the token and both nonces."""
        connection = self._connection
        connection.settimeout(_HANDSHAKE_S)
        mine = secrets.token_hex(_NONCE_HEX // 2)
        connection.sendall(mine.encode() + b"\n")
        theirs = (self._begun + self._line()).decode("ascii", errors="replace")
        server, client = (mine, theirs) if is_server else (theirs, mine)
        self._key = prove(token.encode(), "doctor", server.encode(), client.encode())
        self._says, self._hears = (b"server", b"client") if is_server else (b"client", b"server")
        self._num_said = self._num_heard = 0
        self.say(b"{}")
        self.hear()
        connection.settimeout(_ANSWER_S)

    def say(self, line: bytes) -> None:
        """Send one line."""
        self._connection.sendall(self._checksum(self._says, self._num_said, line) + b" " + line + b"\n")
        self._num_said += 1

    def hear(self) -> bytes:
        """Receive the next line; WrongTokenError if its checksum is wrong."""
        checksum, _, line = self._line().partition(b" ")
        if not hmac.compare_digest(checksum, self._checksum(self._hears, self._num_heard, line)):
            raise WrongTokenError
        self._num_heard += 1
        return line

    def wait_forever(self) -> None:
        """Remove the timeout: the other side may send its next question at any time."""
        self._connection.settimeout(None)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._connection.close()

    def _line(self) -> bytes:
        line = self._reader.readline(_LONGEST_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the other side has gone")
        return line[:-1]

    def _checksum(self, direction: bytes, number: int, line: bytes) -> bytes:
        return prove(self._key, "line", direction, b"%d" % number, line).hex().encode()


class RemoteStation:
    """A machine at the other end of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def ask(self, question: Ask) -> Answer:
        """The answer of the other machine."""
        try:
            self._channel.say(msgspec.json.encode(question))
            answer: Answer = msgspec.json.decode(self._channel.hear(), type=Answer)
            return answer
        except (OSError, msgspec.DecodeError, WrongTokenError) as error:
            raise StationLostError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()
