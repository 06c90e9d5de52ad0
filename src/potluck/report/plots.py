"""Plots of rows, made with Altair, the same for pages and for files; colour-blind people can tell the colours apart.

A plot's Vega-Lite specification depends on names, units and counts but not on rows, so it is made once and cached. A
refreshed page only brings new rows: with rows inside the chart, Altair would copy and check every row each time.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import altair as alt

from potluck.report.account_words import part_names
from potluck.report.rows import Rows

# Okabe and Ito's palette without its yellow, which is lost on white, and its black, which is lost on the dark.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
STATES = {"here": "#0072B2", "benched": "#E69F00", "away": "#D55E00", "paused": "#BBBBBB"}
_PARTS = dict(zip(part_names().values(), PALETTE, strict=True))
_HEIGHT = 220
_ROOM = 1.15  # for the figure at the end of the longest bar
_KEPT = 128
_UNITS = {"seconds": (1.0, 300.0), "minutes": (60.0, 3 * 3600.0), "hours": (3600.0, 3 * 86400.0)}
"""By unit of time: its length in seconds, and the longest time axis, in seconds, that is shown in this unit."""
_DAY_S = 86400.0
_PAPER = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {"gridColor": "#80808033", "domainColor": "#808080", "tickColor": "#808080"},
}


@dataclass(frozen=True, slots=True)
class Plot:
    """Rows, and the Vega-Lite specification that draws them."""

    rows: Rows
    spec: dict[str, Any]

    @property
    def height(self) -> int:
        """The height of the plot itself, without axes and legends."""
        return int(self.spec["height"])

    def to_svg(self, width: int = 640) -> str:
        """The plot as a self-contained SVG; the page around it sets the colour of its texts."""
        import vl_convert  # noqa: PLC0415  starts a JavaScript engine

        whole = {**self.spec, "data": {"values": self.rows}, "width": width, "config": _PAPER}
        return str(vl_convert.vegalite_to_svg(whole))


Draw: TypeAlias = Callable[[Rows], Plot]


def throughput(rows: Rows) -> Plot:
    """Achieved samples/s against the sum of solo speeds."""
    return Plot(rows, deepcopy(_throughput(_unit(rows))))


def shares(rows: Rows, machines: Sequence[str]) -> Plot:
    """Each machine's fraction of the samples over time."""
    return Plot(rows, deepcopy(_shares(tuple(machines), _unit(rows))))


def step_parts(rows: Rows) -> Plot:
    """A mean step of each machine, by cause."""
    return Plot(rows, deepcopy(_step_parts(len({row["machine"] for row in rows}))))


def loss(rows: Rows) -> Plot:
    """Training loss."""
    return Plot(rows, deepcopy(_loss(_unit(rows))))


def scores(rows: Rows) -> Plot:
    """Evaluations."""
    return Plot(rows, deepcopy(_scores(_unit(rows))))


def presence(rows: Rows) -> Plot:
    """When each machine was here, benched, away or paused."""
    return Plot(rows, deepcopy(_presence(tuple(dict.fromkeys(row["machine"] for row in rows)), _unit(rows))))


def usage(rows: Rows, what: str, machines: Sequence[str]) -> Plot:
    """One usage quantity of every machine over time."""
    return Plot([row for row in rows if row["what"] == what], deepcopy(_usage(what, tuple(machines), _unit(rows))))


def by_run(rows: Rows, y: str, title: str, runs: Sequence[str], *, from_zero: bool = False) -> Plot:
    """One quantity over time, with a line for each run."""
    return Plot(rows, deepcopy(_by_run(y, title, tuple(runs), from_zero, _unit(rows))))


def bars_by_run(rows: Rows, value: str, title: str, runs: Sequence[str]) -> Plot:
    """One bar for each run, in the order given; the value stands at the end of the bar."""
    room = _ROOM * max(row[value] for row in rows) or 1
    return Plot(rows, deepcopy(_bars_by_run(value, title, tuple(runs), room)))


@lru_cache(_KEPT)
def _throughput(unit: str) -> dict[str, Any]:
    lines = ["achieved", "sum of solo speeds"]
    base = _chart_over_time(unit).encode(
        x=_time(unit), detail="session:N", y=alt.Y("samples_per_s:Q", title="samples/s")
    )
    color = alt.Color("line:N", title=None, scale=alt.Scale(domain=lines, range=list(PALETTE[:2])), legend=_top())
    achieved = base.transform_filter("datum.line == 'achieved'").mark_line().encode(color=color)
    alone = base.transform_filter("datum.line != 'achieved'").mark_line(interpolate="step-after", strokeDash=[5, 3])
    return _spec(alt.layer(achieved, alone.encode(color=color)))


@lru_cache(_KEPT)
def _shares(machines: tuple[str, ...], unit: str) -> dict[str, Any]:
    chart = _chart_over_time(unit).mark_area(interpolate="step-after")
    return _spec(
        chart.encode(
            x=_time(unit),
            detail="session:N",
            y=alt.Y("part:Q", stack=True, title="part of the samples", axis=alt.Axis(format="%")),
            color=_machine_colour(machines),
            tooltip=["machine:N", alt.Tooltip("part:Q", format=".1%")],
        )
    )


@lru_cache(_KEPT)
def _step_parts(num_machines: int) -> dict[str, Any]:
    color = alt.Color(
        "part:N",
        title=None,
        scale=alt.Scale(domain=list(_PARTS), range=list(_PARTS.values())),
        legend=alt.Legend(orient="bottom", columns=1, labelLimit=320),
    )
    chart = _chart().mark_bar()
    return _spec(
        chart.encode(
            x=alt.X("seconds:Q", title="seconds of a mean step"),
            y=alt.Y("machine:N", title=None),
            color=color,
            order="order:Q",
            tooltip=["machine:N", "part:N", alt.Tooltip("seconds:Q", format=".4f")],
        ),
        height=max(90, 34 * num_machines),
    )


@lru_cache(_KEPT)
def _loss(unit: str) -> dict[str, Any]:
    chart = _chart_over_time(unit).mark_line(color=PALETTE[0])
    loss_axis = alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False))
    return _spec(chart.encode(x=_time(unit), y=loss_axis, detail="session:N"))


@lru_cache(_KEPT)
def _scores(unit: str) -> dict[str, Any]:
    chart = _chart_over_time(unit).mark_line(point=True)
    color = alt.Color("score:N", title=None, scale=alt.Scale(range=list(PALETTE)), legend=_top())
    return _spec(chart.encode(x=_time(unit), y=alt.Y("value:Q", title="evaluation"), color=color))


@lru_cache(_KEPT)
def _presence(machines: tuple[str, ...], unit: str) -> dict[str, Any]:
    color = alt.Color(
        "state:N", title=None, scale=alt.Scale(domain=list(STATES), range=list(STATES.values())), legend=_top()
    )
    until = f"datum.until / {_seconds_in(unit)}"
    chart = _chart_over_time(unit).transform_calculate(until_time=until).mark_bar(height=14)
    return _spec(
        chart.encode(
            x=_time(unit),
            x2="until_time:Q",
            y=alt.Y("machine:N", title=None, sort=list(machines)),
            color=color,
            tooltip=["machine:N", "state:N", "t:Q", "until:Q"],
        ),
        height=max(70, 26 * len(machines)),
    )


@lru_cache(_KEPT)
def _usage(what: str, machines: tuple[str, ...], unit: str) -> dict[str, Any]:
    lines = _chart_over_time(unit).mark_line()
    value, who = alt.Y("value:Q", title=what), ["who:N", "session:N"]
    chart = lines.encode(x=_time(unit), y=value, color=_machine_colour(machines), detail=who)
    return _spec(chart, height=_HEIGHT * 2 // 3)


@lru_cache(_KEPT)
def _by_run(y: str, title: str, runs: tuple[str, ...], from_zero: bool, unit: str) -> dict[str, Any]:
    value = alt.Y(f"{y}:Q", title=title, scale=alt.Scale(zero=from_zero))
    lines = _chart_over_time(unit).mark_line()
    return _spec(
        lines.encode(x=_time(unit), y=value, color=_run_colour(runs, legend=_top()), detail="session:N"),
    )


@lru_cache(_KEPT)
def _bars_by_run(value: str, title: str, runs: tuple[str, ...], room: float) -> dict[str, Any]:
    base = _chart().encode(
        x=alt.X(f"{value}:Q", title=title, scale=alt.Scale(domainMax=room), axis=alt.Axis(tickCount=5)),
        y=alt.Y("run:N", title=None, sort=list(runs)),
    )
    bars = base.mark_bar().encode(color=_run_colour(runs, legend=None))
    texts = base.mark_text(align="left", dx=4, color="#808080").encode(text=alt.Text(f"{value}:Q", format=",.4~g"))
    return _spec(alt.layer(bars, texts), height=max(60, 34 * len(runs)))


def _chart() -> alt.Chart:
    return alt.Chart(alt.NamedData(name="rows"))


def _unit(rows: Rows) -> str:
    """The unit of the time axis, chosen by the latest time in the rows."""
    longest = max((max(row["t"], row.get("until", 0.0)) for row in rows), default=0.0)
    return next((unit for unit, (_, most_s) in _UNITS.items() if longest <= most_s), "days")


def _seconds_in(unit: str) -> float:
    return _UNITS[unit][0] if unit in _UNITS else _DAY_S


def _chart_over_time(unit: str) -> alt.Chart:
    return _chart().transform_calculate(time=f"datum.t / {_seconds_in(unit)}")


def _time(unit: str) -> alt.X:
    return alt.X("time:Q", title=f"{unit} since the run began")


def _spec(chart: Any, height: int = _HEIGHT) -> dict[str, Any]:
    """The chart's Vega-Lite specification, without data and without Altair's own theme."""
    whole: dict[str, Any] = chart.properties(height=height, width="container").to_dict()
    return {key: value for key, value in whole.items() if key not in ("data", "config")}


def _top() -> alt.Legend:
    return alt.Legend(orient="top", labelLimit=320)


def _machine_colour(machines: Sequence[str]) -> alt.Color:
    scale = alt.Scale(domain=list(machines), range=_colours(machines))
    return alt.Color("machine:N", title=None, scale=scale, legend=_top())


def _run_colour(runs: Sequence[str], legend: Any) -> alt.Color:
    return alt.Color("run:N", title=None, scale=alt.Scale(domain=list(runs), range=_colours(runs)), legend=legend)


def _colours(names: Sequence[str]) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(len(names))]
