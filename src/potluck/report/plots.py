"""Plots of rows, made with Altair: the same for pages and for files. Colours can be told apart by everybody."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import altair as alt

from potluck.report.rows import Rows, part_names

if TYPE_CHECKING:
    from collections.abc import Sequence

Draw: TypeAlias = Callable[[Rows], Any]

# Okabe and Ito's palette without its yellow, which is lost on white, and its black, which is lost on the dark.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
STATES = {"here": "#0072B2", "benched": "#E69F00", "away": "#D55E00"}
_PARTS = dict(zip(part_names().values(), PALETTE, strict=True))
_HEIGHT = 220
_ROOM = 1.15  # for the figure at the end of the longest bar
_SECONDS = alt.X("t:Q", title="seconds since the run began")


def throughput(rows: Rows) -> alt.Chart:
    """Achieved samples/s against the sum of solo speeds."""
    lines = ["achieved", "sum of solo speeds"]
    base = alt.Chart(alt.Data(values=rows)).encode(x=_SECONDS, y=alt.Y("samples_per_s:Q", title="samples/s"))
    color = alt.Color("line:N", title=None, scale=alt.Scale(domain=lines, range=list(PALETTE[:2])), legend=_top())
    achieved = base.transform_filter("datum.line == 'achieved'").mark_line().encode(color=color)
    alone = base.transform_filter("datum.line != 'achieved'").mark_line(interpolate="step-after", strokeDash=[5, 3])
    return _sized(alt.layer(achieved, alone.encode(color=color)))


def shares(rows: Rows, machines: "Sequence[str]") -> alt.Chart:
    """Each machine's part of the samples."""
    chart = alt.Chart(alt.Data(values=rows)).mark_area(interpolate="step")
    return _sized(
        chart.encode(
            x=_SECONDS,
            y=alt.Y("part:Q", stack=True, title="part of the samples", axis=alt.Axis(format="%")),
            color=_by_machine(machines),
            tooltip=["machine:N", alt.Tooltip("part:Q", format=".1%")],
        )
    )


def step_parts(rows: Rows) -> alt.Chart:
    """A mean step of each machine, by cause."""
    chart = alt.Chart(alt.Data(values=rows)).mark_bar()
    color = alt.Color(
        "part:N",
        title=None,
        scale=alt.Scale(domain=list(_PARTS), range=list(_PARTS.values())),
        legend=alt.Legend(orient="bottom", columns=1, labelLimit=320),
    )
    return _sized(
        chart.encode(
            x=alt.X("seconds:Q", title="seconds of a mean step"),
            y=alt.Y("machine:N", title=None),
            color=color,
            order="order:Q",
            tooltip=["machine:N", "part:N", alt.Tooltip("seconds:Q", format=".4f")],
        ),
        height=max(90, 34 * len({row["machine"] for row in rows})),
    )


def loss(rows: Rows) -> alt.Chart:
    """Training loss."""
    chart = alt.Chart(alt.Data(values=rows)).mark_line(color=PALETTE[0])
    return _sized(chart.encode(x=_SECONDS, y=alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False))))


def scores(rows: Rows) -> alt.Chart:
    """Evaluations."""
    chart = alt.Chart(alt.Data(values=rows)).mark_line(point=True)
    color = alt.Color("score:N", title=None, scale=alt.Scale(range=list(PALETTE)), legend=_top())
    return _sized(chart.encode(x=_SECONDS, y=alt.Y("value:Q", title="evaluation"), color=color))


def presence(rows: Rows) -> alt.Chart:
    """Machines coming and going."""
    color = alt.Color(
        "state:N", title=None, scale=alt.Scale(domain=list(STATES), range=list(STATES.values())), legend=_top()
    )
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    chart = alt.Chart(alt.Data(values=rows)).mark_bar(height=14)
    return _sized(
        chart.encode(
            x=_SECONDS,
            x2="until:Q",
            y=alt.Y("machine:N", title=None, sort=machines),
            color=color,
            tooltip=["machine:N", "state:N", "t:Q", "until:Q"],
        ),
        height=max(70, 26 * len(machines)),
    )


def usage(rows: Rows, what: str, machines: "Sequence[str]") -> alt.Chart:
    """One quantity of every machine."""
    chart = alt.Chart(alt.Data(values=[row for row in rows if row["what"] == what])).mark_line()
    return _sized(
        chart.encode(x=_SECONDS, y=alt.Y("value:Q", title=what), color=_by_machine(machines)), height=_HEIGHT * 2 // 3
    )


def by_run(rows: Rows, y: str, title: str, runs: "Sequence[str]") -> alt.Chart:
    """One quantity over time, a line a run."""
    chart = alt.Chart(alt.Data(values=rows)).mark_line()
    return _sized(
        chart.encode(x=_SECONDS, y=alt.Y(f"{y}:Q", title=title, scale=alt.Scale(zero=False)), color=_by_run(runs))
    )


def bars_by_run(rows: Rows, value: str, title: str, runs: "Sequence[str]") -> alt.Chart:
    """One figure a run, in the order given; its value stands at the end of the bar."""
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(f"{value}:Q", title=title, scale=alt.Scale(domainMax=_ROOM * max(row[value] for row in rows) or 1)),
        y=alt.Y("run:N", title=None, sort=list(runs)),
    )
    bars = base.mark_bar().encode(color=_by_run(runs, legend=None))
    texts = base.mark_text(align="left", dx=4, color="#808080").encode(text=alt.Text(f"{value}:Q", format=",.4~g"))
    return _sized(alt.layer(bars, texts), height=max(60, 34 * len(runs)))


def to_svg(chart: alt.Chart, width: int = 640) -> str:
    """A picture that needs nothing else; texts take the colour of the page that it stands in."""
    import vl_convert  # noqa: PLC0415  starts a JavaScript engine

    plain = chart.properties(width=width).configure(background="transparent").configure_view(stroke=None)
    grid = plain.configure_axis(gridColor="#80808033", domainColor="#808080", tickColor="#808080")
    return str(vl_convert.vegalite_to_svg(grid.to_dict()))


def _sized(chart: Any, height: int = _HEIGHT) -> Any:
    return chart.properties(height=height, width="container")


def _top() -> alt.Legend:
    return alt.Legend(orient="top", labelLimit=320)


def _by_machine(machines: "Sequence[str]") -> alt.Color:
    return alt.Color(
        "machine:N", title=None, scale=alt.Scale(domain=list(machines), range=_colours(machines)), legend=_top()
    )


def _by_run(runs: "Sequence[str]", legend: Any = alt.Undefined) -> alt.Color:
    legend = _top() if legend is alt.Undefined else legend
    return alt.Color("run:N", title=None, scale=alt.Scale(domain=list(runs), range=_colours(runs)), legend=legend)


def _colours(names: "Sequence[str]") -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(len(names))]
