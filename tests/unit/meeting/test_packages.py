"""What a script needs is read from its text."""

from pathlib import Path

import pytest

from potluck.meeting.transfer.packages import imported_packages, missing_packages, not_importable, requirements
from potluck.meeting.wire import RunTask


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("import torch, numpy as np", ["numpy", "torch"]),
        ("import torch.nn.functional", ["torch"]),
        ("from torchvision.models import resnet18", ["torchvision"]),
        ("import os, sys\nfrom pathlib import Path\nimport potluck", []),
        ("def main():\n    import wandb", ["wandb"]),
        ("if __name__ == '__main__':\n    import wandb", ["wandb"]),
        ("try:\n    import apex\nexcept ImportError:\n    apex = None", []),
        ("try:\n    import apex\nexcept (OSError, ModuleNotFoundError):\n    import other", []),
        ("try:\n    import apex\nexcept KeyError:\n    pass", ["apex"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stubs", []),
        ("def main(log):\n    if log:\n        import wandb", []),
        ("import (", []),
        ("from . import x", []),
    ],
)
def test_only_what_is_certainly_imported_is_needed(tmp_path, text, needed):
    write(tmp_path, {"train.py": text})
    assert imported_packages(tmp_path, Path("train.py")) == needed


def test_the_folders_own_modules_are_followed_and_others_are_not_read(tmp_path):
    write(
        tmp_path,
        {
            "scripts/train.py": "import beside\nfrom lib.models import cnn\nfrom space.inner import thing",
            "scripts/beside.py": "import one",
            "lib/__init__.py": "import two",
            "lib/models/__init__.py": "from .. import tools",
            "lib/models/cnn.py": "from ..deep.er import x\nimport scripts.train",
            "lib/tools.py": "import three\nimport lib.missing_part",
            "lib/deep/er.py": "import four",
            "space/inner/thing.py": "import five",
            "tests/test_train.py": "import pytest_something",
        },
    )
    assert imported_packages(tmp_path, Path("scripts/train.py")) == ["five", "four", "one", "three", "two"]


def test_what_is_missing_here_is_found_without_importing(tmp_path, monkeypatch):
    write(tmp_path, {"train.py": "import explosive, surely_not_there, torch"})
    write(tmp_path / "site", {"explosive.py": "raise SystemExit('imported')"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert missing_packages(tmp_path, Path("train.py")) == ["surely_not_there"]
    assert not_importable(["__main__", "torch"]) == []


def test_pip_gets_the_name_of_the_distribution():
    found = requirements(["yaml", "surely_not_there", "torch"])
    assert found["yaml"].startswith("PyYAML==")
    assert "+" not in found["torch"]
    assert "surely_not_there" not in found
    assert RunTask(requirements=found).requirements == found
