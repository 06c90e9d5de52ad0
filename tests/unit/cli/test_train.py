import json
import re
from dataclasses import fields

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from potluck.cli import app, main
from potluck.core.run_options import CommandOptions, TrainOptions

TINY = [
    "train",
    "--model-size",
    "tiny",
    "--num-samples",
    "100",
    "--global-batch",
    "32",
    "--epochs",
    "2",
    "--device",
    "cpu",
]

EXPECTED_FLAGS = [
    *("--model", "--dataset", "--data-dir", "--num-samples", "--global-batch", "--batch-size", "--epochs", "--seed"),
    *("--max-steps", "--lr", "--learning-rate", "--optimizer", "--mixed-precision", "--gradient-checkpointing"),
    *("--experiment-name", "--resume", "--resume-from", "--config", "--device"),
]


@pytest.fixture
def potluck(workplace, monkeypatch, capsys):
    """Run the command in this process; return its exit code and all it printed."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["potluck", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    return run


def test_every_option_has_a_flag_and_every_flag_an_option():
    flags = {parameter.name: parameter for parameter in get_command(app).commands["train"].params}
    described = {field.name: field for kind in (TrainOptions, CommandOptions) for field in fields(kind)}
    assert flags.keys() - {"help"} == described.keys()
    for name, field in described.items():
        assert flags[name].rich_help_panel == field.metadata["panel"]
        assert flags[name].default in (None, [])  # what nobody typed leaves a file's value alone


def test_help_shows_the_panels_in_their_order():
    result = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    titles = re.findall(r"^.─ (\w+) ─", result.output, re.MULTILINE)
    assert titles == ["Options", "Model", "Data", "Training", "Machines", "Output"]


def test_help_takes_defaults_and_choices_from_the_options():
    result = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    for text in ("Passes over the data (2).", "Momentum of sgd (0.9).", "sgd (default), adam or adamw."):
        assert text in result.output


def test_the_flags_have_the_names_people_expect():
    result = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 0
    for flag in EXPECTED_FLAGS:
        assert flag in result.output


@pytest.mark.slow
def test_a_run_leaves_every_file_and_learns(potluck, workplace):
    code, output = potluck(
        "train", "--model", "simple_cnn", "--dataset", "synthetic_image", "--num-samples", 2000, "--global-batch", 64,
        "--epochs", 2, "--experiment-name", "first",
    )  # fmt: skip
    assert code == 0, output
    folder = workplace / "experiments" / "first"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    [events] = [name for name in files if name.startswith("events/") and name.endswith("-0.jsonl")]
    assert "% computing" in output
    assert files == {
        "run.yaml",
        "account.json",
        events,
        "logs/rank_0_metrics.json",
        "checkpoints/model_epoch_1.pth",
        "checkpoints/model_epoch_2.pth",
    }
    summary = json.loads((folder / "logs" / "rank_0_metrics.json").read_text())
    assert summary["epochs"][-1]["held_out_accuracy"] > 0.5  # chance is 0.1
    assert "first: finished" in output
    assert "64 of 64" in output


@pytest.mark.slow
def test_run_yaml_repeats_the_run(potluck, workplace):
    assert potluck(*TINY, "--optimizer", "adamw", "--experiment-name", "one")[0] == 0
    assert potluck("train", "--config", "experiments/one/run.yaml", "--experiment-name", "two")[0] == 0
    one, two = (
        json.loads((workplace / "experiments" / name / "logs" / "rank_0_metrics.json").read_text())
        for name in ("one", "two")
    )
    assert one["loss"] == two["loss"]
    recorded = yaml.safe_load((workplace / "experiments" / "two" / "run.yaml").read_text())
    assert recorded == yaml.safe_load((workplace / "experiments" / "one" / "run.yaml").read_text())


def test_a_name_is_chosen_when_none_is_given(potluck, workplace):
    for number in (1, 2):
        assert potluck(*TINY, "--max-steps", "1")[0] == 0
        assert (workplace / "experiments" / f"simple_cnn-synthetic_image-{number}").is_dir()


def test_resume_takes_the_settings_of_the_run(potluck):
    assert potluck(*TINY, "--max-steps", 3, "--experiment-name", "one")[0] == 0
    code, output = potluck("train", "--resume", "--max-steps", 6)
    assert code == 0, output
    assert "going on after step 3" in output
    assert "6 of 6" in output
    code, output = potluck("train", "--resume", "--experiment-name", "one")
    assert "nothing is left to train: 6 of 6 steps are done" in output


def test_a_batch_size_a_worker_is_the_global_batch_of_one_worker(potluck, workplace):
    assert potluck(*TINY[:5], "--batch-size", 50, "--epochs", 1, "--experiment-name", "one")[0] == 0
    assert yaml.safe_load((workplace / "experiments" / "one" / "run.yaml").read_text())["global_batch"] == 50


@pytest.mark.parametrize(
    ("arguments", "error", "fix"),
    [
        (["--model", "resnet8"], "there is no model 'resnet8'", "did you mean 'resnet18'?"),
        (["--dataset", "cifar1"], "cifar1", "did you mean 'cifar10'?"),
        (["--model", "gpt2", "--dataset", "synthetic_image"], "gpt2 reads text", "synthetic_text"),
        (["--optimizer", "sdg"], "optimizer in the command line cannot be 'sdg'", "'sgd', 'adam' or 'adamw'"),
        (["--global-batch", 4, "--batch-size", 4], "both global_batch and batch_size", "--global-batch"),
        (["--config", "nowhere.yaml"], "no file nowhere.yaml", "--config"),
        (["--resume", "--experiment-name", "nothing"], "there is no run 'nothing'", "--resume"),
        (["--resume"], "experiments to resume", "--resume"),
        (["--resume-from", "nowhere.pth"], "there is no checkpoint nowhere.pth", "check the path"),
        (["--device", "cuda:7"], "cuda", "--device cpu"),
        (["--experiment-name", "../up"], "cannot name a run", "letters"),
    ],
)
def test_a_mistake_is_answered_with_the_fix(potluck, arguments, error, fix):
    code, output = potluck("train", *arguments)
    assert code == 1
    assert f"error: {error}" in output or error in output
    assert fix in output.split("fix:")[1]
    assert "Traceback" not in output


def test_a_wrong_yaml_key_names_the_key_and_the_file(potluck, workplace):
    (workplace / "mine.yaml").write_text("epoch: 3\n")
    code, output = potluck("train", "--config", "mine.yaml")
    assert code == 1
    assert "unknown key 'epoch' in mine.yaml" in output
    assert "did you mean 'epochs'?" in output


def test_a_mistyped_flag_is_suggested(potluck):
    code, output = potluck("train", "--modle", "bert")
    assert code == 2
    assert "--model" in output


def test_a_refused_resume_changes_nothing(potluck, workplace):
    assert potluck(*TINY, "--max-steps", 3, "--experiment-name", "one")[0] == 0
    before = (workplace / "experiments" / "one" / "run.yaml").read_text()
    for flags, word in (
        (["--global-batch", 64], "global_batch was 32, now 64"),
        (["--lr", 0.5], "learning_rate was 0.05"),
    ):
        code, output = potluck("train", "--resume", *flags)
        assert code == 1
        assert word in output
    assert (workplace / "experiments" / "one" / "run.yaml").read_text() == before
    assert potluck("train", "--resume", "--max-steps", 4)[0] == 0


def test_another_runs_checkpoint_keeps_its_learning_rate(potluck):
    assert potluck(*TINY, "--max-steps", 3, "--experiment-name", "one")[0] == 0
    checkpoint = "experiments/one/checkpoints/model_epoch_1_step_3.pth"
    code, output = potluck(*TINY, "--lr", 0.5, "--resume-from", checkpoint)
    assert code == 1
    assert "learning_rate is 0.05 in the checkpoint, not 0.5" in output
    assert potluck(*TINY, "--max-steps", 5, "--resume-from", checkpoint)[0] == 0


def test_a_scripts_run_is_not_resumed_by_the_command(potluck, workplace):
    folder = workplace / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text("script: own.py\nseed: 0\n")
    code, output = potluck("train", "--resume")
    assert code == 1
    assert "run mine was started by own.py" in output
    assert "potluck run --solo --resume --experiment-name mine own.py" in output


def test_a_folder_that_cannot_be_made_is_told(potluck, workplace):
    (workplace / "experiments").write_text("a file")
    code, output = potluck(*TINY)
    assert code == 1
    assert "cannot be made" in output
    assert "POTLUCK_RUNS_DIR" in output


@pytest.mark.parametrize("spelled", [("--max_steps", "2"), ("--max_steps=2",), ("--max-steps", "2")])
def test_an_options_name_may_have_underscores(potluck, workplace, spelled):
    name = "with_under_scores"  # a value keeps them
    code, output = potluck(
        *TINY, *spelled, "--gradient_checkpointing", "--mixed_precision", "no", "--experiment_name", name
    )
    assert code == 0, output
    recorded = yaml.safe_load((workplace / "experiments" / name / "run.yaml").read_text())
    assert (recorded["max_steps"], recorded["gradient_checkpointing"]) == (2, True)


def test_the_variable_names_the_run_unless_the_flag_does(potluck, workplace, monkeypatch):
    monkeypatch.setenv("EXPERIMENT_NAME", "by-variable")
    code, output = potluck(*TINY, "--max-steps", 1)
    assert code == 0, output
    assert "the run is called by-variable, by the variable EXPERIMENT_NAME" in output
    assert (workplace / "experiments" / "by-variable").is_dir()
    code, output = potluck(*TINY, "--max-steps", 1, "--experiment-name", "by-flag")
    assert code == 0, output
    assert "the run is called by-flag; EXPERIMENT_NAME=by-variable is not used" in output
    assert (workplace / "experiments" / "by-flag").is_dir()


@pytest.mark.parametrize(
    ("arguments", "error", "fix"),
    [
        (["--mode", "fsdp"], "--mode fsdp is not known", "leave --mode out"),
        (["--devices", "2"], "--devices 2 are too many: this machine has 1 device: cpu", "--devices cpu,cpu"),
        (["--devices", "0"], "leaves nothing to train on", "--devices 1"),
        (["--devices", "Card 1"], "'Card 1' names no device", "--devices cuda:0,cpu"),
        (["--devices", "cpu,"], "'' names no device", "--devices cuda:0,cpu"),
        (["--devices", "cpu", "--device", "cpu"], "both --device and --devices", "keep one"),
        (["--master-addr", "10.0.0.1"], "RANK and WORLD_SIZE are not set", "export RANK=0"),
    ],
)
def test_an_option_of_another_program_is_answered_with_the_fix(potluck, workplace, arguments, error, fix):
    code, output = potluck("train", "--model-size", "tiny", *arguments)
    assert code == 1, output
    assert error in output
    assert fix in output
    assert not (workplace / "experiments").exists()


def test_the_line_of_an_old_guide_trains(potluck, workplace):
    code, output = potluck("train", "--mode", "ddp", "--devices", 1, *TINY[1:-2], "--max_steps", 2)
    assert code == 0, output
    assert "2 of 2" in output
