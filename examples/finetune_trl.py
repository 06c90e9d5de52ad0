"""Supervised fine-tuning with TRL's SFTTrainer and PEFT's LoRA.

on this machine:                 python examples/finetune_trl.py --model PATH_OR_NAME --text FILE
on all machines that joined:     potluck run examples/finetune_trl.py --model PATH_OR_NAME --text FILE
Without --model a tiny Llama with a tokenizer of its own, without --text Python's source: a try that needs no download.
Without Potluck it would be the same script with SFTTrainer in place of on_potluck(SFTTrainer).
"""

import argparse
import textwrap
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from potluck.integrations.transformers import on_potluck


def make_tiny(text: str) -> tuple[Any, Any]:
    """A model and its tokenizer, the same on every machine that has the same text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>", "<pad>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([text], trainer)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=400, bos_token_id=None, eos_token_id=0, pad_token_id=1, **sizes))
    special = {"eos_token": "<end>", "pad_token": "<pad>"}
    return model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def main() -> None:
    """Fine-tune, and save the adapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name of the Hugging Face hub")
    parser.add_argument("--text", type=Path, default=Path(textwrap.__file__))
    parser.add_argument("--output", default="adapter")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    text = options.text.read_text()
    if options.model is None:
        model, tokenizer = make_tiny(text)
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    arguments = SFTConfig(
        output_dir=options.output,
        max_steps=options.steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        learning_rate=2e-3,
        logging_steps=2,
        max_length=64,
        bf16=torch.accelerator.is_available(),
        report_to="none",
    )
    trainer = on_potluck(SFTTrainer)(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([{"text": line} for line in text.splitlines() if len(line) > 1]),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
