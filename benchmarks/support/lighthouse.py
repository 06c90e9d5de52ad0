"""A lighthouse as a host starts it, in a process of its own that a benchmark can kill.

python -m benchmarks.support.lighthouse --bind 10.77.0.1:29510
"""

import argparse
import signal

from potluck.engine.group.lighthouse import start_lighthouse


def main() -> None:
    """Keep it lit until a signal ends this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bind", required=True, help="address and port")
    parser.add_argument("--heartbeat-timeout", type=float, default=1.0, help="seconds until a silent member is lost")
    options = parser.parse_args()
    server = start_lighthouse(options.bind, heartbeat_timeout_ms=round(1000 * options.heartbeat_timeout))
    signal.pause()
    server.shutdown()


if __name__ == "__main__":
    main()
