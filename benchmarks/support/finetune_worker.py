"""A worker of the fine-tuning benchmark: a small Llama on ragged lines of text, in turns with this machine alone.

python -m benchmarks.support.finetune_worker --worker RESULT --steps 24 --batch 96 --go FILE --what lora --rest 1.5
"""

import argparse
import copy
import json
import textwrap
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import potluck
from benchmarks.support.lab_machines import wait_for_go

IGNORED = -100
STEPS_A_SLICE = 4
SPEEDS = "speeds "
SIZES = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 4}


def make_model(what: str) -> nn.Module:
    """The same on every machine; with `what` "lora" only an adapter of it is trained."""
    torch.manual_seed(0)
    base: nn.Module = LlamaForCausalLM(LlamaConfig(vocab_size=256, attn_implementation="eager", **SIZES))
    if what == "full":
        return base
    adapted: nn.Module = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    return adapted


def read_lines(num_lines: int) -> list[Tensor]:
    """Lines of Python's own source as bytes: from 2 to 64 in each."""
    lines = [line.encode()[:64] for line in Path(textwrap.__file__).read_text().splitlines() if len(line) > 1]
    return [torch.tensor(list(lines[index % len(lines)])) for index in range(num_lines)]


def pad(lines: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens, and what is to be predicted of them."""
    targets = nn.utils.rnn.pad_sequence(lines, batch_first=True, padding_value=IGNORED)
    return targets.clamp(min=0), targets


def loss_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss over the tokens of a batch, and their number."""
    logits = model(input_ids=tokens, attention_mask=targets.ne(IGNORED)).logits[:, :-1]
    wanted = targets[:, 1:]
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
    return loss, wanted.ne(IGNORED).sum()


def train_alone(model: nn.Module, optimizer: torch.optim.Optimizer, lines: list[Tensor], seconds: float) -> float:
    """Samples/s of this machine by itself."""
    began_s, num_steps = time.perf_counter(), 0
    while num_steps == 0 or time.perf_counter() - began_s < seconds:
        first = num_steps * 16 % (len(lines) - 16)
        loss, _ = loss_of(model, *pad(lines[first : first + 16]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        num_steps += 1
    return 16 * num_steps / (time.perf_counter() - began_s)


def main() -> None:
    """Train, print the speeds of each slice, and leave the trained parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", dest="result", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--go", type=Path)
    parser.add_argument("--what", choices=("lora", "full"), required=True)
    parser.add_argument("--rest", type=float, default=0.0, help="seconds alone after each slice")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, lines = make_model(options.what), read_lines(STEPS_A_SLICE * options.batch)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inner = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
    other = copy.deepcopy(model)
    apart = torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    train_alone(other, apart, lines, 0.0)
    if options.go is not None:
        wait_for_go(options.go)
    with potluck.start("run", device="cpu", micro_batch=16) as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(lines, global_batch=options.batch, collate=pad)
        for _ in run.epochs(1 + options.steps // STEPS_A_SLICE, max_steps=options.steps):
            first, began_s = 0, 0.0
            for tokens, targets in loader:
                loss, count = loss_of(prepared, tokens, targets)
                run.backward(loss, count=count)
                optimizer.step()
                optimizer.zero_grad()
                if not began_s:  # the first step of a slice waits for machines that were alone for longer
                    first, began_s = run.step, time.perf_counter()
            seconds = time.perf_counter() - began_s
            told = {"potluck": (run.step - first) * options.batch / seconds}
            if options.rest:
                told["solo"] = train_alone(other, apart, lines, options.rest)
            print(SPEEDS + json.dumps(told), flush=True)
    torch.save([parameter.detach() for parameter in trained], options.result)


if __name__ == "__main__":
    main()
