"""Which container this is, from files as container managers leave them."""

import pytest

from potluck.machine import container


@pytest.fixture
def computer(tmp_path, monkeypatch):
    """Write files by the names of the module's constants; the others are not there."""
    for name in ("_FIRST_PROCESS", "_DOCKER", "_PODMAN", "_SYSTEMD"):
        monkeypatch.setattr(container, name, tmp_path / name)

    def write(**files):
        for name, text in files.items():
            (tmp_path / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("files", "manager"),
    [
        ({}, None),
        ({"_FIRST_PROCESS": "PATH=/bin\0HOME=/\0"}, None),
        ({"_DOCKER": ""}, "docker"),
        ({"_PODMAN": "", "_FIRST_PROCESS": "container=podman\0"}, "podman"),
        ({"_PODMAN": ""}, "podman"),
        ({"_DOCKER": "", "_FIRST_PROCESS": "A=1\0container=lab\0"}, "lab"),
        ({"_DOCKER": "", "_FIRST_PROCESS": "container=oci\0"}, "docker"),
        ({"_SYSTEMD": "lxc\n"}, "lxc"),
        ({"_SYSTEMD": "wsl\n", "_FIRST_PROCESS": "container=wsl\0"}, None),
    ],
)
def test_the_manager_names_itself_or_leaves_files(computer, files, manager):
    computer(**files)
    assert container.read_container() == manager
