"""A machine's worker processes: one process, the fork server, imports torch once and forks and watches all workers.

In the order in which they run: an agent starts the fork server and talks to it (fork_client, messages); the fork
server (fork_server) starts, restarts and stops the workers of each run (processes), each of which is one fork
(supervision), after ending those that a killed fork server has left (leftovers); the worker prepares itself
(bootstrap) and trains (main); if a worker crashes, the fork server reports why (crash, own_frames).
Nothing here imports the agent or the host.
"""
