"""The host's self-signed certificate: made once, kept, and known to others by its fingerprint."""

import datetime
import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path

from potluck.meeting.home import write_secret

# 128 bits of SHA-256: finding a second certificate with the same ones is out of reach, and the line stays short.
FINGERPRINT_BYTES = 16
# For programs that know the certificate by its file and ask for a name: addresses change, this does not.
NAME = "potluck-host"
_YEARS = 10


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two files, and what others know the certificate by."""

    certificate_file: Path
    key_file: Path
    fingerprint: bytes


def fingerprint_of(der: bytes) -> bytes:
    """What a machine that joins compares."""
    return hashlib.sha256(der).digest()[:FINGERPRINT_BYTES]


def load_or_make(folder: Path) -> Certificate:
    """The folder's certificate, made if there is none."""
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    if not (certificate_file.is_file() and key_file.is_file()):
        certificate, key = _make()
        write_secret(key_file, key)
        write_secret(certificate_file, certificate)
    der = ssl.PEM_cert_to_DER_cert(certificate_file.read_text())
    return Certificate(certificate_file, key_file, fingerprint_of(der))


def _make() -> tuple[str, str]:
    from cryptography import x509  # noqa: PLC0415  needed once in a host's life
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()
