"""How large the byte model must be for a wanted r: seconds of an fp32 ring against seconds of a step's compute."""

from benchmarks.support.byte_model import BATCH, WIDTH, num_parameters
from lab.cluster import Cluster

FP32_BYTES = 4


def ring_s(rows: int, num_machines: int, link_bits_per_s: float) -> float:
    """A ring of fp32 gradients at the link's full rate: 2 (n - 1) / n x bytes, over the slowest link."""
    sent_bytes = 2 * (num_machines - 1) / num_machines * FP32_BYTES * num_parameters(rows)
    return 8 * sent_bytes / link_bits_per_s


def compute_s(sum_of_solo: float, batch: int = BATCH) -> float:
    """A step of all machines together, if nothing but compute took time."""
    return batch / sum_of_solo


def r_of(rows: int, sum_of_solo: float, num_machines: int, link_bits_per_s: float, batch: int = BATCH) -> float:
    """r of a model of this size, from measured solo speeds."""
    return ring_s(rows, num_machines, link_bits_per_s) / compute_s(sum_of_solo, batch)


def rows_for(r: float, sum_of_solo: float, num_machines: int, link_bits_per_s: float, batch: int = BATCH) -> int:
    """Rows of the table with which r is as wanted at these solo speeds; 1 where even no table is too much."""
    one_parameter_s = ring_s(1, num_machines, link_bits_per_s) / num_parameters(1)
    parameters = r * compute_s(sum_of_solo, batch) / one_parameter_s
    return max(1, 1 + round((parameters - num_parameters(1)) / WIDTH))


def slowest_link(cluster: Cluster) -> float:
    """Bits/s of the slowest link between two machines of the cluster."""
    rates = [link.rate_bits_per_s for machine in cluster.machines for link in machine.links]
    rates += [uplink.rate_bits_per_s for uplink in cluster.uplinks]
    known = [float(rate) for rate in rates if rate is not None]
    if not known:
        raise ValueError(f"no link of {cluster.name} has a rate")
    return min(known)
