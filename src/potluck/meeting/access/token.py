"""The host's token, and single-purpose keys derived from it, which can be handed out where the token must not."""

import base64
import hmac
import secrets
from pathlib import Path

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.meeting.access.invitation import TOKEN_BYTES

_METRICS_FILE = "metrics-key"
_PASSWORD_BYTES = 10
_WHEEL_KEY_BYTES = 10


def load_or_make_token(folder: Path) -> bytes:
    """The host's token: made at first start and kept."""
    if not _token_file(folder).exists():
        write_secret(_token_file(folder), secrets.token_hex(TOKEN_BYTES))
    return _read(_token_file(folder))


def restore_token(folder: Path, token: bytes) -> None:
    """Keep the token of a host whose place this machine takes."""
    write_secret(_token_file(folder), token.hex())


def kept_token(folder: Path) -> bytes | None:
    """The token of the host on this machine, if there ever was one."""
    return _read(_token_file(folder)) if _token_file(folder).exists() else None


def metrics_key(token: bytes) -> str:
    """The key with which a program may read the metrics, and do nothing else."""
    return _derive(token, "metrics").hex()


def write_metrics_key(folder: Path, token: bytes) -> None:
    """Write the metrics key to a file, for whoever configures a Prometheus scraper."""
    write_secret(folder / _METRICS_FILE, metrics_key(token))


def dashboard_password(token: bytes) -> str:
    """The password for the dashboard from other machines: 80 bits, in groups of four characters."""
    text = base64.b32encode(_derive(token, "dashboard")[:_PASSWORD_BYTES]).decode()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def wheel_key(token: bytes) -> str:
    """The part of the wheel's URL that strangers do not know: 80 bits, as 16 lower-case letters and digits."""
    return base64.b32encode(_derive(token, "wheel")[:_WHEEL_KEY_BYTES]).decode().lower()


def _derive(token: bytes, purpose: str) -> bytes:
    return hmac.digest(token, f"potluck-{purpose}-1".encode(), "sha256")


def _token_file(folder: Path) -> Path:
    return folder / "token"


def _read(path: Path) -> bytes:
    try:
        token = bytes.fromhex(read_plain(path).decode())
    except (ValueError, OSError):
        token = b""
    if len(token) != TOKEN_BYTES:
        raise MeetingError(f"{path} is damaged", fix=f"rm -r {quote(path)}; machines that have joined stay joined")
    return token
