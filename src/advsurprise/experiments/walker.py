"""Plans paths through a room world on the host, for scripted players.

Except for the lights a room world is deterministic, so a plan made in one state always works.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from advsurprise.envs.room_state import RoomState
from advsurprise.envs.rooms import RoomWorld
from advsurprise.grid import geometry, tiles
from advsurprise.grid.actions import Action

LEFT, RIGHT, FORWARD, PICKUP, TOGGLE, WAIT = (
    int(action) for action in (Action.LEFT, Action.RIGHT, Action.FORWARD, Action.PICKUP, Action.TOGGLE, Action.DONE)
)
TURNS = (((3, LEFT), (1, RIGHT)), ((0, LEFT), (2, RIGHT)), ((1, LEFT), (3, RIGHT)), ((2, LEFT), (0, RIGHT)))
"""For each direction, the two adjacent ones and the action that turns there."""


class Pose(NamedTuple):
    """Position and direction of a body."""

    cell: int
    direction: int


class Way(NamedTuple):
    """A path to a pose."""

    pose: Pose
    """Its end."""
    steps: int
    """Number of actions."""
    before: "Way | None"
    """The path without its last part; None at the start."""
    part: tuple[int, ...]
    """Actions of its last part."""
    opened: tuple[int, ...]
    """Cells of doors opened on the way."""

    @property
    def actions(self) -> list[int]:
        """All its actions."""
        parts, way = [], self
        while way is not None:
            parts.append(way.part)
            way = way.before
        return [action for part in reversed(parts) for action in part]


@dataclass
class Walker:
    """A body with planned actions; its state is the one after them."""

    grid: bytearray
    """Tile codes of the padded grid, flat."""
    pose: Pose
    carried: int
    """Code of the carried object."""
    strides: tuple[int, ...]
    """Offset to the next cell in each direction."""
    rooms: list[frozenset[int]]
    """Cells inside the walls of each room."""
    doors: list[int]
    """Cells of the doors."""
    actions: list[int] = field(default_factory=list)
    """Actions planned so far."""

    @property
    def room(self) -> int:
        """The room it is in; a door belongs to the earlier one."""
        if self.pose.cell in self.doors:
            return self.doors.index(self.pose.cell)
        return next(number for number, cells in enumerate(self.rooms) if self.pose.cell in cells)

    def find(self, codes: range, room: int) -> int | None:
        """The first cell of a room with one of these codes."""
        return next((cell for cell in sorted(self.rooms[room]) if self.grid[cell] in codes), None)

    def go(self, reached: Callable[[Pose], bool]) -> bool:
        """Plans the shortest path to a pose for which `reached` holds; returns whether there is one."""
        way = next((way for way in self.ways() if reached(way.pose)), None)
        if way is None:
            return False
        self.actions += way.actions
        self.pose = way.pose
        for cell in way.opened:
            self.grid[cell] = tiles.door(tiles.OPEN, (self.grid[cell] - tiles.DOOR) % tiles.NUM_COLOURS)
        return True

    def face(self, cell: int) -> bool:
        """Plans to face a cell from next to it; returns whether that is possible."""
        return self.go(lambda pose: pose.cell + self.strides[pose.direction] == cell)

    def ways(self, limit: int = sys.maxsize) -> Iterator[Way]:
        """Yields the shortest path to every pose within `limit` steps, nearest first."""
        toggles = _toggles(self.carried)
        waiting, known, steps = {0: [Way(self.pose, 0, None, (), ())]}, set(), 0
        while waiting and steps <= limit:
            for way in waiting.pop(steps, ()):
                if way.pose in known:
                    continue
                known.add(way.pose)
                yield way
                for further in self._further(way, toggles):
                    if further.pose not in known:
                        waiting.setdefault(further.steps, []).append(further)
            steps += 1

    def _further(self, way: Way, toggles: tuple[int | None, ...]) -> Iterator[Way]:
        (cell, direction), steps, opened = way.pose, way.steps, way.opened
        for turned, action in TURNS[direction]:
            yield Way(Pose(cell, turned), steps + 1, way, (action,), opened)
        front = cell + self.strides[direction]
        first = 0 if front in opened else toggles[self.grid[front]]
        if first is not None:
            part = (*[TOGGLE] * first, FORWARD)
            yield Way(Pose(front, direction), steps + len(part), way, part, (*opened, front) if first else opened)


@functools.cache
def _toggles(carried: int) -> tuple[int | None, ...]:
    return tuple(toggles_to_pass(code, carried) for code in range(tiles.NUM_CODES))


def toggles_to_pass(code: int, carried: int) -> int | None:
    """Toggles needed before the body can step onto a cell in front; None if it is impassable."""
    if tiles.is_walkable(code):
        return 0
    has_key = carried == tiles.KEY + (code - tiles.DOOR) % tiles.NUM_COLOURS
    if tiles.is_closed_door(code):
        # With its key in hand, the first toggle locks it.
        return 2 if has_key else 1
    return 1 if tiles.is_locked_door(code) and has_key else None


def walkers(world: RoomWorld, states: RoomState) -> list[Walker]:
    """A walker for each state of a batch."""
    leaves = {name: np.asarray(getattr(states, name)) for name in ("grid", "carried", "top", "side", "doors")}
    position, direction = np.asarray(states.position).tolist(), np.asarray(states.direction).tolist()
    across = geometry.side(world.grid, world.view)
    strides = tuple(dx + dy * across for dx, dy in geometry.DIRECTIONS)
    return [
        Walker(
            bytearray(leaves["grid"][body].tobytes()),
            Pose(position[body], direction[body]),
            int(leaves["carried"][body]),
            strides,
            [_inside(world, *box) for box in zip(leaves["top"][body], leaves["side"][body], strict=True)],
            leaves["doors"][body].tolist(),
        )
        for body in range(len(position))
    ]


def _inside(world: RoomWorld, top: np.ndarray, side: np.ndarray) -> frozenset[int]:
    (left, up), (width, height) = top.tolist(), side.tolist()
    corner, across = geometry.cell(left, up, size=world.grid, view=world.view), geometry.side(world.grid, world.view)
    return frozenset(corner + row * across + column for row in range(1, height - 1) for column in range(1, width - 1))
