"""Chooses how a group exchanges, from what its members say about themselves: all members choose the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from potluck.core.errors import PlanError
from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.group.place import ExchangeWish
from potluck.engine.group.roster import Member, setting_of
from potluck.measuring.sources import exchange_of
from potluck.planning.exchanges import RunTerms
from potluck.planning.replanning.exchange_choice import ExchangeChoice, exchange_for
from potluck.planning.sites import find_sites


@dataclass(frozen=True, slots=True)
class ExchangeRule:
    """The user's wish, and what the choice needs to know of the model. Nothing here changes in a run.

    `choose` runs on torchft's thread, while a group forms.
    """

    wish: ExchangeWish
    num_bytes: int
    outer: OuterStep | None

    def choose(self, members: Sequence[Member], global_batch: int) -> ExchangeChoice:
        """The mode of this group; PlanError if it is not for this run."""
        wish = self.wish
        if self.outer is None:
            return ExchangeChoice(mode=wish.name, reason="")
        setting = setting_of(members, global_batch, exchange_of(self.num_bytes, wish.code))
        terms = RunTerms(
            batch=global_batch,
            num_steps=setting.last_step,
            keep=setting.keep,
            round_steps=wish.round_steps,
            warm_up_steps=wish.warm_up_steps,
            has_batch_norm=self.outer.has_batch_norm,
            optimizer=self.outer.optimizer_name,
        )
        # In rounds the moments of optimizers differ between workers: steps with common gradients would part them.
        is_in_rounds = any(member.round.steps for member in members)
        try:
            if wish.name == "auto" and is_in_rounds:
                return exchange_for(setting, "rounds", terms)
            if wish.name == "islands" and wish.partition:
                return replace(exchange_for(setting, "rounds", terms), mode="islands", islands=wish.partition)
            return exchange_for(setting, wish.name, terms, wish.loss_price)
        except PlanError:
            if not any(member.step for member in members):
                raise
            # The run has begun so, and machines have left: one island, or machines apart, train on in rounds too.
            sites = find_sites([machine for _, machine in setting.workers], setting.pairs)
            mode = "rounds" if wish.name == "auto" else wish.name
            return ExchangeChoice(mode=mode, reason="", warm_up_steps=terms.warm_up, islands=sites)
