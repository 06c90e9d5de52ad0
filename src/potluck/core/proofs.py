"""Proves knowledge of a shared secret without sending it: an HMAC of a purpose and of values that both sides know."""

import hmac


def prove(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """HMAC-SHA256 over the purpose and the parts, each prefixed by its length, so that no other parts give the same."""
    message = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))
    return hmac.digest(secret, message, "sha256")
