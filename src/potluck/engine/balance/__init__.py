"""What this worker knows of its own cost, what it tells the others, and the plan that follows: below engine/group.

Values go in and out: nothing here knows a group, a roster or a process group. What all workers decide from the same
numbers is in planning/replanning.
"""
