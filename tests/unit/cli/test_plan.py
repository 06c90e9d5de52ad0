"""potluck profile and potluck plan, as a person and as a script see them."""

import json

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.core.errors import PotluckError
from potluck.measuring.profile_store import StoredProfile, read_profile
from potluck.planning.costs import ComputeProfile

TINY = ["--model", "simple_cnn", "--model-size", "tiny"]


@pytest.fixture
def home(workplace, monkeypatch):
    monkeypatch.setenv("POTLUCK_HOME", str(workplace / "home"))
    monkeypatch.setenv("POTLUCK_NAME", "rosa")
    return workplace / "home"


def potluck(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})
    if isinstance(result.exception, PotluckError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def profile(folder, machine, per_sample_s, **more):
    values = {"device": "cpu", "model": "simple_cnn-tiny", "precision": "no", "gradient_bytes": 1_000_000, **more}
    compute = ComputeProfile(fixed_s=0.001, per_sample_s=per_sample_s)
    path = folder / f"{machine}.json"
    path.write_text(StoredProfile(machine=machine, compute=compute, **values).model_dump_json())
    return path


@pytest.mark.slow
def test_a_machine_is_measured_kept_and_planned_for(home):
    table = potluck("profile", *TINY, "--device", "cpu", "--seconds", "0.2", "--global-batch", "16")
    assert "rosa, cpu: simple_cnn-tiny" in table
    kept = list(home.rglob("*.json"))
    assert len(kept) == 1
    stored = read_profile(kept[0])
    assert stored.machine == "rosa"
    assert stored.gradient_bytes > 10_000
    assert 0 < stored.compute.seconds(16) < 10
    outlook = json.loads(potluck("plan", *TINY, "--global-batch", "16", "--json"))
    assert outlook["shares"] == {"rosa-0": 16}
    assert outlook["samples_per_s"] == pytest.approx(16 / stored.compute.seconds(16))


def test_a_profile_as_json_serves_a_plan_elsewhere(home, workplace):
    text = potluck("profile", *TINY, "--device", "cpu", "--seconds", "0.2", "--global-batch", "8", "--json")
    (workplace / "other.json").write_text(text)
    (workplace / "third.json").write_text(json.dumps({**json.loads(text), "machine": "lily"}))
    outlook = json.loads(potluck("plan", *TINY, workplace / "other.json", workplace / "third.json", "--json"))
    assert sorted(outlook["shares"]) == ["lily-0", "rosa-0"]


def test_a_small_memory_limit_gives_a_cap_and_no_crash(home):
    text = potluck("profile", "--device", "cpu", "--seconds", "0.2", "--memory-limit", "1M", "--json")
    assert json.loads(text)["compute"]["memory_cap"] < 64


def test_the_plan_says_who_is_benched_why_and_what_a_cable_brings(home, workplace):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.002)]
    text = potluck("plan", *TINY, *files, "--link", "oak=1gbit", "--link", "elm=20mbit")
    assert "elm is benched" in text
    assert "20 Mbit/s" in text
    assert "with links of 1gbit at least" in text
    kept = json.loads(
        potluck("plan", *TINY, *files, "--link", "oak=1gbit", "--link", "elm=20mbit", "--keep", "oak,elm", "--json")
    )
    alone = json.loads(potluck("plan", *TINY, *files, "--link", "oak=1gbit", "--link", "elm=20mbit", "--json"))
    assert kept["shares"]["elm-0"] > 0
    assert alone["benched"] == ["elm"]
    assert kept["samples_per_s"] < alone["samples_per_s"] < alone["samples_per_s_with_cable"]
    assert [row["machine"] for row in alone["added"]] == ["oak", "elm"]


@pytest.mark.parametrize("policy", ["static", "proportional", "dynamic"])
def test_every_policy_can_be_asked_for(home, workplace, policy):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.003)]
    outlook = json.loads(potluck("plan", *TINY, *files, "--load-balance-policy", policy, "--json"))
    assert sum(outlook["shares"].values()) == 64


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "missing.json"],
        ["plan", *TINY, "oak.json", "--link", "elm=1gbit"],
        ["plan", *TINY, "oak.json", "--link", "oak=fast"],
        ["plan", *TINY, "oak.json", "--keep", "elm"],
        ["plan", *TINY, "oak.json", "--load-balance-policy", "fair"],
        ["plan", "oak.json"],
        ["plan", "--model", "resnet19"],
        ["profile", "--mixed-precision", "fp8"],
        ["profile", "--memory-limit", "much"],
    ],
)
def test_mistakes_say_what_to_type(home, workplace, arguments):
    profile(workplace, "oak", 0.001)
    with pytest.raises(PotluckError) as caught:
        potluck(*arguments)
    assert caught.value.fix


def test_a_link_may_name_its_latency(home, workplace):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.002)]
    given = ["--link", "oak=1gbit", "--keep", "elm", "--json"]
    near, far = (
        json.loads(potluck("plan", *TINY, *files, *given, "--link", f"elm={text}")) for text in ("1gbit", "1gbit,2ms")
    )
    assert far["exposed_exchange_s"] == pytest.approx(near["exposed_exchange_s"] + 2 * 2 * 0.002)
    with pytest.raises(PotluckError, match="not a duration"):
        potluck("plan", *TINY, *files, *given, "--link", "elm=1gbit,soon")


def test_what_a_run_showed_of_the_exchange_is_in_the_next_plan(home, workplace):
    ring = {"machines": ["elm", "oak"], "work_s": 0.04, "exposed_s": 0.01}
    files = [profile(workplace, "oak", 0.001, ring=ring), profile(workplace, "elm", 0.001, ring=ring)]
    plan = json.loads(potluck("plan", *TINY, *files, "--json"))
    assert plan["exposed_exchange_s"] == pytest.approx(0.01)
    assert plan["samples_per_s_with_cable"] is None  # nobody measured a link
    assert "nobody can say through whose link" in plan["explanation"][-1]
    alone = json.loads(potluck("plan", *TINY, files[0], profile(workplace, "ash", 0.001), "--json"))
    assert alone["exposed_exchange_s"] == 0.0  # another ring
    benched = profile(workplace, "ash", 0.5)
    assert json.loads(potluck("plan", *TINY, *files, benched, "--json"))["exposed_exchange_s"] == pytest.approx(0.01)


def test_the_plan_benches_only_where_a_run_would(home, workplace):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.002)]
    slow = [*files, "--link", "oak=1gbit", "--link", "elm=150mbit"]
    text = " ".join(potluck("plan", *TINY, *slow).split())
    assert "elm is benched: with it a step would take 97.3 ms instead of 65 ms" in text
    assert "oak alone does 985 samples/s; with elm it would be 658: use --machines oak" in text
    short = " ".join(potluck("plan", *TINY, *slow, "--steps", "5").split())
    assert "benched:" not in short
    assert "without elm a step would take 65 ms: 5 steps are too few for that to pay" in short
    assert json.loads(potluck("plan", *TINY, *slow, "--steps", "50", "--json"))["benched"] == ["elm"]
    close = " ".join(potluck("plan", *TINY, *files, "--link", "oak=1gbit", "--link", "elm=345mbit").split())
    assert "benched:" not in close
    assert "less than 5 % shorter, so they stay" in close


def plan_of(*arguments):
    return json.loads(potluck("plan", *TINY, *arguments, "--json"))


def test_ranges_are_at_least_a_tenth_and_a_fifth_with_a_machine_from_the_table(home, workplace):
    files = [profile(workplace, name, 0.002, specification="8-core CPU") for name in ("oak", "elm")]
    kept = ["--steps", "1000", "--keep", "oak,elm"]
    measured, imagined = plan_of(*files, *kept), plan_of(*files, *kept, "--add", "new=8-core CPU", "--keep", "new")
    for outlook, doubt in ((measured, 0.1), (imagined, 0.2)):
        assert outlook["samples_per_s"] / outlook["samples_per_s_low"] >= 1 + doubt - 1e-9
        assert outlook["samples_per_s_low"] < (1 - 0.8 * doubt) * outlook["samples_per_s"]
        assert outlook["samples_per_s_high"] > (1 + doubt) * outlook["samples_per_s"]
        assert outlook["finish_s_high"] == pytest.approx((1 + doubt) * outlook["finish_s"], rel=0.02)


def test_a_comparison_keeps_the_same_machines_in_both_plans(home, workplace):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.001), profile(workplace, "fir", 0.1)]
    kept = ["--keep", "oak,fir"]
    outlook = plan_of(*files, *kept, "--without", "elm")
    assert outlook["samples_per_s_before"] == pytest.approx(plan_of(*files, *kept)["samples_per_s"])


def test_a_machine_that_replaces_one_is_named_on_both_sides_of_the_comparison(home, workplace):
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.001)]
    line, *_ = plan_of(*files, "--without", "oak", "--add", "oak=0.5 of elm,1gbit")["explanation"]
    assert line.startswith("with oak and without oak: ")


def test_more_machines_than_samples_are_planned_for_some_of_them(home, workplace):
    files = [profile(workplace, name, 0.001) for name in ("oak", "elm", "ash")]
    assert sum(plan_of(*files, "--global-batch", "2")["shares"].values()) == 2


def test_a_plan_from_profiles_that_are_not_alike_says_so(home, workplace):
    alike = [profile(workplace, name, 0.001) for name in ("oak", "elm")]
    assert not any("not measured with one model" in line for line in plan_of(*alike)["explanation"])
    other = profile(workplace, "elm", 0.001, gradient_bytes=2_000_000)
    assert any("not measured with one model" in line for line in plan_of(alike[0], other)["explanation"])
    ring = {"machines": ("elm", "oak"), "work_s": 0.1, "exposed_s": 0.02, "code": "int8"}
    coded = [profile(workplace, name, 0.001, ring=ring) for name in ("oak", "elm")]
    assert any("measured with --exchange int8" in line for line in plan_of(*coded)["explanation"])
    assert not any("measured with" in line for line in plan_of(*coded, "--exchange", "int8")["explanation"])


def test_a_comparison_says_for_which_exchange_it_is(home, workplace):
    files = [profile(workplace, name, 0.001) for name in ("oak", "elm")]
    line, *_ = plan_of(*files, "--without", "elm", "--exchange", "rounds")["explanation"]
    assert "both with --exchange exact" in line
    line, *_ = plan_of(*files, "--without", "elm", "--exchange", "int8")["explanation"]
    assert "both with" not in line
