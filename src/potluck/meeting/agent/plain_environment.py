"""The environment variables of a plain run's workers: torchrun's, and those that keep their traffic in the gates."""

from pathlib import Path

from potluck.core.environment import gate_variables, own_cards, read_nccl_variables
from potluck.core.nccl_variables import nccl_defaults
from potluck.core.run_variables import parse_variables
from potluck.core.torchrun_variables import torchrun_variables
from potluck.engine.group.addresses import address_towards
from potluck.machine.interfaces import interface_to_all, interface_with
from potluck.machine.nccl_settings import infiniband_devices, read_nccl_files
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.wire import Assignment, GateOrders, PlainPlace


def plain_environments(
    place: AgentPlace, assignment: Assignment, plain: PlainPlace, gates: GateOrders, log_folder: Path
) -> dict[int, dict[str, str]]:
    """Each worker's environment variables, by its rank.

    Without --direct GLOO_SOCKET_IFNAME is the loopback interface: Gloo in a process that a script starts by itself
    does not know this machine's gate, and must not open a port to the network. NCCL knows no gates: it gets the
    interface that leads to the other machines, unless the user has chosen one.
    """
    membership = place.membership
    of_nccl = _nccl_variables(membership.machine, assignment, gates, log_folder)
    addresses = gates.addresses()
    shared = {
        **own_cards(assignment.devices),
        **parse_variables(assignment.task.env_words),
        **gate_variables(place.gate, assignment.run_id, addresses[membership.machine]),
        "POTLUCK_NAME": membership.machine,
        "POTLUCK_DATA_DIR": str(place.data_dir),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if place.threads is not None:
        shared["POTLUCK_THREADS"] = str(place.threads)
    if assignment.is_direct:
        address = address_towards(membership.address)
        shared["POTLUCK_GRADIENT_ADDRESS"] = address
        shared["GLOO_SOCKET_IFNAME"] = interface_with(address) or "lo"
    return {
        rank: of_nccl.get(rank, {})
        | shared
        | torchrun_variables(
            run=assignment.run,
            master=(addresses[plain.master], assignment.lighthouse_port),
            rank=rank,
            world_size=plain.world_size,
            local_rank=index,
            local_world_size=len(assignment.workers),
            node_rank=plain.node_rank,
            num_nodes=plain.num_nodes,
        )
        for index, rank in enumerate(assignment.workers)
    }


def _nccl_variables(
    machine: str, assignment: Assignment, gates: GateOrders, log_folder: Path
) -> dict[int, dict[str, str]]:
    """By rank: each worker has a log of its own for NCCL's messages."""
    if all(device == "cpu" for device in assignment.devices):
        return {}
    members = gates.runs.get(assignment.run_id, [])
    others = [one.addresses[0] for one in gates.members if one.machine in members and one.machine != machine]
    given = {**read_nccl_variables(), **parse_variables(assignment.task.env_words)}
    known = {**read_nccl_files(named=given.get("NCCL_CONF_FILE", "")), **given}
    interface = interface_to_all(others) if others else ""
    has_infiniband = bool(infiniband_devices())
    return {
        rank: nccl_defaults(
            known,
            interface=interface,
            has_infiniband=has_infiniband,
            debug_file=log_folder / f"{machine}-{rank}.nccl.log",
        )
        for rank in assignment.workers
    }
