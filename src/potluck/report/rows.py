"""The data of the plots, as plain rows: pure functions of a run's view. Times are seconds since the run began."""

from typing import Any, TypeAlias

from potluck.events.types import MachineUsed
from potluck.report.account_words import part_names
from potluck.report.presence import Period, cut
from potluck.report.timeline import COLUMNS
from potluck.report.view import RunView

Rows: TypeAlias = list[dict[str, Any]]

_OWN, _STEPS, _SECONDS = COLUMNS.index("own_samples"), COLUMNS.index("steps"), COLUMNS.index("seconds")
_LOSS, _NUM_LOSSES = COLUMNS.index("loss"), COLUMNS.index("num_losses")
_MOST_MACHINES = 7  # as many as there are colours that everybody can tell apart
OTHERS = "others"
_MOST_LINES = 24
_MOST_MOMENTS = 2000


def throughput_rows(view: RunView) -> Rows:
    """Samples/s that the run achieved over time, and the sum of its machines' solo speeds."""
    _, starts, width_s, sums = view.series()
    rows: Rows = []
    for index, start in enumerate(starts.tolist()):
        steps, seconds = sums[:, index, _STEPS], sums[:, index, _SECONDS]
        if steps.any():
            # A step counts in the bin where it ends: dividing by the bin's width would draw a sawtooth, so divide by
            # the time that the steps took.
            took_s = seconds[steps == steps.max()].min()
            wide_s = min(width_s, view.updated_at - start)
            speed = float(sums[:, index, _OWN].sum() / took_s) if took_s else 0.0
            rows.append(_at(view, start + wide_s / 2, samples_per_s=speed, line="achieved"))
    rows.extend(_solo_rows(view))
    return rows


def _solo_rows(view: RunView) -> Rows:
    """The sum of solo speeds by the plan in force: a row where it changes, and at both ends of every session."""
    rows: Rows = []
    for session, (begin, end) in enumerate(_sessions(view)):
        plans = view.merge.plans
        moments = [(begin, plan) for plan in [plan for at, plan in plans if at <= begin][-1:]]
        moments += [(at, plan) for at, plan in plans if begin < at <= end]
        moments += [(end, plan) for _, plan in moments[-1:]]
        for at, plan in moments:
            alone = sum(speed for worker, speed in plan.solo_samples_per_s.items() if plan.shares.get(worker))
            rows.append(_moment(view, at, session, samples_per_s=alone, line="sum of solo speeds"))
    return rows


def share_rows(view: RunView) -> Rows:
    """Each machine's part of the samples over time: a row where it changes, and at both ends of every session."""
    names, starts, width_s, sums = view.series()
    own = sums[:, :, _OWN]
    by_machine: dict[str, Any] = {}
    label = _labels(view)
    for index, name in enumerate(names):
        machine = label[view.merge.workers[name].machine]
        by_machine[machine] = by_machine.get(machine, 0.0) + own[index]
    total = own.sum(axis=0)
    bins: dict[int, list[int]] = {}
    for index, start in enumerate(starts.tolist()):
        if total[index]:
            bins.setdefault(_session_at(view, start + width_s / 2), []).append(index)
    sessions = _sessions(view)
    rows: Rows = []
    for machine, values in by_machine.items():
        for session, chosen in bins.items():
            begin, end = sessions[session]
            for index in chosen:
                share = float(values[index] / total[index])
                rows.append(_moment(view, max(begin, starts[index]), session, machine=machine, part=share))
            last = min(end, starts[chosen[-1]] + width_s)
            rows.append({**rows[-1], "t": _since(view, last)})
    return rows


def step_rows(view: RunView) -> Rows:
    """A mean step of each machine by part, in seconds."""
    account = view.account()
    words = part_names()
    if account is None:
        return []
    return [
        {"machine": machine, "part": words[part], "seconds": parts.get(part, 0.0), "order": order}
        for machine, parts in list(account.step_parts_s.items())[:20]
        for order, part in enumerate(words)
    ]


def loss_rows(view: RunView) -> Rows:
    """Mean training loss over time."""
    _, starts, width_s, sums = view.series()
    losses, counts = sums[:, :, _LOSS].sum(axis=0), sums[:, :, _NUM_LOSSES].sum(axis=0)
    return [
        _at(view, start + width_s / 2, loss=float(losses[index] / counts[index]))
        for index, start in enumerate(starts.tolist())
        if counts[index]
    ]


def score_rows(view: RunView) -> Rows:
    """Evaluations, a row a value."""
    return [
        _at(view, at, step=step, score=f"{name} {key}".replace("_", " "), value=value)
        for (step, name), (at, event) in sorted(view.merge.scores.items())
        for key, value in event.values.items()
        if value is not None
    ]


def presence_rows(view: RunView) -> Rows:
    """The periods in which each machine was here, benched or away, or the whole run was paused.

    At most _MOST_LINES machines are shown, first of all those that were not always here.
    """
    stretches: dict[str, Rows] = {machine: [] for machine in view.machines}
    paused = [(pause.begin, pause.end) for pause in view.attendance.pauses]
    for name, gaps in view.attendance.absences.items():
        worker = view.merge.workers[name]
        ahead_s = view.ahead_s(name)
        begin, end = worker.state.started_at - ahead_s, worker.state.updated_at - ahead_s
        periods: list[tuple[str, Period]] = []
        for gap in gaps:
            until = gap.until or view.updated_at
            absent = "benched" if view.attendance.was_benched(worker.machine, gap.first_step) else "away"
            periods += [("here", (begin, gap.since)), (absent, (gap.since, until))]
            begin = until
        if not gaps or gaps[-1].until is not None:
            periods.append(("here", (begin, end)))
        rows = stretches[worker.machine]
        rows += [_stretch(view, worker.machine, state, *part) for state, of in periods for part in cut(of, paused)]
        first = worker.state.started_at - ahead_s
        rows += [_stretch(view, worker.machine, "paused", *pause) for pause in paused if pause[0] >= first]
    for at, machine, until in _benchings(view):
        rows = stretches.setdefault(machine, [])
        rows += [_stretch(view, machine, "benched", *part) for part in cut((at, until), paused)]
    if len(stretches) > _MOST_LINES:
        changed = sorted(stretches, key=lambda machine: all(row["state"] == "here" for row in stretches[machine]))
        stretches = {machine: stretches[machine] for machine in stretches if machine in changed[:_MOST_LINES]}
    return [row for rows in stretches.values() for row in rows if row["until"] > row["t"]]


def usage_rows(view: RunView) -> Rows:
    """CPU, memory, network, GPU and power of every machine, where known; of many measurements only every n-th."""
    rows: Rows = []
    label = _labels(view)
    every = max(1, -(-sum(len(worker.used) for worker in view.merge.workers.values()) // _MOST_MOMENTS))
    seen = set()
    for worker in view.merge.workers.values():
        if worker.machine in seen:
            continue
        for at, used in list(worker.used)[::-every]:
            seen.add(worker.machine)
            rows.extend(
                _at(view, at, machine=label[worker.machine], who=worker.machine, what=what, value=value)
                for what, value in _use(used).items()
            )
    return rows


def _use(used: MachineUsed) -> dict[str, float]:
    values = {
        "CPU busy, %": 100 * used.cpu,
        "memory, %": 100 * used.memory_bytes / max(1, used.memory_total_bytes),
        "network, MB/s": (used.sent_bytes_per_s + used.received_bytes_per_s) / 1e6,
    }
    busy = [gpu.busy for gpu in used.gpus if gpu.busy is not None]
    power = [gpu.power_w for gpu in used.gpus if gpu.power_w is not None]
    memory = [gpu.memory_bytes for gpu in used.gpus if gpu.memory_bytes is not None and gpu.memory_total_bytes]
    if busy:
        values["GPU busy, %"] = 100 * sum(busy) / len(busy)
    if memory:
        values["GPU memory, %"] = 100 * sum(memory) / sum(gpu.memory_total_bytes or 0 for gpu in used.gpus)
    if power:
        values["GPU power, W"] = sum(power)
    if used.cpu_power_w is not None:
        values["CPU power, W"] = used.cpu_power_w
    return values


def _benchings(view: RunView) -> list[tuple[float, str, float]]:
    """Periods in which a plan gave a machine's worker no samples: (begin, machine, end)."""
    found = []
    for index, (at, plan) in enumerate(view.merge.plans):
        until = view.merge.plans[index + 1][0] if index + 1 < len(view.merge.plans) else view.updated_at
        found += [(at, plan.machines.get(name, name), until) for name, share in plan.shares.items() if not share]
    return found


def _labels(view: RunView) -> dict[str, str]:
    """The label of each machine: its name; with more machines than colours, the last ones share the label OTHERS."""
    machines = view.machines
    few = len(machines) <= _MOST_MACHINES
    return {name: name if few or index < _MOST_MACHINES - 1 else OTHERS for index, name in enumerate(machines)}


def machine_labels(view: RunView) -> list[str]:
    """The labels that share_rows and usage_rows use for machines."""
    return list(dict.fromkeys(_labels(view).values()))


def _at(view: RunView, at: float, **values: Any) -> dict[str, Any]:
    """A row at a moment; a moment inside a pause is moved to the nearer end of that pause."""
    for pause in view.attendance.pauses:
        if pause.begin < at < pause.end:
            at = pause.begin if at - pause.begin < pause.end - at else pause.end
    return _moment(view, at, _session_at(view, at), **values)


def _moment(view: RunView, at: float, session: int, **values: Any) -> dict[str, Any]:
    return {"t": _since(view, at), "session": session, **values}


def _since(view: RunView, at: float) -> float:
    return max(0.0, round(at - view.began_at, 3))  # a bin may begin before the run does


def _session_at(view: RunView, at: float) -> int:
    """The session at a moment, which is the number of pauses before it: no line is drawn from session to session."""
    return sum((pause.begin + pause.end) / 2 < at for pause in view.attendance.pauses)


def _sessions(view: RunView) -> list[tuple[float, float]]:
    """The times in which the run was trained, between its pauses."""
    begins = [view.began_at, *(pause.end for pause in view.attendance.pauses)]
    return list(zip(begins, [*(pause.begin for pause in view.attendance.pauses), view.updated_at], strict=True))


def _stretch(view: RunView, machine: str, state: str, begin: float, end: float) -> dict[str, Any]:
    return {"t": _since(view, begin), "until": _since(view, end), "machine": machine, "state": state}
