"""BERT (Devlin et al. 2018), trained from scratch to predict masked bytes."""

from functools import partial

from torch import nn

from potluck.workloads.models.language import DROPOUT, Logits, load_library
from potluck.workloads.models.spec import ModelSpec
from potluck.workloads.models.tasks import TASKS


def build_bert(vocabulary_size: int, *, layers: int, width: int, heads: int) -> nn.Module:
    """A BERT with random parameters and a head that predicts the masked tokens."""
    library = load_library()
    config = library.BertConfig(
        vocab_size=vocabulary_size,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=DROPOUT,
        attention_probs_dropout_prob=DROPOUT,
        pad_token_id=None,  # the default is 0, which would keep that byte from being learned
        use_cache=False,
    )
    return Logits(library.BertForMaskedLM(config))


# tiny, small and base are the published shapes of those names; base is the paper's.
BERT = ModelSpec(
    reads="text",
    task=TASKS["masked_token"],
    sizes={
        "tiny": partial(build_bert, layers=2, width=128, heads=2),
        "small": partial(build_bert, layers=4, width=512, heads=8),
        "base": partial(build_bert, layers=12, width=768, heads=12),
    },
    default_size="base",
)
