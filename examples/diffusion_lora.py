"""LoRA for a diffusion model: the U-Net learns to remove noise from images, and only its adapter is trained.

on this machine:                 python examples/diffusion_lora.py --model PATH_OR_NAME --images FOLDER
on all machines that joined:     potluck run examples/diffusion_lora.py --model PATH_OR_NAME --images FOLDER
--model is a folder or a name of the Hugging Face hub with a UNet2DModel. Without it a tiny one, and without --images
drawn discs: a try that needs no download.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from diffusers import DDPMScheduler, UNet2DModel
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

import potluck

SIZE = 32


class Images(Dataset[Tensor]):
    """Images of a folder, or discs, with values from -1 to 1."""

    def __init__(self, folder: Path | None) -> None:
        self._files = None if folder is None else sorted(folder.glob("*.[jp][pn]g"))

    def __len__(self) -> int:
        return 256 if self._files is None else len(self._files)

    def __getitem__(self, index: int) -> Tensor:
        if self._files is not None:
            pixels = np.asarray(Image.open(self._files[index]).convert("RGB").resize((SIZE, SIZE)))
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 127.5 - 1
        y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        inside = (y - 8 - index % 16).square() + (x - 8 - index // 16).square() < 36
        return (2.0 * inside - 1).expand(3, SIZE, SIZE)


def make_model(name: str | None) -> nn.Module:
    """The U-Net, frozen, with an adapter in its attention layers."""
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    tiny = {"sample_size": SIZE, "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1, **blocks}
    base = UNet2DModel(**tiny) if name is None else UNet2DModel.from_pretrained(name)
    return get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))


def main() -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name of the Hugging Face hub")
    parser.add_argument("--images", type=Path, help="a folder of .jpg and .png files")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    model = make_model(options.model)
    inner = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    schedule = DDPMScheduler(num_train_timesteps=1000)
    run = potluck.start()
    model, optimizer = run.prepare(model, inner)
    for _ in run.epochs(options.epochs):
        for images in run.loader(Images(options.images), global_batch=32):
            noise = torch.randn_like(images)  # as the run seeds it: the same when a step is repeated
            times = torch.randint(0, 1000, (len(images),), device=images.device)
            noisy = schedule.add_noise(images, noise, times)
            run.backward(nn.functional.mse_loss(model(noisy, times).sample, noise))
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
