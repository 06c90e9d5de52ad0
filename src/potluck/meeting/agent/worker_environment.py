"""The environment variables that place one worker in a run."""

from pathlib import Path

from potluck.core.environment import exchange_variables, gate_variables, run_variables
from potluck.core.exchange_options import check_exchange_options
from potluck.core.run_variables import parse_variables
from potluck.core.torchrun_variables import without_cards
from potluck.engine.group.addresses import address_towards
from potluck.gates.loopback import host_address
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.wire import Assignment, GateOrders


def worker_environments(
    place: AgentPlace, assignment: Assignment, gates: GateOrders, runs_dir: Path
) -> dict[int, dict[str, str]]:
    """Each worker's environment variables, by its number in the run.

    The secret is passed here, never in command-line arguments, which every user of a machine can read.
    """
    membership = place.membership
    addresses = gates.addresses()
    shared = {
        **run_variables(parse_variables(assignment.task.env_words)),
        **exchange_variables(check_exchange_options(assignment.task.exchange)),
        "POTLUCK_LIGHTHOUSE": f"http://{host_address(gates.block)}:{assignment.lighthouse_port}",
        **gate_variables(place.gate, assignment.run_id, addresses[membership.machine]),
        "POTLUCK_SECRET": assignment.secret,
        "POTLUCK_WORKERS": str(assignment.expected),
        "POTLUCK_RUN": assignment.run,
        "POTLUCK_RUNS_DIR": str(runs_dir),
        "POTLUCK_DATA_DIR": str(place.data_dir),
        "POTLUCK_NAME": membership.machine,
        "POTLUCK_HOST": gates.host,
        "POTLUCK_RESUME": "1",
    }
    own = next(one.addresses for one in gates.members if one.machine == membership.machine)
    if own:
        shared["POTLUCK_LAN_ADDRESS"] = own[0]
    if assignment.task.keep:
        shared["POTLUCK_KEEP"] = ",".join(assignment.task.keep)
    if place.threads is not None:
        shared["POTLUCK_THREADS"] = str(place.threads)
    if assignment.is_direct:
        shared["POTLUCK_GRADIENT_ADDRESS"] = address_towards(membership.address)
    return {
        number: {
            **shared,
            **without_cards(device, assignment.devices),
            "POTLUCK_WORKER": str(number),
            "POTLUCK_DEVICE": device,
            "LOCAL_RANK": str(index),
        }
        for index, (number, device) in enumerate(zip(assignment.workers, assignment.devices, strict=True))
    }
