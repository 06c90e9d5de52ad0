"""The group of workers that train together, from one worker's side: membership, all-reduce, commit votes."""
