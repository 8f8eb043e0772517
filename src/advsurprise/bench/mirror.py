"""A Farama MiniGrid environment that follows a room world. Needs the `oracle` extra."""

from collections import Counter

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Door, Floor, Key, Wall, WorldObj
from minigrid.minigrid_env import MiniGridEnv

from advsurprise.bench.record import Moment
from advsurprise.envs.rooms import RoomWorld
from advsurprise.grid import tiles

SWITCH_NUMBER = tiles.TYPE_NUMBER["switch"]


class Switch(WorldObj):
    """Our addition to MiniGrid: solid, cannot be moved, stops or starts the noise of its room."""

    def __init__(self, color: str, room: int, starts: bool):
        OBJECT_TO_IDX.setdefault("switch", SWITCH_NUMBER)
        IDX_TO_OBJECT.setdefault(SWITCH_NUMBER, "switch")
        super().__init__("switch", color)
        self.room = room
        self.starts = starts


class FixedBox(Box):
    """A box under the authors' rule: it cannot be picked up."""

    def can_pickup(self):
        return False


class Mirror(MiniGridEnv):
    """Starts from our world's first state; after that it takes only our actions and our noise."""

    def __init__(self, world: RoomWorld, first: Moment, lights: np.ndarray):
        """`lights` [x, y]: the room whose light a cell is, -1 for none."""
        super().__init__(
            mission_space=MissionSpace(mission_func=lambda: "follow"),
            grid_size=world.grid,
            max_steps=world.max_steps + 1,
            agent_view_size=world.view,
        )
        self.world = world
        self.grid = Grid(world.grid, world.grid)
        self.agent_pos, self.agent_dir, self.carrying, self.step_count = (
            first.position,
            first.direction,
            None,
            0,
        )
        self.stilled = first.stilled.copy()
        self.events: Counter[str] = Counter()
        self._stilled_by: dict[int, int] = {}
        self._doors: list[tuple[int, int]] = []
        self._lights = [(int(x), int(y), int(lights[x, y])) for x, y in zip(*np.nonzero(lights >= 0), strict=True)]
        for x, y in np.ndindex(world.grid, world.grid):
            thing = self._thing(int(first.codes[x, y]))
            self.grid.set(x, y, thing)
            if isinstance(thing, Door):
                self._doors.append((x, y))

    def gen_obs(self) -> dict:
        """Returns nothing: `image` draws the view later, when our rules have been applied too."""
        return {}

    def image(self) -> np.ndarray:
        """MiniGrid's own symbolic view."""
        return super().gen_obs()["image"]

    def stir(self, seen: Moment) -> None:
        """Copies the noise: colours of lights in rooms that are not stilled, and moves of balls."""
        for x, y, room in self._lights:
            floor = self.grid.get(x, y)
            if not self.stilled[room] and isinstance(floor, Floor):
                floor.color = IDX_TO_COLOR[int(seen.stirred[x, y]) - tiles.FLOOR]
        if self.world.noise == "balls":
            self._move_balls(seen.stirred)

    def act(self, action: int) -> None:
        """MiniGrid's own step, except for switches and for locking a door."""
        front, hand = self.grid.get(*self.front_pos), self.carrying
        toggles = action == self.actions.toggle
        locks = toggles and _locks(front, hand)
        before = (front.encode() if front else None, hand, tuple(self.agent_pos))
        self.step(self.actions.done if locks else action)
        if locks and isinstance(front, Door):
            front.is_locked = True
        if toggles and isinstance(front, Switch):
            self.stilled[front.room] = not front.starts
        if toggles and isinstance(front, Box):
            self.stilled[self._stilled_by[id(front)]] = True
        self._count(before, front, toggles=toggles)

    def agrees(self, seen: Moment) -> bool:
        """Whether view, pose, carried thing, every door and the stilled rooms are identical."""
        return (
            np.array_equal(self.image(), seen.obs)
            and tuple(int(i) for i in self.agent_pos) == seen.position
            and self.agent_dir == seen.direction
            and tuple(tiles.SYMBOL_OF[seen.carried]) == _symbol(self.carrying)
            and all(_symbol(self.grid.get(x, y)) == tuple(tiles.SYMBOL_OF[seen.codes[x, y]]) for x, y in self._doors)
            and np.array_equal(self.stilled, seen.stilled)
        )

    def agrees_everywhere(self, seen: Moment) -> bool:
        """Whether every cell of the grid is identical, seen or not (slow)."""
        return np.array_equal(self.grid.encode(), tiles.SYMBOL_OF[seen.codes])

    def _thing(self, code: int) -> WorldObj | None:
        """The MiniGrid object of a code."""
        kind, colour, state = (int(i) for i in tiles.SYMBOL_OF[code])
        name = IDX_TO_COLOR[colour]
        if tiles.is_box(code):
            thing = FixedBox(name) if self.world.fixed_boxes else Box(name)
            self._stilled_by[id(thing)] = (code - tiles.BOX) // tiles.NUM_COLOURS
            return thing
        if tiles.is_ball(code):
            return Ball(name)
        if kind == SWITCH_NUMBER:
            starts = code >= tiles.START_SWITCH
            return Switch(name, code - (tiles.START_SWITCH if starts else tiles.STOP_SWITCH), starts)
        makers = {"wall": lambda: Wall(), "floor": lambda: Floor(name), "key": lambda: Key(name)}
        makers["door"] = lambda: Door(name, is_open=state == tiles.OPEN, is_locked=state == tiles.LOCKED)
        makers["empty"] = lambda: None
        return makers[IDX_TO_OBJECT[kind]]()

    def _move_balls(self, stirred: np.ndarray) -> None:
        """Moves every ball to where ours is."""
        for index, thing in enumerate(self.grid.grid):
            if isinstance(thing, Ball):
                self.grid.grid[index] = None
        for x, y in zip(*np.nonzero(tiles.is_ball(stirred)), strict=True):
            self.grid.set(x, y, self._thing(int(stirred[x, y])))

    def _count(self, before, front, *, toggles: bool) -> None:
        """Counts events, so that a comparison shows what it covered."""
        encoded, hand, position = before
        if position != tuple(self.agent_pos):
            self.events["moved"] += 1
        if hand is None and self.carrying is not None:
            self.events[f"{self.carrying.type} taken"] += 1
        if hand is not None and self.carrying is None:
            self.events[f"{hand.type} dropped"] += 1
        if toggles and isinstance(front, Door) and front.encode() != encoded:
            state = ("opened", "closed", "locked")[front.encode()[2]]
            self.events[f"door {state}"] += 1
        if toggles and isinstance(front, Box | Switch):
            self.events["box opened" if isinstance(front, Box) else "switch used"] += 1


def _locks(front: WorldObj | None, hand: WorldObj | None) -> bool:
    """Our rule: a closed door, toggled with its key in hand, becomes locked."""
    if not isinstance(front, Door) or not isinstance(hand, Key):
        return False
    return not front.is_open and not front.is_locked and hand.color == front.color


def _symbol(thing: WorldObj | None) -> tuple[int, ...]:
    """MiniGrid's encoding of an object or of nothing."""
    return (tiles.TYPE_NUMBER["empty"], 0, 0) if thing is None else tuple(thing.encode())
