"""This worker's measured cost, the cost report that it sends to the others, and the plan that follows.

A layer below engine/group: nothing here knows a group, a roster or a process group. The decisions that all workers make
from the same numbers are in planning/replanning.
"""
