"""Runs side by side: time to a loss or an accuracy, throughput, efficiency, cost of faults, settings that differ."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from potluck.core.words import listed
from potluck.report.cards import card_rows, energy_of
from potluck.report.rows import Rows, loss_rows, throughput_rows
from potluck.report.view import RunView
from potluck.report.words import duration, number, percent

_OF_CARDS: dict[str, tuple[str, Callable[[float], str]]] = {
    "card_busy": ("cards busy", percent),
    "card_memory": ("memory of the fullest card", percent),
    "card_power_w": ("power of the cards", lambda watts: f"{watts:.0f} W"),
    "samples_per_joule": ("samples per joule", lambda value: f"{value:.3g}"),
}
"""Figures that are shown if a run has them, with heading and format."""
_EQUAL = 1.03  # a smaller difference between two single runs may be chance


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFigures:
    """The figures of all cards of one run; None where no driver reports a value."""

    card_busy: float | None = None
    """The mean over the run's cards, 0 to 1."""
    card_memory: float | None = None
    """The fullest card's memory in use, 0 to 1."""
    card_power_w: float | None = None
    """The sum over the run's cards."""
    samples_per_joule: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The figures of one run; None where the run does not have that figure."""

    run: str
    status: str
    machines: int
    steps: int
    seconds: float
    """From the first event to the last."""
    samples_per_s: float
    efficiency: float | None
    """Against the sum of solo speeds that this run's own plans estimated: less meaningful between runs than within."""
    loss: float | None
    accuracy: float | None
    time_to_loss_s: float | None
    time_to_accuracy_s: float | None
    fault_s: float
    plan_changes: int
    cards: CardFigures = field(default_factory=CardFigures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The figures of all runs, the targets of their times to a loss and an accuracy, and settings that differ."""

    runs: tuple[RunFigures, ...]
    target_loss: float | None
    target_accuracy: float | None
    differing: dict[str, tuple[str, ...]]
    """Settings that are not the same in all runs: one value for each run, in the order of `runs`."""

    @property
    def fastest(self) -> RunFigures | None:
        """The run with the highest throughput; None if no run has committed a step."""
        return max((run for run in self.runs if run.samples_per_s), key=lambda run: run.samples_per_s, default=None)


def compare(
    views: Sequence[RunView], *, target_loss: float | None = None, target_accuracy: float | None = None
) -> Comparison:
    """Compare runs. A target that is not given is the worst of all runs' last values, which every run has reached."""
    losses = [loss_rows(view) for view in views]
    if target_loss is None:
        last = [rows[-1]["loss"] for rows in losses if rows]
        target_loss = max(last) if last else None
    if target_accuracy is None:
        best = [found[-1][1] for view in views if (found := _accuracies(view))]
        target_accuracy = min(best) if best else None
    figures = [_figures(view, rows, target_loss, target_accuracy) for view, rows in zip(views, losses, strict=True)]
    return Comparison(
        runs=tuple(figures),
        target_loss=target_loss,
        target_accuracy=target_accuracy,
        differing=_differing([_settings(view) for view in views]),
    )


def verdict(comparison: Comparison) -> str:
    """Which run was fastest, and by how much; runs within a few percent count as equally fast."""
    fastest = comparison.fastest
    if fastest is None:
        return "no run has committed a step"
    others = sorted((run for run in comparison.runs if run.samples_per_s), key=lambda run: -run.samples_per_s)[1:]
    equal = [run for run in others if fastest.samples_per_s <= _EQUAL * run.samples_per_s]
    slower = [f"{fastest.samples_per_s / run.samples_per_s:.2f} times {run.run}" for run in others if run not in equal]
    names = [fastest.run, *(run.run for run in equal)]
    head = f"{listed(names)} {'are equally fast' if equal else 'is fastest'}: {fastest.samples_per_s:,.1f} samples/s"
    return f"{head}, {listed(slower)}" if slower else head


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings, and one line of formatted cells for each run."""
    to_loss = "" if comparison.target_loss is None else f"to loss {comparison.target_loss:.4g}"
    to_accuracy = "" if comparison.target_accuracy is None else f"to {percent(comparison.target_accuracy)}"
    headings = ["run", "state", "machines", "samples/s", "of its own estimate", "last loss"]
    headings += ["accuracy", to_accuracy] if to_accuracy else []
    headings += [to_loss] if to_loss else []
    headings += ["faults", "plan changes"]
    shown = [name for name in _OF_CARDS if any(getattr(run.cards, name) is not None for run in comparison.runs)]
    headings += [_OF_CARDS[name][0] for name in shown]
    lines = []
    for run in comparison.runs:
        line = [run.run, run.status, str(run.machines), f"{run.samples_per_s:,.1f}", _or_blank(run.efficiency, percent)]
        line.append(_or_blank(run.loss, number))
        if to_accuracy:
            line += [_or_blank(run.accuracy, percent), _or_blank(run.time_to_accuracy_s, duration, "never")]
        line += [_or_blank(run.time_to_loss_s, duration, "never")] if to_loss else []
        line += [duration(run.fault_s), str(run.plan_changes)]
        lines.append([*line, *(_or_blank(getattr(run.cards, name), _OF_CARDS[name][1]) for name in shown)])
    return headings, lines


def to_csv(comparison: Comparison) -> str:
    """CSV with one line for each run: every figure, and every setting that differs."""
    text = StringIO()
    keys = [key for key in RunFigures.__dataclass_fields__ if key != "cards"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *_OF_CARDS, *comparison.differing])
    for index, run in enumerate(comparison.runs):
        settings = [values[index] for values in comparison.differing.values()]
        cards = [getattr(run.cards, key) for key in _OF_CARDS]
        writer.writerow([*(getattr(run, key) for key in keys), *cards, *settings])
    return text.getvalue()


def curves(views: Sequence[RunView]) -> tuple[Rows, Rows]:
    """Throughput and loss of every run over time."""
    speeds = [
        {**row, "run": view.folder.name} for view in views for row in throughput_rows(view) if row["line"] == "achieved"
    ]
    losses = [{**row, "run": view.folder.name} for view in views for row in loss_rows(view)]
    return speeds, losses


def _figures(view: RunView, losses: Rows, target_loss: float | None, target_accuracy: float | None) -> RunFigures:
    account, state = view.account(), view.state
    accuracies = _accuracies(view)
    reached = [row["t"] for row in losses if target_loss is not None and row["loss"] <= target_loss]
    good = [at for at, value in accuracies if target_accuracy is not None and value >= target_accuracy]
    return RunFigures(
        run=view.folder.name,
        status=view.shown_status,
        machines=len(view.machines),
        steps=state.step,
        seconds=max(0.0, view.updated_at - view.began_at),
        samples_per_s=view.merge.samples_per_s,
        efficiency=None if account is None else account.efficiency,
        loss=state.loss,
        accuracy=accuracies[-1][1] if accuracies else None,
        time_to_loss_s=min(reached, default=None),
        time_to_accuracy_s=min(good, default=None),
        fault_s=view.merge.regroup_s,
        plan_changes=max(0, len(view.merge.plans) - 1),
        cards=_of_cards(view),
    )


def _of_cards(view: RunView) -> CardFigures:
    rows, energy = card_rows(view), energy_of(view)
    busy = [row.busy for row in rows if row.busy is not None]
    memory = [row.memory_part for row in rows if row.memory_part is not None]
    power = [row.power_w for row in rows if row.power_w is not None]
    return CardFigures(
        card_busy=sum(busy) / len(busy) if busy else None,
        card_memory=max(memory, default=None),
        card_power_w=sum(power) if power else None,
        samples_per_joule=None if energy is None else energy.samples_per_joule,
    )


def _accuracies(view: RunView) -> list[tuple[float, float]]:
    """Times and values of the evaluations that have an accuracy."""
    return [
        (at - view.began_at, value)
        for _, (at, event) in sorted(view.merge.scores.items())
        if (value := event.values.get("accuracy")) is not None
    ]


def _settings(view: RunView) -> dict[str, Any]:
    """The settings that run.yaml records, and the policy of the newest plan."""
    return {**view.settings, **({"policy": view.merge.plans[-1][1].policy} if view.merge.plans else {})}


def _differing(settings: "Sequence[dict[str, Any]]") -> dict[str, tuple[str, ...]]:
    """Settings that differ between the runs that record them; the run.yaml of a script records few."""
    keys = dict.fromkeys(key for values in settings for key in values)
    return {
        key: tuple(str(values.get(key, "")) for values in settings)
        for key in keys
        if len({str(values[key]) for values in settings if key in values}) > 1
    }


def _or_blank(value: float | None, words: "Any", blank: str = "") -> str:
    return blank if value is None else str(words(value))
