"""LoRA fine-tuning of a causal language model: only the adapter is trained, and only the adapter travels.

on this machine:                 python examples/finetune_lora.py --model PATH_OR_NAME --text FILE
on all machines that joined:     potluck run examples/finetune_lora.py --model PATH_OR_NAME --text FILE
Without --model a tiny Llama reads bytes, without --text it reads Python's own source: a try that needs no download.
"""

import argparse
import textwrap
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import potluck

IGNORED = -100  # padding: not counted by cross_entropy


def make_model(name: str | None) -> nn.Module:
    """The base model; PEFT freezes it and adds the adapter."""
    if name is not None:
        return AutoModelForCausalLM.from_pretrained(name)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes))


def read_lines(path: Path, name: str | None, longest: int) -> list[Tensor]:
    """Each line of the text as tokens: ragged, as text is."""
    lines = [line for line in path.read_text().splitlines() if len(line) > 1]
    if name is None:
        return [torch.tensor(list(line.encode()[:longest])) for line in lines]
    tokenizer = AutoTokenizer.from_pretrained(name)
    encoded = (tokenizer(line, truncation=True, max_length=longest)["input_ids"] for line in lines)
    return [torch.tensor(tokens) for tokens in encoded if len(tokens) > 1]


def pad(lines: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens, and what is to be predicted of them."""
    targets = nn.utils.rnn.pad_sequence(lines, batch_first=True, padding_value=IGNORED)
    return targets.clamp(min=0), targets


def main() -> None:
    """Fine-tune for some epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name of the Hugging Face hub")
    parser.add_argument("--text", type=Path, default=Path(textwrap.__file__))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--longest", type=int, default=64, help="tokens of a line")
    options = parser.parse_args()
    adapter = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model: nn.Module = get_peft_model(make_model(options.model), adapter)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(trained, lr=2e-3)

    run = potluck.start()
    model, optimizer = run.prepare(model, optimizer)
    lines = read_lines(options.text, options.model, options.longest)
    loader = run.loader(lines, global_batch=options.global_batch, collate=pad)
    for _ in run.epochs(options.epochs):
        for tokens, targets in loader:
            logits = model(input_ids=tokens, attention_mask=targets.ne(IGNORED)).logits[:, :-1]
            wanted = targets[:, 1:]
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
            run.backward(loss, count=wanted.ne(IGNORED).sum())  # a mean over tokens: shares have unequal numbers
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
