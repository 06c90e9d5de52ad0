"""The dashboard's page that compares runs."""

from pathlib import Path

import streamlit as st

from potluck.core.run_folder import RunFolder
from potluck.dashboard.followed import follow, names_of_runs
from potluck.dashboard.plot import draw
from potluck.report import plots
from potluck.report.compare import compare, curves, table, verdict


def show(runs_dir: Path) -> None:
    """Let the visitor choose runs, and compare them."""
    st.title("Compare runs")
    names = names_of_runs(runs_dir)
    if len(names) < 2:
        st.info(f"A comparison needs two runs; there are {len(names)} in {runs_dir.absolute()}.")
        return
    asked = [name for name in st.query_params.get_all("runs") if name in names]
    chosen = st.multiselect("Runs", names, default=asked or names[:2], max_selections=len(plots.PALETTE))
    st.query_params["runs"] = chosen
    followed = {name: follow(RunFolder(runs_dir / name)) for name in chosen}
    for name, run in followed.items():
        if run.error is not None:
            st.error(f"{name} is left out: {run.error.args[0]}\n\nFix: {run.error.fix}")
    views = [run.view for run in followed.values() if run.error is None]
    if len(views) < 2:
        st.info("Choose two runs or more.")
        return
    found = compare(views)
    runs = [run.run for run in found.runs]
    st.markdown(f"**{verdict(found)}**")
    left, right = st.columns(2)
    bars = [{"run": run.run, "samples_per_s": run.samples_per_s} for run in found.runs]
    left.markdown("##### Throughput")
    draw(left, plots.bars_by_run(bars, "samples_per_s", "samples/s, longer is better", runs))
    times = [{"run": run.run, "s": run.time_to_loss_s} for run in found.runs if run.time_to_loss_s is not None]
    if times:
        right.markdown(f"##### Time to a loss of {found.target_loss:.4g}")
        draw(right, plots.bars_by_run(times, "s", "seconds, shorter is better", runs))
    speeds, losses = curves(views)
    if speeds:
        draw(left, plots.by_run(speeds, "samples_per_s", "samples/s", runs, from_zero=True))
    if losses:
        draw(right, plots.by_run(losses, "loss", "training loss", runs))
    headings, lines = table(found)
    st.dataframe([dict(zip(headings, line, strict=True)) for line in lines], hide_index=True, width="stretch")
    if found.differing:
        st.markdown("##### Settings that differ")
        settings = [{"setting": key, **dict(zip(runs, values, strict=True))} for key, values in found.differing.items()]
        st.dataframe(settings, hide_index=True, width="stretch")
