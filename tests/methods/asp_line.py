"""A world of four cells for asymmetric self-play, and its numbers."""

from advsurprise.envs.ladder import LadderWorld, Place

LEFT, STAY, RIGHT = range(3)
STOP = 3
"""Added to an action: do it, then hand over."""
BODIES = 5
K = 0.01


def line(max_steps, *, lights=4, starts=3, **fields):
    """Four cells in a row, each under a light of several colours."""
    cells = tuple(Place(x, (max(x - 1, 0), x, min(x + 1, 3)), (0.0,) * 3, lights=lights) for x in range(4))
    return LadderWorld("line", cells, starts=starts, max_steps=max_steps, **fields)
