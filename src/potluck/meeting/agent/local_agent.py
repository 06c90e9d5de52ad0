"""The agent of the host's own machine, a child process of `potluck host`: it leaves when its stdin closes.

python -m potluck.meeting.agent.local_agent ~/.potluck
"""

import argparse
import sys
import threading
from contextlib import suppress
from pathlib import Path

from potluck.core.errors import MeetingError
from potluck.meeting.agent.agent import Agent
from potluck.meeting.client.client import NotAdmittedError
from potluck.meeting.home import Home
from potluck.meeting.wire import AGENT_REFUSED, GOODBYE

_PATIENCE_S = 8.0  # a worker that cannot end its step saves the last committed one: engine/steps/stop_deadline.py
_ORDERLY_S = 2.0  # short, since the host has paused its runs already
_LAST_AGENT_S = 30.0  # for the agent of a killed host to end


def main() -> None:
    """Run the agent until the host's process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--gate", required=True)
    parser.add_argument("--devices", default="")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--addresses", default="", help="where this machine's gate listens")
    parser.add_argument("--serves", action="store_true", help="the process that starts this one is not the host's part")
    options = parser.parse_args()
    home = Home(options.home)
    membership = home.membership()
    assert membership is not None
    try:
        with home.only_agent(wait_s=_LAST_AGENT_S):
            agent = Agent(
                home,
                membership,
                gate=options.gate,
                devices=options.devices.split(",") if options.devices else None,
                threads=options.threads,
                serves=options.serves,
                addresses=[address for address in options.addresses.split(",") if address],
                tell=_tell,
                show=lambda _: None,
            )
            watch = threading.Thread(target=_leave_at_the_end, args=(agent,), name="potluck-host", daemon=True)
            watch.start()
            try:
                agent.run()
            except NotAdmittedError as error:
                _tell(f"{error}")
                sys.exit(AGENT_REFUSED)
    except MeetingError as error:
        sys.exit(str(error))


def _tell(text: str) -> None:
    with suppress(OSError):  # a full disk: a line that cannot be logged must not end the agent
        print(text, flush=True)  # noqa: T201  into the host's agent.log


def _leave_at_the_end(agent: Agent) -> None:
    """Leave when stdin closes. The waits are short: without the host's lighthouse no step can end."""
    if sys.stdin.buffer.read() == GOODBYE:
        agent.leave(_ORDERLY_S)
    else:  # the host was killed; a new host may run already, whose agent waits until this one has ended
        agent.leave(_PATIENCE_S, in_silence=True)


if __name__ == "__main__":
    main()
