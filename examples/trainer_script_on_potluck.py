"""examples/trainer_script.py with two lines of Potluck: potluck run examples/trainer_script_on_potluck.py.

On this machine alone: python examples/trainer_script_on_potluck.py. A step has 32 samples, on one machine or on all.
"""

import argparse
import textwrap
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from potluck.integrations.transformers import on_potluck

LORA = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def make_model(name: str | None) -> nn.Module:
    """The base model; PEFT freezes it and adds the adapter."""
    if name is not None:
        return get_peft_model(AutoModelForCausalLM.from_pretrained(name), LORA)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4, "num_attention_heads": 4}
    return get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes)), LORA)


def read_lines(path: Path, name: str | None, longest: int) -> list[dict[str, Any]]:
    """Each line of the text as tokens: ragged, as text is."""
    lines = [line for line in path.read_text().splitlines() if len(line) > 1]
    if name is None:
        return [{"input_ids": list(line.encode()[:longest])} for line in lines]
    encode = AutoTokenizer.from_pretrained(name)
    return [{"input_ids": encode(line, truncation=True, max_length=longest)["input_ids"]} for line in lines]


def pad(lines: list[dict[str, Any]]) -> dict[str, Tensor]:
    """A batch: what is padded is not attended to, and not to be predicted."""
    tokens = [torch.tensor(line["input_ids"]) for line in lines]
    labels = nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-100)
    return {"input_ids": labels.clamp(min=0), "attention_mask": labels.ne(-100).long(), "labels": labels}


def main() -> None:
    """Fine-tune, and save the adapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name of the Hugging Face hub")
    parser.add_argument("--text", type=Path, default=Path(textwrap.__file__))
    parser.add_argument("--output", default="adapter")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --output")
    options = parser.parse_args()
    lines = read_lines(options.text, options.model, longest=64)
    arguments = TrainingArguments(
        options.output,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        logging_steps=4,
        eval_strategy="epoch",
        save_steps=8,
        report_to="none",
    )
    trainer = on_potluck(Trainer)(
        model=make_model(options.model),
        args=arguments,
        data_collator=pad,
        train_dataset=lines[32:],
        eval_dataset=lines[:32],
    )
    trainer.train(resume_from_checkpoint=options.resume or None)
    trainer.save_model()


if __name__ == "__main__":
    main()
