"""Whoever is not a member gets in nowhere, and the run does not feel it."""

import pytest

from benchmarks.outsider import LONGEST_STALL_S, attack
from benchmarks.service_siege import MOST_VERSION_S

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(900), pytest.mark.real_world]


def test_an_outsider_learns_takes_and_disturbs_nothing(tmp_path):
    result = attack(tmp_path)
    assert [name for name, one in result["attacks"].items() if not one["held"]] == []
    assert result["broken"] == 0
    assert result["same_bits"]
    assert result["longest_stall_s"] <= LONGEST_STALL_S
    assert result["version_bodies_longest_s"] <= MOST_VERSION_S  # while others send JSON without a credential
    assert result["version_idle_longest_s"] <= MOST_VERSION_S  # while others hold idle connections
