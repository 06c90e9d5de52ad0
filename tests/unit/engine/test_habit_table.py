"""Every row of the table of habits in docs/training-script.md is held by a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
HELD_BY = {
    "two models and two optimizers (a GAN)": "test_two_models_and_two_optimizers_are_trained_as_in_plain_pytorch",
    "two optimizers for one model, one backward pass": "test_two_optimizers_for_one_model_share_a_backward_pass",
    "two backward passes for a batch, one optimizer": "test_two_backward_passes_for_a_batch_are_told",
    "two backward passes for a batch that is cut into micro-batches": (
        "test_two_backward_passes_and_micro_batches_are_refused"
    ),
    'several optimizers with `mixed_precision="fp16"`': "test_several_optimizers_in_fp16_are_refused",
    "`prepare(model)` alone, then `prepare(optimizer)`": "test_prepare_takes_a_model_alone",
    "`prepare(...)` in any order, with a DataLoader, in several calls": "test_prepare_takes_any_order_and_returns_it",
    "`prepare(..., dataset)`, a GradScaler, None": "test_prepare_refuses_what_it_cannot_prepare",
    "`prepare` after training began": "test_nothing_is_prepared_after_training_began",
    "a loss function in `prepare`": "test_a_loss_function_in_prepare_is_handed_back",
    "no optimizer in `prepare`": "test_a_model_without_an_optimizer_is_told",
    "`model[0]`, `len(model)`, `for layer in model`, `model.temperature = 0.5`": (
        "test_the_prepared_model_is_used_like_the_model"
    ),
    "a DataLoader handed over": "test_a_handed_over_loader_keeps_what_it_was_made_with",
    "`batch_size=`, `shuffle=`, `collate_fn=`, `pin_memory=`": "test_torchs_keywords_mean_what_they_mean_there",
    "a sampler of one's own": "test_a_sampler_draws_the_same_for_everybody",
    "a DistributedSampler, `batch_size=None`, a `batch_sampler`, a generator": (
        "test_a_loader_that_cannot_be_split_is_told"
    ),
    "an IterableDataset": "test_a_stream_is_read_in_its_order",
    "an IterableDataset of unknown length, or that ends early": "test_a_stream_of_unknown_length_is_told",
    "`run.loader` inside the epochs loop": "test_a_loader_may_be_made_in_every_epoch",
    "a second dataset in `run.loader`": "test_there_is_one_dataset_to_train_on",
    "`loader.dataset`, `loader.batch_size`, `len(loader)`": "test_a_handed_over_loader_keeps_what_it_was_made_with",
    "`run.evaluate(DataLoader(...))`": "test_evaluate_takes_a_loader",
    'a loss with `reduction="none"`': "test_one_loss_a_sample_is_averaged",
    "`clip_grad_norm_` by hand": "test_clipping_by_hand_acts_on_the_whole_batch",
    "forgetting `zero_grad`": "test_forgetting_zero_grad_adds_up_as_in_pytorch",
    "accumulating over batches by hand": "test_accumulating_by_hand_is_told",
    "`loss.backward()` instead of `run.backward(loss)`": "test_backward_by_hand_is_noticed",
    "`break` in the loader's loop": "test_leaving_the_loop_early_leaves_the_rest_of_the_epoch_out",
    "a loss that becomes not-a-number": (
        "test_a_diverged_run_ends_with_a_code_of_its_own_and_keeps_its_good_checkpoint"
    ),
}


def test_every_row_is_held_by_a_test():
    page = (ROOT / "docs" / "training-script.md").read_text()
    table = page[page.index("| habit |") :].split("\n\n")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert rows == list(HELD_BY)
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "unit" / "engine").glob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    assert set(HELD_BY.values()) <= defined
