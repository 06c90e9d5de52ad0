"""What keeps a run from being faster, in a few words: compute, a link, or machines that wait for each other."""

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.plan import Plan
from potluck.planning.rounds import RoundPlan

_MUCH = 0.1  # the part of a step from which waiting counts as the limit


def limit_of_steps(cluster: Cluster, plan: Plan) -> str:
    """The limit of a plan whose machines exchange gradients in every step."""
    step = plan.prediction
    active = [work_s for work_s, share in zip(step.work_s, plan.shares, strict=True) if share]
    idle_s = step.slowest_work_s + step.lateness_s - sum(active) / len(active)
    if max(step.exposed_exchange_s, idle_s) < _MUCH * step.step_s:
        return "compute" if not plan.benched else _without(plan)
    return "imbalance" if idle_s > step.exposed_exchange_s else name_of_link(cluster, plan.shares)


def limit_of_rounds(cluster: Cluster, plan: RoundPlan) -> str:
    """The limit of rounds."""
    if plan.exchange_s < _MUCH * plan.mean_step_s * plan.round_steps:
        return "compute"
    return name_of_link(cluster, plan.shares)


def name_of_link(cluster: Cluster, shares: tuple[int, ...]) -> str:
    """The link that the exchange waits for, as far as measurements tell."""
    slowest = cluster.slowest_link(shares)
    active = cluster.is_active(np.array(shares)).tolist()
    here = {name for name, takes_part in zip(cluster.machines, active, strict=True) if takes_part}
    sites = [own for site in cluster.sites if (own := [name for name in site if name in here])]
    if cluster.pairs and not slowest and 1 < len(sites) < len(here):
        return f"the link between {' and '.join(','.join(site) for site in sites)}"
    return f"the link of {slowest}" if slowest else "links"


def _without(plan: Plan) -> str:
    return f"links: without {', '.join(plan.benched)}"
