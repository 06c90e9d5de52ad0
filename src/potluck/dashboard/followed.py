"""Views of runs that all visitors share: each run is read once, and then only its new events."""

from pathlib import Path

import streamlit as st

from potluck.core.run_folder import RunFolder, run_folders
from potluck.report.followed import Followed
from potluck.report.view import RunView

_MOST_VIEWS = 64


def follow(folder: RunFolder) -> Followed:
    """The shared view of a run, after reading its new events."""
    followed: Followed = _followed(str(folder.path), folder.path.stat().st_ino)
    followed.refresh()
    return followed


def names_of_runs(runs_dir: Path) -> list[str]:
    """The names of the runs in a folder, the most recently changed first."""

    def changed(folder: RunFolder) -> float:
        return max((file.stat().st_mtime for file in folder.event_files()), default=0.0)

    return [folder.name for folder in sorted(run_folders(runs_dir), key=changed, reverse=True)]


@st.cache_resource(max_entries=_MOST_VIEWS, show_spinner="Reading the run")
def _followed(path: str, inode: int) -> Followed:  # noqa: ARG001  by its inode, a folder that was made anew is another run
    return Followed(RunView(RunFolder(Path(path))))
