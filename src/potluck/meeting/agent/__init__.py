"""A joined machine: one loop (agent.Agent) owns all state and follows the host's orders; other threads queue messages.

Threads that queue messages (messages.py) for the loop: two that talk to the host (host_line), one per run that fetches
what the run needs (preparation), and the reader of the fork server's messages (workers.fork_client). Visits (questions
of the doctor, measurements) are answered in threads of their own (answering, measured), which do not touch that state.
"""
