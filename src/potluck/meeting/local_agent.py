"""The agent of the host's own machine, as a process of the host's: it leaves when its stdin ends.

python -m potluck.meeting.local_agent ~/.potluck
"""

import argparse
import sys
import threading
from pathlib import Path

from potluck.core.errors import MeetingError
from potluck.meeting.agent import Agent
from potluck.meeting.home import Home

GOODBYE = b"goodbye"
_PATIENCE_S = 3.0
_LAST_AGENT_S = 30.0  # for the agent of a host that was killed


def main() -> None:
    """Be the agent until the host's process is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--gate", required=True)
    parser.add_argument("--devices", default="")
    parser.add_argument("--threads", type=int)
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
                tell=lambda text: print(text, flush=True),  # noqa: T201  the host's terminal
                show=lambda _: None,
            )
            watch = threading.Thread(target=_leave_at_the_end, args=(agent,), name="potluck-host", daemon=True)
            watch.start()
            agent.run()
    except MeetingError as error:
        sys.exit(str(error))


def _leave_at_the_end(agent: Agent) -> None:
    """Without its host's lighthouse no step can end here, so there is little to wait for."""
    is_orderly = sys.stdin.buffer.read() == GOODBYE
    agent.leave() if is_orderly else agent.leave(_PATIENCE_S)


if __name__ == "__main__":
    main()
