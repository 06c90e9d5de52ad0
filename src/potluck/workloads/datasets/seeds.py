"""Random streams that are the same on every machine."""

import hashlib

import torch


def stream(seed: int, *names: str | int) -> torch.Generator:
    """A separate random generator for each (seed, names).

    torch's CPU generator keeps only 32 bits of its seed, so seed and names are hashed: neighbouring seeds share
    nothing. Draw only integers from the generator: floating-point draws may differ between processors.
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
