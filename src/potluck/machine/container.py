"""Which container manager runs this process, if one does."""

from pathlib import Path

_FIRST_PROCESS = Path("/proc/1/environ")
_DOCKER = Path("/.dockerenv")
_PODMAN = Path("/run/.containerenv")
_SYSTEMD = Path("/run/systemd/container")
IMAGE_MANAGERS = ("docker", "podman")
"""These run images: their containers have the firewall and the clock of the computer around them, and no systemd."""


def read_container() -> str | None:
    """The container's manager, by the variable that it gives to process 1, or by the files that it leaves."""
    named = _first_process_variable("container")
    if named not in ("", "oci", "wsl"):  # some images name the kind of image there, whoever runs it
        return named
    if _DOCKER.exists():
        return "docker"
    try:
        kind = _SYSTEMD.read_text().strip()
    except OSError:
        kind = "podman" if _PODMAN.exists() else ""
    return None if kind in ("", "wsl") else kind


def _first_process_variable(name: str) -> str:
    """A variable of process 1; empty if it has none, or if this user may not read it."""
    try:
        variables = _FIRST_PROCESS.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return dict(one.partition("=")[::2] for one in variables).get(name, "")
