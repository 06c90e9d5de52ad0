"""Showing that one knows a secret without sending it: a keyed digest of a purpose and of what both sides chose."""

import hmac


def prove(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """HMAC-SHA256 over the purpose and the parts, each with its length: no other purpose or parts give the same."""
    message = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))
    return hmac.digest(secret, message, "sha256")
