"""The sample configurations in configs/: each loads, and its model and dataset exist."""

from pathlib import Path

import pytest

from potluck.core.settings import make_settings, read_settings_file

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
NAMES = [file.stem for file in CONFIGS]


def test_there_are_a_few():
    assert NAMES == ["gpu-and-cpu", "laptops", "text", "tiny"]


@pytest.mark.parametrize("file", CONFIGS, ids=NAMES)
def test_it_loads_and_says_how_to_use_it(file):
    from potluck.workloads.datasets import IMAGE_DATASETS, TEXT_DATASETS
    from potluck.workloads.models import find_model

    settings = make_settings(read_settings_file(file), source=str(file))
    spec = find_model(settings.model)
    assert settings.model_size in spec.sizes
    assert settings.dataset in (IMAGE_DATASETS if spec.reads == "image" else TEXT_DATASETS)
    assert f"potluck train --config configs/{file.name}" in file.read_text()


def test_the_smallest_trains(workplace, monkeypatch, capsys):
    from potluck.cli import main

    (tiny,) = (file for file in CONFIGS if file.stem == "tiny")
    few = ["--num-samples", "128", "--epochs", "1", "--experiment-name", "tiny", "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["potluck", "train", "--config", str(tiny), *few])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == 0
    assert "2 of 2" in capsys.readouterr().out
