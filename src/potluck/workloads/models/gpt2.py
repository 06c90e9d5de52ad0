"""GPT-2 (Radford et al. 2019), trained from scratch on bytes."""

from functools import partial

from torch import nn

from potluck.workloads.models.language import DROPOUT, Logits, load_library
from potluck.workloads.models.spec import ModelSpec
from potluck.workloads.models.tasks import TASKS


def build_gpt2(vocabulary_size: int, *, layers: int, width: int, heads: int) -> nn.Module:
    """A GPT-2 with random parameters."""
    library = load_library()
    config = library.GPT2Config(
        vocab_size=vocabulary_size,
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        resid_pdrop=DROPOUT,
        embd_pdrop=DROPOUT,
        attn_pdrop=DROPOUT,
        bos_token_id=None,  # the defaults are tokens of GPT-2's own vocabulary
        eos_token_id=None,
        use_cache=False,
    )
    return Logits(library.GPT2LMHeadModel(config))


# base is the published small GPT-2, the one people call gpt2.
GPT2 = ModelSpec(
    reads="text",
    task=TASKS["next_token"],
    sizes={
        "tiny": partial(build_gpt2, layers=2, width=128, heads=2),
        "small": partial(build_gpt2, layers=6, width=384, heads=6),
        "base": partial(build_gpt2, layers=12, width=768, heads=12),
    },
    default_size="base",
)
