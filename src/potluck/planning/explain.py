"""A plan in words: each worker's share and why, which machines are benched and why, and where a step's time goes."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from potluck.core.words import counted
from potluck.planning.cluster import Cluster
from potluck.planning.costs import LinkProfile
from potluck.planning.plan import LEAST_GAIN, Plan, plan_with_all
from potluck.planning.what_if import if_kept

_MOST_LINES = 16


def explain(cluster: Cluster, plan: Plan) -> list[str]:
    """Lines for a person, the most important first."""
    step = plan.prediction
    low, high = step.band
    lines = [
        f"a step of {step.samples} samples takes {seconds_text(step.step_s)}: {step.samples_per_s:,.1f} samples/s "
        f"(between {low:,.1f} and {high:,.1f})"
    ]
    lines += islice(_shares(cluster, plan), _MOST_LINES)
    lines += [explain_benched(cluster, plan, machine) for machine in plan.benched[:_MOST_LINES]]
    if len(cluster.workers) > _MOST_LINES:
        num_training = sum(share > 0 for share in plan.shares)
        lines.append(f"in all {num_training:,} of {len(cluster.workers):,} workers train, the others are benched")
    late = f"{_share(step.lateness_s, step.step_s)} waiting for whoever is late in that step, "
    lines.append(
        f"of each step {_share(step.slowest_work_s, step.step_s)} is work, "
        f"{late if step.lateness_s > 0 else ''}"
        f"{_share(step.exposed_exchange_s, step.step_s)} waiting for gradients from other machines, "
        f"{_share(step.step_s - step.parts_s + step.overhead_s, step.step_s)} the rest"
    )
    return [*lines, *_unknown_links(cluster)]


def _unknown_links(cluster: Cluster) -> Iterator[str]:
    if len(cluster.machines) < 2:
        return
    fix = "measure the links with potluck profile where all have joined, or name one: --link NAME=100mbit"
    unknown = [name for name in cluster.machines if name not in cluster.links]
    if unknown:
        yield f"nobody measured the link of {', '.join(unknown[:_MOST_LINES])}: its exchange counts as free; {fix}"
    elif not all(link.is_measured for link in cluster.links.values()):
        yield f"the exchange is what the last run together showed, and nobody can say through whose link; {fix}"


def explain_benched(cluster: Cluster, plan: Plan, machine: str) -> str:
    """Why a machine does not take part, in one line."""
    step = plan.prediction
    with_it = if_kept(cluster, plan, machine).prediction
    link = cluster.links.get(machine)
    because = f"its own work for one sample takes {seconds_text(min(_first_sample(cluster, machine)))}"
    if with_it.exposed_exchange_s - step.exposed_exchange_s > with_it.slowest_work_s - step.slowest_work_s:
        by = f" over its link of {link_text(link)}" if link and link.is_measured else ""
        because = f"every step would wait {seconds_text(with_it.exposed_exchange_s)} for gradients{by}"
    return (
        f"{machine} is benched: with it a step would take {seconds_text(with_it.step_s)} instead of "
        f"{seconds_text(step.step_s)}, because {because}; keep it with --keep {machine}"
    )


def explain_kept(plan: Plan, shortest: Plan, num_steps: int | None = None) -> Iterator[str]:
    """Machines that stay although a step would be a little shorter without them."""
    kept = [name for name in shortest.benched if name not in plan.benched]
    if kept:
        now_s, then_s = plan.prediction.step_s, shortest.prediction.step_s
        why = f"less than {100 * LEAST_GAIN:.0f} % shorter, so they stay"
        if num_steps is not None and now_s - then_s > LEAST_GAIN * now_s:
            why = f"{num_steps} steps are too few for that to pay"
        yield f"without {', '.join(kept)} a step would take {seconds_text(then_s)}: {why}"


def explain_alone(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """The option to type, if the best plan is one machine alone."""
    left = [name for name in cluster.machines if name not in plan.benched]
    if plan.benched and len(left) == 1 and (whole := plan_with_all(cluster, plan.prediction.samples, plan.policy)):
        yield alone_text(left[0], plan.benched, plan.prediction.samples_per_s, whole.prediction.samples_per_s)


def alone_text(machine: str, benched: Sequence[str], samples_per_s: float, together_samples_per_s: float) -> str:
    """The speed of one machine alone, the speed of all, and the option for the faster of the two."""
    is_faster_alone = samples_per_s > together_samples_per_s
    option = f"--machines {machine}" if is_faster_alone else " ".join(f"--keep {name}" for name in benched)
    return (
        f"{machine} alone does {samples_per_s:,.0f} samples/s; with {' and '.join(benched)} it would be "
        f"{together_samples_per_s:,.0f}: use {option}"
    )


def _shares(cluster: Cluster, plan: Plan) -> Iterator[str]:
    for index, (worker, share) in enumerate(zip(cluster.workers, plan.shares, strict=True)):
        if share == 0:
            continue
        cost, wait_s = worker.compute, plan.prediction.straggler_wait_s(index)
        is_whole = cost.memory_cap is None or share <= cost.memory_cap
        micro_batches = "" if is_whole else f" in micro-batches of {cost.memory_cap}"
        shape = f"{seconds_text(cost.fixed_s)} a step and {seconds_text(cost.per_sample_s)} a sample"
        if cost.curve:
            shape = "as measured at several sizes"
        wait = f", then waits {seconds_text(wait_s)}" if wait_s > 0 else ""
        work = f"{seconds_text(plan.prediction.work_s[index])} of work ({shape})"
        yield f"{worker.name} takes {counted(share, 'sample')}{micro_batches}: {work}{wait}"


def _first_sample(cluster: Cluster, machine: str) -> list[float]:
    return [worker.compute.seconds(1) for worker in cluster.workers if worker.machine == machine]


def _share(part_s: float, whole_s: float) -> str:
    return f"{100 * part_s / whole_s:.0f} %" if whole_s > 0 else "0 %"


def seconds_text(seconds: float) -> str:
    """A duration with three digits: 1.53 s, 12.4 ms, 87 us."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.0f} us"


def time_text(seconds: float) -> str:
    """A long duration in its two largest units: 3 d 4 h, 2 h 5 min, 3 min 20 s."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (unit, size), (smaller, small) in pairwise(units):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // small)} {smaller}"
    return seconds_text(seconds)


def link_text(link: LinkProfile) -> str:
    """A link's rate in bits per second: 100 Mbit/s."""
    return rate_text(link.bandwidth_bytes_per_s)


def rate_text(bytes_per_s: float) -> str:
    """Bytes per second in bits per second, three digits."""
    bits = bytes_per_s * 8
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits >= size:
            return f"{bits / size:.3g} {unit}"
    return f"{bits / 1e3:.3g} kbit/s"
