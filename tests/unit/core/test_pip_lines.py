"""Commands that install packages can be typed as they are printed, in the environment that they are for."""

import importlib.util
import shlex
import subprocess
import sys
from importlib import metadata

import pytest

from potluck.core import pip_lines
from potluck.core.pip_lines import install_extra, pip_install


def test_the_command_names_this_environment():
    assert shlex.split(pip_install("mlflow", "timm>=1.0")) == [
        sys.executable,
        *("-m", "pip", "install", "mlflow", "timm>=1.0"),
    ]


def test_an_environment_without_pip_is_filled_by_uv(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert shlex.split(pip_install("mlflow")) == ["uv", "pip", "install", "--python", sys.executable, "mlflow"]


@pytest.mark.parametrize(("extra", "package"), [("dashboard", "streamlit"), ("text", "transformers")])
def test_an_extra_is_its_packages(extra, package):
    words = shlex.split(install_extra(extra))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert any(word.startswith(f"{package}>=") for word in words[4:])
    assert not any(word.startswith("potluck") for word in words)


def test_the_dashboards_line_is_typable():
    """All packages of the extra are here, so that the line needs no index."""
    done = subprocess.run(
        ["bash", "-c", f"{install_extra('dashboard')} --no-index --dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_without_metadata_the_folder_is_named(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(pip_lines.metadata, "requires", missing)
    assert install_extra("text").startswith("in Potluck's folder: ")
    assert install_extra("text").endswith("-m pip install '.[text]'")
