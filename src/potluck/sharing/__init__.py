"""Folders of data that one machine of a run has and the others get, piece by piece, while they already train.

libtorrent moves the pieces: each is checked against its hash, comes from whichever machine has it, and is not sent
again after an interruption. Machines reach each other through their gates only, so no stranger can ask for a piece.
"""
