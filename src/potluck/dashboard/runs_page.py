"""The dashboard's page that lists all runs."""

import time
from pathlib import Path
from typing import Any

import streamlit as st

from potluck.core.run_folder import RunFolder
from potluck.dashboard.followed import follow, names_of_runs
from potluck.dashboard.warnings import show_warnings
from potluck.report.followed import Followed
from potluck.report.words import percent

_EVERY_S = 5.0
_MOST_RUNS = 50


def show(runs_dir: Path) -> None:
    """Show all runs in a table that refreshes itself."""
    st.title("Runs")
    with st.spinner("Reading the runs"):  # many or long runs take a while the first time
        show_warnings()
        _table(runs_dir)


@st.fragment(run_every=_EVERY_S)
def _table(runs_dir: Path) -> None:
    names = names_of_runs(runs_dir)
    if not names:
        st.info(f"There are no runs in {runs_dir.absolute()}. Start one with: potluck train")
        return
    found = {name: follow(RunFolder(runs_dir / name)) for name in names[:_MOST_RUNS]}
    st.dataframe([_row(name, followed) for name, followed in found.items()], hide_index=True, width="stretch")
    if len(names) > _MOST_RUNS:
        st.caption(f"The {_MOST_RUNS} that changed last, of {len(names)}.")
    for name, followed in found.items():
        if followed.error is not None:
            st.error(f"{name}: {followed.error.args[0]}\n\nFix: {followed.error.fix}")


def _row(name: str, followed: Followed) -> dict[str, Any]:
    if followed.error is not None:
        return {"run": name, "state": "damaged"}
    view = followed.view
    state = view.state
    accuracy = state.scores.get("held_out_accuracy")
    return {
        "run": name,
        "state": view.shown_status,
        "step": "plain"
        if view.is_plain
        else f"{state.step} of {state.last_step}"
        if state.last_step
        else str(state.step),
        "samples/s": None if view.is_plain else round(view.merge.samples_per_s, 1),
        "last loss": state.loss,
        "accuracy": "" if accuracy is None else percent(accuracy),
        "machines": len(view.machines),
        "model": str(view.settings.get("model", Path(str(view.settings.get("script", ""))).name)),
        "updated": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.updated_at)) if view.updated_at else "",
    }
