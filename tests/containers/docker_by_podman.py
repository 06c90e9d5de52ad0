"""A `docker` command that is podman: what is printed for Docker users is typed here as it stands."""

from pathlib import Path

from tests.containers.podman import Podman

_DOCKER = """#!/bin/sh
if [ "$1" = compose ]; then
  shift
  exec "{tools}/podman-compose" "$@"
fi
exec podman "$@"
"""


def place_docker(folder: Path, tools: Path) -> Path:
    """Put the command into a folder for the path; gives the folder."""
    folder.mkdir(exist_ok=True)
    file = folder / "docker"
    file.write_text(_DOCKER.format(tools=tools), encoding="utf-8")
    file.chmod(0o755)
    return folder


def tag_as_potluck(podman: Podman, image: str) -> None:
    """Give the image the name that the guide and the scripts use."""
    podman.run("tag", image, "localhost/potluck:latest")
