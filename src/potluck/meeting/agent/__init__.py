"""A joined machine: one loop (agent.Agent) owns all state and follows the host's orders; other threads only queue.

Threads that queue messages (messages.py) for the loop: two that talk to the host (host_line), one a run that fetches
what the run needs (preparation), and the reader of the fork server's answers (workers.fork_client). Visits of the
doctor are answered in threads of their own (answering, measured), which have no part in the agent's state.
"""
