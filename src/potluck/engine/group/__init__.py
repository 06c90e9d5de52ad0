"""The workers that train together, from one worker's side: who is in, gradients summed, one verdict a step."""
