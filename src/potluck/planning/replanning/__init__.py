"""When workers compare their plan with the best one, what they change, and who is benched: one pure reducer.

`replanner.Replanner` is the way in. No files, no clock and no torch here: every worker comes to the same plan because
every worker computes it from the same numbers.
"""
