"""Tells a run that waits much for gradients which other mode of exchange would be faster."""

from potluck.events.types import Notice
from potluck.planning.exchange_words import advice_text
from potluck.planning.exchanges import RunTerms, predict_modes, with_code
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.replanning.setting import GroupSetting

_MUCH = 0.3  # the part of a step spent waiting for gradients from which another mode is worth a word
FIRST_ADVICE = 8  # commits since the group formed: earlier timings are of machines that warm up


def waits_for_gradients(proposal: Proposal) -> float:
    """The part of a step that the measured ring waited for gradients; 0 without a measured ring."""
    ring = proposal.ring
    if ring is None or len(ring.machines) < 2:
        return 0.0
    return ring.exposed_s / max(1e-9, ring.exposed_s + ring.work_s)


def is_limited_by_link(proposal: Proposal) -> bool:
    """Whether waiting for gradients takes a large part of the measured steps."""
    return waits_for_gradients(proposal) >= _MUCH


def advise(setting: GroupSetting, proposal: Proposal) -> Notice | None:
    """What another mode would bring, for a run that exchanges fp32 gradients in every step; None if none is faster."""
    ring = proposal.ring
    if setting.exchange.code.name != "exact" or ring is None:
        return None
    terms = RunTerms(batch=setting.batch, num_steps=setting.last_step, keep=setting.keep)
    modes = predict_modes(with_code(proposal.cluster, "exact"), terms)
    text = advice_text(modes, waits_for_gradients(proposal), setting.batch / (ring.work_s + ring.exposed_s))
    return None if text is None else Notice(text=text)
