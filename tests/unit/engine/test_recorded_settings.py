"""What run.yaml records of a script: what was typed, wherever a copy of the script runs."""

import yaml

import potluck
from potluck.core.run_folder import RunFolder
from potluck.engine.opening import what_was_typed


def test_a_script_alone_is_recorded_with_its_arguments(workplace, monkeypatch):
    monkeypatch.setattr("sys.argv", ["own.py", "--epochs", "3"])
    with potluck.start("mine", device="cpu") as run:
        recorded = yaml.safe_load(RunFolder(workplace / "experiments" / run.name).settings_file.read_text())
    assert (recorded["script"], recorded["arguments"]) == ("own.py", ["--epochs", "3"])


def test_what_the_host_recorded_of_a_script_stays(tmp_path):
    folder = RunFolder(tmp_path)
    typed = {"script": "own.py", "arguments": ["--epochs", "3"], "bundle": "ab" * 32}
    folder.settings_file.write_text(yaml.safe_dump({**typed, "seed": 5}))
    assert what_was_typed(folder) == typed
    for text in ("script: own.py\n", "", "[1", "- 1"):
        folder.settings_file.write_text(text)
        assert what_was_typed(folder) == {}
