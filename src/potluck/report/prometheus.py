"""Metrics of runs for Prometheus: a pure function from views to the Prometheus text format."""

from collections.abc import Iterable

from potluck.core.cards import labels as card_labels
from potluck.events.types import GpuUse
from potluck.report.cards import energy_of
from potluck.report.pace import recent_parts, recent_samples_per_s
from potluck.report.view import RunView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RECENT_S = 15.0
_HELP = {
    "potluck_run_step": "Committed optimizer steps.",
    "potluck_run_last_step": "Steps that the run is to have.",
    "potluck_run_samples_per_second": "Throughput of the last seconds.",
    "potluck_run_efficiency": "Achieved over the sum of solo speeds, of the whole run.",
    "potluck_run_predicted_samples_per_second": "The speed that the current plan predicts.",
    "potluck_run_loss": "Training loss of the newest step.",
    "potluck_run_score": "The newest evaluation, by its name.",
    "potluck_run_plan_changes": "Plans after the first.",
    "potluck_run_fault_seconds": "Time that the remaining machines lost when machines left or joined.",
    "potluck_run_backend": "1 for the backend, gloo or nccl, that exchanges gradients.",
    "potluck_run_up": "1 while a process trains the run.",
    "potluck_run_damaged": "1 if its events cannot be read; `potluck report` says why.",
    "potluck_machine_here": "1 while a machine takes part in the newest steps.",
    "potluck_machine_share": "A machine's part of the global batch by the plan in force.",
    "potluck_machine_step_seconds": "A mean step of the last seconds, by part.",
    "potluck_machine_cpu_busy": "Of all cores, 0 to 1.",
    "potluck_machine_memory_bytes": "Memory in use.",
    "potluck_machine_network_bytes_per_second": "Sent and received.",
    "potluck_machine_gpu_busy": "Of the time, 0 to 1.",
    "potluck_machine_gpu_power_watts": "The sum over its GPUs that report their power.",
    "potluck_machine_cpu_power_watts": "The sum over its processors.",
    "potluck_card_busy": "Of the time, 0 to 1, of one card.",
    "potluck_card_memory_bytes": "Memory of one card in use, by all programs.",
    "potluck_card_memory_total_bytes": "Memory that one card has.",
    "potluck_card_power_watts": "Power of one card.",
    "potluck_run_samples_per_joule": "Samples by the energy of cards, and of processors where it is known.",
}


def expose(views: Iterable[RunView], damaged: Iterable[str] = ()) -> str:
    """The answer to a scrape; values that are not known are left out. `damaged` names runs that cannot be read."""
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for view in views:
        for name, value, labels in [*_of_run(view), *_of_machines(view)]:
            if value is not None:
                samples[name].append(_line(name, value, {"run": view.folder.name, **labels}))
    samples["potluck_run_damaged"] = [_line("potluck_run_damaged", 1, {"run": run}) for run in damaged]
    lines = []
    for name, found in samples.items():
        if found:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *found]
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, value: float, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {float(value)!r}"


def _of_run(view: RunView) -> Iterable[tuple[str, float | None, dict[str, str]]]:
    state, account = view.state, view.account()
    yield "potluck_run_step", state.step, {}
    yield "potluck_run_last_step", state.last_step or None, {}
    yield "potluck_run_samples_per_second", recent_samples_per_s(view, _RECENT_S), {}
    yield "potluck_run_efficiency", None if account is None else account.efficiency, {}
    yield "potluck_run_predicted_samples_per_second", state.predicted_samples_per_s or None, {}
    yield "potluck_run_loss", state.loss, {}
    yield "potluck_run_plan_changes", max(0, len(view.merge.plans) - 1), {}
    yield "potluck_run_fault_seconds", view.merge.regroup_s, {}
    if state.backend is not None:
        yield "potluck_run_backend", 1, {"backend": state.backend.backend}
    yield "potluck_run_up", view.status == "running", {}
    energy = energy_of(view)
    yield "potluck_run_samples_per_joule", None if energy is None else energy.samples_per_joule, {}
    for name, value in state.scores.items():
        yield "potluck_run_score", value, {"score": name}


def _of_machines(view: RunView) -> Iterable[tuple[str, float | None, dict[str, str]]]:
    away = set(view.away())
    total = sum(view.state.shares.values())
    shares: dict[str, int] = {}
    used = {}
    for name, worker in view.merge.workers.items():
        shares[worker.machine] = shares.get(worker.machine, 0) + view.state.shares.get(name, 0)
        if worker.used:
            used[worker.machine] = worker.used[-1][1]
    for machine in view.machines:
        labels = {"machine": machine}
        yield "potluck_machine_here", machine not in away, labels
        yield "potluck_machine_share", shares.get(machine, 0) / total if total else None, labels
        if machine in used:
            now = used[machine]
            busy = [gpu.busy for gpu in now.gpus if gpu.busy is not None]
            power = [gpu.power_w for gpu in now.gpus if gpu.power_w is not None]
            yield "potluck_machine_cpu_busy", now.cpu, labels
            yield "potluck_machine_memory_bytes", now.memory_bytes, labels
            yield "potluck_machine_network_bytes_per_second", now.sent_bytes_per_s + now.received_bytes_per_s, labels
            yield "potluck_machine_gpu_busy", sum(busy) / len(busy) if busy else None, labels
            yield "potluck_machine_gpu_power_watts", sum(power) if power else None, labels
            yield "potluck_machine_cpu_power_watts", now.cpu_power_w, labels
            yield from _of_cards(now.gpus, labels)
    for machine, parts in recent_parts(view, _RECENT_S).items():
        for part, seconds in parts.items():
            yield "potluck_machine_step_seconds", seconds, {"machine": machine, "part": part}


def _of_cards(cards: list[GpuUse], labels: dict[str, str]) -> Iterable[tuple[str, float | None, dict[str, str]]]:
    called = card_labels({str(index): card.name for index, card in enumerate(cards)})
    for index, card in enumerate(cards):
        of_card = {**labels, "card": called.get(str(index), str(index))}
        yield "potluck_card_busy", card.busy, of_card
        yield "potluck_card_memory_bytes", card.memory_bytes, of_card
        yield "potluck_card_memory_total_bytes", card.memory_total_bytes, of_card
        yield "potluck_card_power_watts", card.power_w, of_card


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
