"""Machines that nobody has measured: the table of devices, its correction by measured machines, what users write."""

import json

import pytest

from potluck.core.errors import MeasureError
from potluck.measuring.device_speeds import CARDS, doubt_between, find_speed
from potluck.measuring.imagined import imagine, read_wish, with_wishes
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.costs import ComputeProfile, LinkProfile


def profile(machine, per_sample_s, specification="", device="cpu"):
    return StoredProfile(
        machine=machine,
        device=device,
        model="simple_cnn-base",
        precision="no",
        compute=ComputeProfile(fixed_s=0.0, per_sample_s=per_sample_s),
        gradient_bytes=1_600_000,
        specification=specification,
    )


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("RTX 3060", "RTX 3060"),
        ("NVIDIA GeForce RTX 3080", "RTX 3080"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla T4", "T4"),
        ("rtx3080", "RTX 3080"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX 3080 Max-Q"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("8-core laptop", "8-core laptop"),
    ],
)
def test_devices_are_found_as_people_and_drivers_name_them(named, found):
    assert find_speed(named).name == found


def test_an_unknown_device_is_not_guessed():
    assert find_speed("abacus") is None


def test_the_table_is_in_order_and_every_row_has_a_source():
    assert all(0 < card.fp32 < 10 and (card.mixed is None or card.mixed > card.fp32) for card in CARDS)
    assert all(card.source for card in CARDS)
    assert len({card.name for card in CARDS}) == len(CARDS)


def test_a_machine_with_half_the_cores_of_a_measured_one_is_half_as_fast():
    (added,) = imagine(read_wish("jade=4-core CPU"), [profile("iris", 0.002, "8-core CPU")])
    assert added.machine == "jade"
    assert added.compute.solo_speed(64) == pytest.approx(250)
    assert added.compute.error == pytest.approx(0.15)


def test_every_measured_machine_corrects_the_table():
    fast = profile("one", 0.001, "RTX 3090", "cuda:0")
    slow = profile("two", 1 / 522 / 0.8, "RTX 3070", "cuda:0")
    (alone,) = imagine(read_wish("RTX 3080"), [fast])
    (both,) = imagine(read_wish("RTX 3080"), [fast, slow])
    assert alone.compute.solo_speed(64) == pytest.approx(816)
    assert both.compute.solo_speed(64) == pytest.approx(816 * 0.8**0.5, rel=0.01)
    assert both.device == "cuda:0"


def test_between_processors_and_cards_the_doubt_is_large():
    assert doubt_between(find_speed("RTX 3060"), find_speed("8-core laptop")) > 0.5
    assert doubt_between(find_speed("4-core box"), find_speed("8-core box")) < 0.2


def test_a_machine_may_be_a_part_of_a_measured_one():
    (added,) = imagine(read_wish("0.5 of rosa,wifi"), [profile("rosa", 0.002)])
    assert added.compute.solo_speed(64) == pytest.approx(250)
    assert added.link.bandwidth_bytes_per_s == 12.5e6
    assert added.link.error > 0


def test_many_machines_get_names_of_their_own():
    known = [profile("rosa", 0.002)]
    found = with_wishes(known, ["3x 1 of rosa,1gbit", "1 of rosa"], [])
    assert [one.machine for one in found] == ["like-rosa", "like-rosa-1", "like-rosa-2", "like-rosa-3", "rosa"]


def test_one_times_a_machine_is_that_machine():
    assert (read_wish("1x 1 of rosa").count, read_wish("1x 1 of rosa").specification) == (1, "1 of rosa")
    assert (read_wish("2 x rosa").count, read_wish("2 x rosa").specification) == (1, "2 x rosa")
    two = read_wish("2x T4,1gbit", {"rosa"})
    assert (two.count, two.specification) == (2, "T4"), "no measured machine is called T4"


@pytest.mark.parametrize("text", ["20 RTX 3060,wifi", "1.5x RTX 3060", "shelf=2x 8-core laptop,1gbit"])
def test_a_count_that_would_be_taken_for_a_part_of_the_device_is_refused(text):
    with pytest.raises(MeasureError, match="how many machines") as error:
        with_wishes([profile("rosa", 0.002, "8-core CPU")], [text], [])
    assert "3x " in error.value.fix
    assert [read_wish(fine).count for fine in ("8 core laptop", "3060 Ti", "shelf=2 x rosa")] == [1, 1, 1]


def test_a_copy_of_a_machine_with_a_cpu_quota_has_the_quota_too():
    quota = profile("rosa", 0.001, "8-core CPU").model_copy(update={"stretch": 2.5})
    assert imagine(read_wish("1 of rosa"), [quota])[0].stretch == 2.5
    (larger,) = imagine(read_wish("16-core CPU"), [quota])
    assert larger.compute.solo_speed(64) / larger.stretch == pytest.approx(2 * 1000 / 2.5)


def test_a_machine_that_replaces_a_measured_one_does_not_inherit_its_links():
    slow = LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=2.5e6)
    known = [profile("oak", 0.001), profile("elm", 0.001).model_copy(update={"peers": {"oak": slow, "ash": slow}})]
    found = with_wishes(known, ["oak=0.5 of elm,1gbit"], ["oak"])
    assert [one.machine for one in found] == ["elm", "oak"]
    assert found[0].peers.keys() == {"ash"}


def test_machines_can_be_left_out_but_still_be_compared_with():
    found = with_wishes([profile("iris", 0.002, "8-core CPU")], ["jade=4-core CPU"], ["iris"])
    assert [one.machine for one in found] == ["jade"]


@pytest.mark.parametrize(
    ("add", "without", "says"),
    [
        (["abacus"], [], "knows no speed of 'abacus'"),
        (["8-core laptop"], [], "no measured machine says what it is"),
        (["0.5 of fern"], [], "no machine 'fern' was measured"),
        (["0.5 of rosa,pigeon"], [], "'pigeon' in --add"),
        ([","], [], "names no device"),
        ([], ["fern"], "no machine 'fern' for --without"),
        ([], ["rosa"], "no machine is left"),
    ],
)
def test_what_cannot_be_imagined_is_refused_with_a_fix(add, without, says):
    with pytest.raises(MeasureError, match=says) as error:
        with_wishes([profile("rosa", 0.002)], add, without)
    assert error.value.fix


def test_plan_says_what_a_machine_brings_and_when_the_run_ends(tmp_path, monkeypatch, capsys):
    from typer.testing import CliRunner

    from potluck.cli import app

    monkeypatch.setenv("POTLUCK_HOME", str(tmp_path))
    file = tmp_path / "rosa.json"
    file.write_text(profile("rosa", 0.002, "8-core CPU").model_dump_json())
    command = [
        "plan",
        "--solo",
        str(file),
        "--global-batch",
        "256",
        "--add",
        "jade=4-core CPU,1gbit",
        "--steps",
        "1000",
    ]
    result = CliRunner().invoke(app, command)
    assert "with jade: " in result.output
    assert "1,000 steps with --exchange exact take " in result.output
    told = json.loads(CliRunner().invoke(app, [*command, "--json", "--exchange", "int4"]).output)
    assert told["samples_per_s"] > told["samples_per_s_before"] == pytest.approx(500)
    assert told["finish_s_low"] < told["finish_s"] < told["finish_s_high"]


def test_simulate_writes_a_run_that_report_shows(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from potluck.cli import app

    monkeypatch.setenv("POTLUCK_HOME", str(tmp_path))
    monkeypatch.setenv("POTLUCK_RUNS_DIR", str(tmp_path / "runs"))
    file = tmp_path / "rosa.json"
    file.write_text(profile("rosa", 0.002, "8-core CPU").model_dump_json())
    command = ["simulate", "--solo", str(file), "--add", "2x 4-core CPU,1gbit", "--steps", "30", "--json"]
    told = json.loads(CliRunner().invoke(app, command).stdout)
    assert told["steps"] == 30
    shown = CliRunner().invoke(app, ["report", told["run"]])
    assert "simulated" in shown.output
    refused = CliRunner().invoke(app, [*command, "--lose", "lily"])
    assert "write it as --lose lily@180" in refused.exception.fix


@pytest.mark.parametrize("other", ["RTX 30", "RTX 3060 Ti", "RTX A1000", "T400", "A10G", "RTX 4090 D", "GTX 1080"])
def test_a_card_that_is_not_in_the_table_is_not_taken_for_one_whose_name_is_a_part_of_its_own(other):
    assert find_speed(other) is None
    with pytest.raises(MeasureError) as caught:
        with_wishes([profile("rosa", 0.002, "8-core CPU")], [other], [])
    assert "did you mean" in caught.value.fix


def test_the_cards_that_are_close_are_listed():
    with pytest.raises(MeasureError) as caught:
        with_wishes([profile("rosa", 0.002, "8-core CPU")], ["RTX 30"], [])
    assert "RTX 3060, RTX 3070, RTX 3080" in caught.value.fix
    assert "H100" not in caught.value.fix


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (["0x 8-core CPU"], "asks for 0 machines"),
        (["200000x 8-core CPU"], "asks for 200,000 machines"),
        (["0 of rosa"], "does nothing"),
        (["0.0 of rosa,wifi"], "does nothing"),
        (["0-core CPU"], "no speed"),
        (["rosa=8-core CPU"], "there is a machine 'rosa' already"),
        (["new=8-core CPU", "new=4-core CPU"], "there is a machine 'new' already"),
        ([""], "names no device"),
        (["x="], "names no device"),
    ],
)
def test_wishes_without_sense_are_refused_with_a_sentence(add, says):
    with pytest.raises(MeasureError, match=says) as caught:
        with_wishes([profile("rosa", 0.002, "8-core CPU")], add, [])
    assert caught.value.fix


def test_a_machine_may_be_replaced_by_one_of_its_name():
    found = with_wishes(
        [profile("rosa", 0.002, "8-core CPU"), profile("lily", 0.002, "8-core CPU")], ["rosa=4-core CPU"], ["rosa"]
    )
    assert [one.machine for one in found] == ["lily", "rosa"]
