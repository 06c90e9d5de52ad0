"""POTLUCK_JOIN hands `potluck join` its line, and POTLUCK_NAME the machine's name."""

import os

import pytest

from potluck.cli.joining import find_invitation
from potluck.core.environment import read_environment, take_join_line, with_variables
from potluck.core.errors import MeetingError
from potluck.meeting.access.invitation import Invitation
from potluck.meeting.home import Home, HostMembership

LINE = Invitation(address="192.168.1.10", port=29500, token=bytes(range(16)), fingerprint=bytes(range(16, 32)))


def member_of(invitation: Invitation) -> HostMembership:
    return HostMembership(
        machine="lily",
        host="rosa",
        address=invitation.address,
        port=invitation.port,
        fingerprint=invitation.fingerprint.hex(),
        credential="c",
    )


def find(home: Home, line: str | None = None, *, variable: object = LINE) -> Invitation | None:
    return find_invitation(line, home, lambda _: None, str(variable))


def test_no_process_that_this_one_starts_inherits_the_line(monkeypatch):
    monkeypatch.setenv("POTLUCK_JOIN", f"potluck join {LINE}\n")
    assert take_join_line() == f"potluck join {LINE}"
    assert "POTLUCK_JOIN" not in with_variables({})
    assert "POTLUCK_JOIN" not in os.environ


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("POTLUCK_JOIN", "")  # what compose gives for a variable that is not set
    assert take_join_line() is None


def test_a_new_machine_joins_by_the_variable(tmp_path):
    assert find(Home(tmp_path)) == LINE
    assert find(Home(tmp_path), variable=f"potluck join {LINE}") == LINE


def test_a_line_that_is_typed_comes_before_the_variable(tmp_path):
    typed = Invitation(address="10.0.0.1", port=29501, token=LINE.token, fingerprint=LINE.fingerprint)
    assert find(Home(tmp_path), str(typed)) == typed


def test_a_machine_that_restarts_goes_back_with_its_own_credential(tmp_path):
    home = Home(tmp_path)
    home.remember(member_of(LINE))
    assert find(home) is None


def test_the_line_of_another_host_or_another_address_counts(tmp_path):
    home = Home(tmp_path)
    home.remember(member_of(LINE))
    moved = Invitation(address="192.168.1.11", port=29500, token=LINE.token, fingerprint=LINE.fingerprint)
    other = Invitation(address="192.168.1.10", port=29500, token=LINE.token, fingerprint=bytes(16))
    assert find(home, variable=moved) == moved
    assert find(home, variable=other) == other


def test_a_machine_that_was_sent_away_comes_back_by_a_typed_line_only(tmp_path):
    home = Home(tmp_path)
    home.remember(member_of(LINE))
    home.forget(sent_away_by=member_of(LINE))
    with pytest.raises(MeetingError, match="sent this machine away") as refused:
        find(home)
    assert "potluck join p1-" in refused.value.fix
    assert find(home, str(LINE)) == LINE
    home.remember(member_of(LINE))
    home.forget()
    assert find(home) == LINE


def test_a_damaged_line_names_the_variable_and_not_the_token(tmp_path):
    with pytest.raises(MeetingError, match="POTLUCK_JOIN: the line was cut") as refused:
        find(Home(tmp_path), variable=str(LINE)[:-3])
    assert str(LINE)[24:40] not in str(refused.value)


def test_the_variable_names_the_machine(monkeypatch):
    monkeypatch.setenv("POTLUCK_NAME", "attic")
    assert read_environment().machine == "attic"
