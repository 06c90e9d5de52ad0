"""The lines for a machine without Potluck."""

import shlex

import pytest

from potluck.meeting.access.install_lines import OfferedWheel, install_lines, release_of
from potluck.meeting.access.invitation import Invitation, read_invitation
from potluck.meeting.access.token import dashboard_password, metrics_key, wheel_key

INVITATION = Invitation(address="10.0.0.1", port=29501, token=bytes(range(16)), fingerprint=bytes(16))
WHEEL = OfferedWheel(key="abcd", name="potluck-0.1.0-py3-none-any.whl", sha256="0f" * 32, torch="2.13.0")
URL = f"http://10.0.0.1:29501/abcd/potluck-0.1.0-py3-none-any.whl#sha256={'0f' * 32}"


def test_both_lines_install_the_pinned_wheel_and_join():
    for line in install_lines(WHEEL, INVITATION):
        words = shlex.split(line)
        assert URL in words
        assert "torch==2.13.0" in words
        assert words[-3:-1] == ["potluck", "join"]
        assert read_invitation(words[-1]) == INVITATION
        assert "\n" not in line


def test_torch_between_two_releases_is_not_asked_for():
    wheel = OfferedWheel(key="abcd", name=WHEEL.name, sha256=WHEEL.sha256)
    assert all("torch==" not in line for line in install_lines(wheel, INVITATION))


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0+cpu", "2.13.0"),
        ("2.12.1", "2.12.1"),
        ("2.14.0.dev20261101+cu130", ""),
        ("2.14.0a0+git12", ""),
        ("", ""),
    ],
)
def test_the_release_of_a_build(version, release):
    assert release_of(version) == release


def test_the_key_in_the_url_tells_no_other_secret():
    token = bytes(range(16))
    key = wheel_key(token)
    assert len(key) == 16
    assert key.isalnum()
    assert key not in metrics_key(token)
    assert key not in dashboard_password(token).replace("-", "").lower()
    assert wheel_key(bytes(16)) != key
