"""A comparison as one HTML file with its plots inside."""

from collections.abc import Sequence

from potluck.report.compare import Comparison, curves, table, verdict
from potluck.report.page import drawing, make_page
from potluck.report.view import RunView


def render_comparison(comparison: Comparison, views: Sequence[RunView]) -> str:
    """The HTML of the page, with its plots as SVG."""
    plots = drawing()
    runs = [run.run for run in comparison.runs]
    speeds, losses = curves(views)
    bars = [{"run": run.run, "samples_per_s": run.samples_per_s} for run in comparison.runs]
    times = [
        {"run": run.run, "seconds": run.time_to_loss_s} for run in comparison.runs if run.time_to_loss_s is not None
    ]
    charts = {
        "speed": plots.bars_by_run(bars, "samples_per_s", "samples/s, longer is better", runs),
        "time": plots.bars_by_run(
            times, "seconds", f"seconds to loss {comparison.target_loss:.4g}, shorter is better", runs
        )
        if times
        else None,
        "speeds": plots.by_run(speeds, "samples_per_s", "samples/s", runs, from_zero=True) if speeds else None,
        "losses": plots.by_run(losses, "loss", "training loss", runs) if losses else None,
    }
    headings, lines = table(comparison)
    return make_page(
        "comparison.html.j2",
        comparison=comparison,
        runs=runs,
        verdict=verdict(comparison),
        headings=headings,
        lines=lines,
        svg={name: chart.to_svg() for name, chart in charts.items() if chart is not None},
    )
