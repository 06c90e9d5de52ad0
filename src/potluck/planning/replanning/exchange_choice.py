"""The mode of exchange of one group, from numbers that all its workers have, so that all choose the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.codes import CODES
from potluck.planning.exchange_words import explain_choice
from potluck.planning.exchanges import ModeOutlook, RunTerms, choose_mode, predict_modes, with_code
from potluck.planning.islands import Partition
from potluck.planning.measured_exchange import as_seen
from potluck.planning.replanning.proposal import with_guesses
from potluck.planning.replanning.setting import GroupSetting
from potluck.planning.round_rule import round_steps
from potluck.planning.sites import find_sites


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeChoice:
    """How one group exchanges what its workers learn."""

    mode: str
    """exact, fp16, int8, int4, rounds or islands."""
    reason: str
    """Why, for a notice; empty where the user named the mode."""
    round_steps: int | None = None
    """Steps of a round; None in modes without rounds."""
    warm_up_steps: int | None = None
    """Steps before the first round; None in modes without rounds, and where the length of the run is not known."""
    islands: Partition = ()
    """The machines of each member of the rounds; machines that the plan would leave out are missing."""
    is_measured: bool = True
    """False if costs or links are not known yet: ask again when the run has measured them."""


def exchange_for(setting: GroupSetting, wish: str, terms: RunTerms, loss_price: float = 0.0) -> ExchangeChoice:
    """The mode for this group. `wish`: the option exchange; `terms`: batch, steps and model of the run.

    A mode that the user names is taken unless a guard refuses it: then a PlanError says why.
    """
    if wish in CODES:
        return ExchangeChoice(mode=wish, reason="")
    cluster = known_cluster(setting)
    if cluster is None or len(cluster.workers) < 2:
        return _unmeasured(setting, wish, terms)
    modes = predict_modes(cluster, terms)
    if wish == "auto":
        chosen = choose_mode(modes, loss_price)
        return _choice(chosen, explain_choice(modes, loss_price))
    return _choice(check_named(modes, wish), "")


def known_cluster(setting: GroupSetting) -> Cluster | None:
    """The group's workers and links before its first step; None while nothing is known of costs or of the exchange."""
    reports = with_guesses(setting.costs, setting.batch)
    workers = tuple(
        Worker(name=name, machine=machine, compute=profile, stretch=report.stretch or None, coding_factor=factor)
        for (name, machine), report, factor in zip(setting.workers, reports, setting.coding_factors, strict=True)
        if (profile := report.profile) is not None
    )
    if len(workers) < len(setting.workers) or not (setting.links or setting.kept_ring):
        return None
    cluster = Cluster(workers=workers, links=setting.links, exchange=setting.exchange, pairs=setting.pairs)
    cluster = with_code(cluster, "exact")
    if setting.kept_ring is None:
        return cluster
    return as_seen(cluster, np.ones(len(cluster.machines), dtype=bool), setting.kept_ring)


def check_named(modes: Sequence[ModeOutlook], name: str) -> ModeOutlook:
    """The mode that the user names; PlanError if a guard refuses it even so."""
    mode = next((one for one in modes if one.mode == name), modes[0])
    refused = [refusal.text for refusal in mode.refusals if refusal.holds_by_name]
    if refused:
        raise PlanError(
            f"--exchange {name} is not for this run: {'; '.join(refused)}",
            fix="use --exchange int4, which needs an eighth of the bytes, or --exchange auto",
        )
    return mode


def _choice(mode: ModeOutlook, reason: str) -> ExchangeChoice:
    return ExchangeChoice(
        mode=mode.mode,
        reason=reason,
        round_steps=mode.round_steps,
        warm_up_steps=mode.warm_up_steps,
        islands=mode.islands,
    )


def _unmeasured(setting: GroupSetting, wish: str, terms: RunTerms) -> ExchangeChoice:
    """Before anything was measured: exact for auto; rounds of about 2000 samples; islands by measured pairs alone."""
    if wish == "auto":
        why = "nobody has measured these machines with this model yet: gradients go as exact"
        return ExchangeChoice(mode="exact", reason=why, is_measured=False)
    machines = tuple(dict.fromkeys(machine for _, machine in setting.workers))
    apart = tuple((name,) for name in machines)
    return ExchangeChoice(
        mode=wish,
        reason="",
        round_steps=round_steps(terms.batch, step_s=1.0, exchange_s=0.0, wished=terms.round_steps),
        warm_up_steps=None if terms.num_steps is None and terms.warm_up_steps is None else terms.warm_up,
        islands=find_sites(machines, setting.pairs) if wish == "islands" else apart,
        is_measured=False,
    )
