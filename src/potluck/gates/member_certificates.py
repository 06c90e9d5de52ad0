"""The certificates of the other members: who may connect to this gate, and whose certificate one is."""

import ssl
from collections.abc import Iterable
from functools import lru_cache

from potluck.gates import secure
from potluck.gates.identity import Identity, digest_of
from potluck.gates.loopback import MOST_MACHINES
from potluck.gates.messages import ClusterMachine


class MemberCertificates:
    """Of all members but this machine; nobody's before the first `take`."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._by_digest: dict[bytes, ClusterMachine] = {}
        self._trusted: set[str] = set()
        self.context = secure.members_only(identity, [])

    def take(self, others: Iterable[ClusterMachine]) -> None:
        """Know these machines, and no others any more."""
        members = list(others)
        certificates = {one.certificate for one in members}
        if self._trusted <= certificates:
            # Reading a certificate takes half a millisecond: too long to read all of a large cluster for each new one.
            secure.trust(self.context, certificates - self._trusted)
        else:  # a context cannot forget a certificate
            self.context = secure.members_only(self._identity, certificates)
        self._trusted = certificates
        self._by_digest = {digest: one for one in members if (digest := _digest(one.certificate))}

    def whose(self, certificate: bytes) -> ClusterMachine | None:
        """The machine with this certificate, None if it is no member's."""
        return self._by_digest.get(digest_of(certificate))


@lru_cache(maxsize=MOST_MACHINES)
def _digest(certificate: str) -> bytes:
    """The digest of a member's certificate; empty if it cannot be parsed, which keeps only that machine out."""
    try:
        return digest_of(ssl.PEM_cert_to_DER_cert(certificate))
    except ValueError:
        return b""
