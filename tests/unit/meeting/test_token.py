"""The host's token and what is made of it: each key is good for one thing, and none tells the token."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import MeetingError
from potluck.meeting.access.token import (
    dashboard_password,
    kept_token,
    load_or_make_token,
    metrics_key,
    write_metrics_key,
)

tokens = st.binary(min_size=16, max_size=16)


@given(tokens, tokens)
def test_keys_differ_by_token_and_purpose(one, other):
    keys = [metrics_key(one), dashboard_password(one)]
    assert len(set(keys)) == 2
    assert (one == other) == (keys == [metrics_key(other), dashboard_password(other)])
    assert one.hex() not in "".join(keys)


def test_a_token_is_made_once_and_kept(tmp_path):
    assert kept_token(tmp_path) is None
    token = load_or_make_token(tmp_path)
    assert kept_token(tmp_path) == load_or_make_token(tmp_path) == token
    write_metrics_key(tmp_path, token)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_token_is_named_with_its_fix(tmp_path):
    (tmp_path / "token").write_text("nonsense")
    with pytest.raises(MeetingError, match="is damaged") as error:
        kept_token(tmp_path)
    assert error.value.fix.startswith("rm ")
