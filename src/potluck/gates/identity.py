"""A machine's key and self-signed certificate, made once: other machines know it by the certificate itself."""

import datetime
import hashlib
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from potluck.core.atomic import write_secret
from potluck.core.errors import GateError
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote

# The DNS name in every certificate, for programs that verify a name: addresses change, this name does not.
NAME = "potluck"
_YEARS = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """The files of certificate and key, and the certificate in PEM form."""

    certificate_file: Path
    key_file: Path
    certificate: str
    is_new: bool = field(default=False, compare=False)
    """Made just now: no other machine knows this certificate yet."""

    @property
    def digest(self) -> bytes:
        return digest_of(ssl.PEM_cert_to_DER_cert(self.certificate))


def digest_of(der: bytes) -> bytes:
    """SHA-256 of a certificate in DER form, by which a gate recognises a member."""
    return hashlib.sha256(der).digest()


def load_or_make(folder: Path) -> Identity:
    """The identity in a folder, made if there is none; GateError if it is damaged."""
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    is_new = not certificate_file.exists() and not key_file.exists()
    if is_new:
        certificate, key = make_certificate()
        write_secret(key_file, key)
        write_secret(certificate_file, certificate)
    try:
        pem = read_plain(certificate_file).decode("ascii")
        read_plain(key_file)
        _check_own_signature(pem)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate_file, key_file)
    except (OSError, ValueError, ssl.SSLError) as error:
        missing = [file.name for file in (certificate_file, key_file) if not file.exists()]
        what = f"{missing[0]} is missing" if missing else str(error) or "it is not a certificate"
        raise GateError(
            f"this machine's identity in {folder} is damaged: {what}",
            fix=f"rm -r {quote(folder)}; a new one is made, and the host's line has to be pasted again: here, or, if "
            "this machine is the host, on every other one, since they know it by its certificate",
        ) from None
    return Identity(certificate_file, key_file, pem, is_new=is_new)


def _check_own_signature(pem: str) -> None:
    """ValueError if a certificate was changed: one changed letter may leave it readable, but others do not know it."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        # A changed letter may also name an algorithm or a version that there is not.
        raise ValueError("the certificate is not as it was made") from None


def ends_at(certificate: str) -> float:
    """When a certificate in PEM form expires, in seconds since 1970; ValueError if the text is no certificate."""
    from cryptography import x509  # noqa: PLC0415

    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()


def make_certificate(days: float = 365 * _YEARS) -> tuple[str, str]:
    """A new self-signed certificate and its key, in PEM form."""
    from cryptography import x509  # noqa: PLC0415  needed once in a machine's life
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    # OpenSSL looks up certificates by name, so each certificate has a name of its own.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{NAME} {secrets.token_hex(16)}")])
    # A machine whose clock is behind must not find that the certificate is not valid yet.
    begins = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=2)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=2 + days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()
