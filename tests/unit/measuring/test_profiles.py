"""Trials and the profiles that are kept of them."""

import time

import pytest

from potluck.core.environment import read_environment
from potluck.core.errors import PotluckError
from potluck.measuring.compute_fit import profile_from_trial
from potluck.measuring.profile_store import StoredProfile, find_profile, find_profiles, read_profile, save_profile
from potluck.measuring.trial import run_trial, sizes_up_to
from potluck.planning.costs import ComputeProfile, LinkProfile

COMPUTE = ComputeProfile(fixed_s=0.01, per_sample_s=0.002, memory_cap=32, error=0.02, curve=((4, 0.02), (8, 0.03)))
LINK = LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1e8)


def profile(machine="rosa", **more):
    values = {"device": "cpu", "model": "resnet18-base", "precision": "no", "gradient_bytes": 44, **more}
    return StoredProfile(machine=machine, compute=COMPUTE, link=LINK, trial={4: 0.02}, **values)


def test_a_kept_profile_is_found_again(tmp_path):
    save_profile(tmp_path, profile())
    assert find_profile(tmp_path, "rosa", "cpu", "resnet18-base", "no") == profile()
    assert find_profile(tmp_path, "rosa", "cuda:0", "resnet18-base", "no") is None


def test_a_newer_one_takes_its_place_and_others_stay(tmp_path):
    for number in (1, 2):
        save_profile(tmp_path, profile(gradient_bytes=number))
    save_profile(tmp_path, profile("lily"))
    save_profile(tmp_path, profile("lily", model="bert-base"))
    found = find_profiles(tmp_path, "resnet18-base", "no")
    assert [(one.machine, one.gradient_bytes) for one in found] == [("lily", 44), ("rosa", 2)]


def test_a_name_never_leaves_the_folder(tmp_path):
    path = save_profile(tmp_path, profile(model="../../etc/passwd"))
    assert path.parent == tmp_path / "profiles" / "rosa"


@pytest.mark.parametrize("text", ["", "{}", '{"machine": 3}', profile().model_dump_json().replace("0.002", "-1.0")])
def test_a_damaged_profile_is_named_with_its_fix(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(PotluckError) as caught:
        read_profile(path)
    assert "potluck profile" in caught.value.fix


def test_home_is_where_the_variable_says(workplace, monkeypatch):
    monkeypatch.setenv("POTLUCK_HOME", str(workplace / "kept"))
    assert read_environment().home == workplace / "kept"


def test_a_trial_measures_the_cost_of_real_steps():
    seconds = run_trial(lambda size: time.sleep(0.004 + 0.001 * size), [1, 2, 4, 8], budget_s=0.3)
    fitted = profile_from_trial(seconds)
    assert min(map(len, seconds.values())) >= 3
    assert fitted.seconds(16) == pytest.approx(0.02, rel=0.3)


def test_a_trial_leaves_out_sizes_that_there_is_no_time_for():
    assert max(run_trial(lambda size: time.sleep(0.002 * size), sizes_up_to(512), budget_s=0.3)) < 64


def test_sizes_double_and_include_the_largest():
    assert sizes_up_to(48) == [1, 2, 4, 8, 16, 32, 48]
    assert sizes_up_to(64) == [1, 2, 4, 8, 16, 32, 64]
    assert sizes_up_to(1) == [1]
