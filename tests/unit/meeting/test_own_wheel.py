"""The wheel that a host builds of its own files is what an installer would have made of them."""

import json
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest

from potluck.core.version import __version__
from potluck.meeting.host import own_wheel
from potluck.meeting.host.own_wheel import NotInstalledError, build_wheel

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel():
    return build_wheel()


def test_equal_files_give_equal_bytes(wheel):
    assert build_wheel() == wheel
    assert wheel.name == f"potluck-{__version__}-py3-none-any.whl"


def test_it_holds_the_code_and_nothing_else(wheel):
    names = zipfile.ZipFile(BytesIO(wheel.content)).namelist()
    source = ROOT / "src"
    code = {str(file.relative_to(source)) for file in (source / "potluck").rglob("*") if file.is_file()}
    assert {name for name in names if ".dist-info/" not in name} == {one for one in code if "__pycache__" not in one}
    assert names[-1].endswith("/RECORD")
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pip_installs_it_and_the_installed_files_give_the_same_wheel(wheel, tmp_path):
    file = tmp_path / wheel.name
    file.write_bytes(wheel.content)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", file]
    subprocess.run(install, check=True)
    told = (
        "import json, sys; from importlib import metadata as m; d = m.distribution('potluck');"
        "from potluck.meeting.host.own_wheel import build_wheel;"
        "print(json.dumps([d.version, d.requires, [e.value for e in d.entry_points], build_wheel().sha256]))"
    )
    done = subprocess.run([python, "-c", told], check=True, capture_output=True, text=True)
    here = metadata.distribution("potluck")
    entries = [entry.value for entry in here.entry_points]
    assert json.loads(done.stdout) == [__version__, here.requires, entries, wheel.sha256]
    assert (tmp_path / "venv" / "bin" / "potluck").is_file()


@pytest.mark.timeout(300)
def test_pip_refuses_another_file_than_the_one_that_the_line_names(wheel, tmp_path):
    """The host's wheel changed on its way: the URL has the hash of the one that the host built."""
    other = tmp_path / wheel.name
    other.write_bytes(wheel.content[:-1] + b"\x01")
    url = f"{other.as_uri()}#sha256={wheel.sha256}"
    install = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-index", "-d", tmp_path / "got", url]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_where_potluck_is_not_installed_there_is_no_wheel(tmp_path):
    shutil.copytree(ROOT / "src" / "potluck", tmp_path / "potluck", ignore=shutil.ignore_patterns("__pycache__"))
    tried = (
        f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(tmp_path)!r}]\n"
        "from potluck.meeting.host.own_wheel import NotInstalledError, build_wheel\n"
        "try:\n    build_wheel()\nexcept NotInstalledError:\n    print('none')\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", tried], check=True, capture_output=True, text=True)
    assert done.stdout == "none\n"


def test_the_version_is_that_of_the_code(monkeypatch):
    """Of an editable installation that was made before the version changed, too."""
    monkeypatch.setattr(own_wheel, "__version__", "7.8.9")
    wheel = build_wheel()
    archive = zipfile.ZipFile(BytesIO(wheel.content))
    assert wheel.name == "potluck-7.8.9-py3-none-any.whl"
    assert "\nVersion: 7.8.9\n" in archive.read("potluck-7.8.9.dist-info/METADATA").decode()


def test_a_clone_beside_an_installed_potluck_gives_the_clone_s_files(monkeypatch, tmp_path):
    class Elsewhere:
        files = (metadata.PackagePath("potluck/gone.py"),)

        def __init__(self, real):
            self._real = real

        def locate_file(self, name):
            return tmp_path / name

        def read_text(self, name):
            return self._real.read_text(name)

    real = metadata.distribution("potluck")
    monkeypatch.setattr(own_wheel.metadata, "distribution", lambda _: Elsewhere(real))
    names = zipfile.ZipFile(BytesIO(build_wheel().content)).namelist()
    assert "potluck/meeting/host/own_wheel.py" in names
    assert "potluck/gone.py" not in names


def test_without_metadata_it_is_not_installed(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(NotInstalledError):
        build_wheel()
