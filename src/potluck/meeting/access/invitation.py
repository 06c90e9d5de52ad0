"""The line that a user pastes to join: the host's address, the token, and the fingerprint of the host's certificate."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
from dataclasses import dataclass

from potluck.core.errors import MeetingError
from potluck.core.version import FROM_THE_HOST
from potluck.gates.identity import digest_of

_VERSION = "p1"
# 128 bits of SHA-256: nobody can make another certificate with the same bits, and the line stays short.
FINGERPRINT_BYTES = 16
TOKEN_BYTES = 16
_CHECK_BYTES = 4
_NUM_PARTS = 4
_PASTE_AGAIN = "copy the whole line that potluck host printed, from p1- to its end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a machine needs to join a host."""

    address: str
    port: int
    token: bytes
    fingerprint: bytes

    def __str__(self) -> str:
        """p1-ADDRESS-PORT-SECRETS: letters, digits, dots, dashes and underscores only."""
        where = f"{_VERSION}-{self.address}-{self.port}"
        secrets = self.token + self.fingerprint
        return f"{where}-{base64.urlsafe_b64encode(secrets + _check(where, secrets)).decode().rstrip('=')}"

    def __repr__(self) -> str:
        return f"<invitation to {self.address}:{self.port}>"  # the token must not reach a log or a traceback


def fingerprint_of(der: bytes) -> bytes:
    """The bytes of a certificate's digest by which a joining machine recognises its host."""
    return digest_of(der)[:FINGERPRINT_BYTES]


def spell_token(token: bytes) -> str:
    """A token as people type it: groups of letters and digits."""
    text = base64.b32encode(token).decode().rstrip("=")
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def read_token(text: str) -> bytes:
    """Parse a typed token; dashes, spaces and case do not matter."""
    letters = text.replace("-", "").replace(" ", "").upper()
    try:
        token = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except binascii.Error:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise MeetingError("this is not a token", fix="type the one that potluck host prints under its line")
    return token


def read_invitation(text: str) -> Invitation:
    """Parse a pasted line; a checksum detects a line that was cut or changed."""
    text = text.strip().removeprefix("potluck join ").strip()
    parts = text.split("-", _NUM_PARTS - 1)
    if len(parts) != _NUM_PARTS or parts[0] != _VERSION:
        if parts[0][:1] == "p" and parts[0][1:].isdigit() and parts[0] != _VERSION:
            raise MeetingError("the line is from another version of Potluck", fix=FROM_THE_HOST)
        raise MeetingError("this is not a line from potluck host", fix=_PASTE_AGAIN)
    _, address, port, encoded = parts
    try:
        content = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        ipaddress.IPv4Address(address)
        number = int(port) if port.isascii() and port.isdigit() else 0
    except (binascii.Error, ValueError):
        content, number = b"", 0
    secrets, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
    is_whole = len(secrets) == TOKEN_BYTES + FINGERPRINT_BYTES and 0 < number < 65536
    if not is_whole or not hmac.compare_digest(check, _check(f"{_VERSION}-{address}-{port}", secrets)):
        raise MeetingError("the line was cut or changed when it was copied", fix=_PASTE_AGAIN)
    return Invitation(address=address, port=number, token=secrets[:TOKEN_BYTES], fingerprint=secrets[TOKEN_BYTES:])


def _check(where: str, secrets: bytes) -> bytes:
    return hashlib.sha256(where.encode() + b"-" + secrets).digest()[:_CHECK_BYTES]
