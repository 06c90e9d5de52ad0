"""A machine's key is made once, is only its owner's, and is known by its certificate."""

import ssl

import pytest

from potluck.core.errors import GateError
from potluck.gates.identity import load_or_make, make_certificate


def test_it_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    first = load_or_make(tmp_path / "identity")
    assert load_or_make(tmp_path / "identity") == first
    for file in (first.certificate_file, first.key_file, first.certificate_file.parent):
        assert file.stat().st_mode & 0o077 == 0


def test_no_two_machines_have_the_same_name_in_their_certificates(tmp_path):
    """OpenSSL looks up by name: with equal names it may compare with the wrong one, and refuse both."""
    names = set()
    for number in range(3):
        identity = load_or_make(tmp_path / str(number))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=identity.certificate)
        names.add(str(context.get_ca_certs()[0]["subject"]) if context.get_ca_certs() else identity.certificate)
    assert len(names) == 3


@pytest.mark.parametrize("file", ["certificate.pem", "key.pem"])
@pytest.mark.parametrize("content", ["", "nonsense", None])
def test_a_damaged_one_says_what_to_remove(tmp_path, file, content):
    load_or_make(tmp_path / "identity")
    path = tmp_path / "identity" / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(GateError, match="identity") as refused:
        load_or_make(tmp_path / "identity")
    assert f"rm -r {tmp_path / 'identity'};" in refused.value.fix


def test_another_machines_key_does_not_fit(tmp_path):
    load_or_make(tmp_path / "identity")
    (tmp_path / "identity" / "key.pem").write_text(make_certificate()[1])
    with pytest.raises(GateError):
        load_or_make(tmp_path / "identity")


def test_no_changed_byte_is_a_traceback(tmp_path):
    """Some changes name an algorithm or a version that there is not."""
    identity = load_or_make(tmp_path)
    der = ssl.PEM_cert_to_DER_cert(identity.certificate)
    refused = 0
    for place in range(len(der)):
        changed = bytes([*der[:place], der[place] ^ 1, *der[place + 1 :]])
        identity.certificate_file.write_text(ssl.DER_cert_to_PEM_cert(changed))
        try:
            load_or_make(tmp_path)
        except GateError:
            refused += 1
    assert refused > 0.98 * len(der)
