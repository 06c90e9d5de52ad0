"""Who may connect: machines that come are added to the context in use; one that leaves is in no context any more."""

import pytest

from potluck.gates.identity import load_or_make
from potluck.gates.member_certificates import MemberCertificates
from potluck.gates.messages import ClusterMachine


@pytest.fixture
def members(tmp_path):
    return [
        ClusterMachine(
            machine=name, number=number, certificate=load_or_make(tmp_path / name).certificate, addresses=(), port=1024
        )
        for number, name in enumerate(["rosa", "lily", "fern"], 1)
    ]


def test_a_machine_that_comes_is_added_and_one_that_leaves_is_forgotten(tmp_path, members):
    certificates = MemberCertificates(load_or_make(tmp_path / "own"))
    certificates.take(members[:1])
    first = certificates.context
    certificates.take(members)
    assert certificates.context is first, "nothing that was read is read again"
    assert first.cert_store_stats()["x509"] == 3
    certificates.take(members[1:])
    assert certificates.context is not first
    assert certificates.context.cert_store_stats()["x509"] == 2
    assert certificates.whose(b"") is None


def test_a_certificate_that_cannot_be_read_keeps_only_its_machine_out(tmp_path, members):
    certificates = MemberCertificates(load_or_make(tmp_path / "own"))
    certificates.take([*members, ClusterMachine(machine="bad", number=9, certificate="x", addresses=(), port=1024)])
    assert certificates.context.cert_store_stats()["x509"] == 3
