import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import MeetingError
from potluck.meeting.access.invitation import Invitation, read_invitation, read_token, spell_token

INVITATION = Invitation(address="192.168.1.10", port=29500, token=bytes(range(16)), fingerprint=bytes(range(16, 32)))
invitations = st.builds(
    Invitation,
    address=st.ip_addresses(v=4).map(str),
    port=st.integers(1, 65535),
    token=st.binary(min_size=16, max_size=16),
    fingerprint=st.binary(min_size=16, max_size=16),
)


@given(invitations)
def test_what_is_printed_is_what_is_read(invitation):
    line = str(invitation)
    assert read_invitation(line) == invitation
    assert read_invitation(f"  potluck join {line}\n") == invitation
    assert all(character.isalnum() or character in "-_." for character in line)


@given(invitations, st.data())
def test_a_line_that_was_cut_or_changed_is_recognised(invitation, data):
    line = str(invitation)
    cut = line[: data.draw(st.integers(0, len(line) - 1))]
    with pytest.raises(MeetingError):
        read_invitation(cut)
    place = data.draw(st.integers(3, len(line) - 2))
    other = data.draw(st.sampled_from("abcXYZ019_").filter(lambda character: character != line[place]))
    with pytest.raises(MeetingError):
        read_invitation(line[:place] + other + line[place + 1 :])


@given(st.text())
def test_anything_else_is_refused_with_a_fix(text):
    with pytest.raises(MeetingError) as refused:
        read_invitation(text)
    assert refused.value.fix


def test_a_line_of_another_version_says_so():
    with pytest.raises(MeetingError, match="another version"):
        read_invitation("p2" + str(INVITATION)[2:])


def test_an_invitation_does_not_show_its_token_by_accident():
    secret = str(INVITATION).split("-", 3)[3]  # it may hold dashes itself
    assert secret not in repr(INVITATION)
    assert str(INVITATION.token) not in repr(INVITATION)


@given(st.binary(min_size=16, max_size=16))
def test_a_typed_token_may_be_spelled_carelessly(token):
    spelled = spell_token(token)
    assert read_token(spelled) == read_token(spelled.lower().replace("-", " ")) == token


@pytest.mark.parametrize("text", ["", "AAAA", "!!!!", "1" * 26])
def test_a_wrong_token_is_refused(text):
    with pytest.raises(MeetingError, match="not a token"):
        read_token(text)
