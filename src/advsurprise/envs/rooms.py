"""Room worlds: a stochastic block MDP with MiniGrid's semantics, compiled.

A chain of rooms, each dark (empty) or noisy (flashing lights or wandering balls), joined by doors. Worlds and
measures are defined in docs/worlds.md.
"""

import dataclasses
import functools
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, Shaped, UInt8, UInt32

from advsurprise.envs.base import AbstractEnv, Outcome, Scene
from advsurprise.envs.reader import Reader
from advsurprise.envs.room_reader import RoomReader
from advsurprise.envs.room_state import COUNTED, MEASURES, Reward, RoomState, reward_between, share
from advsurprise.envs.settings import check_rooms
from advsurprise.envs.world import pure_worlds
from advsurprise.errors import UserError, nearest
from advsurprise.grid import actions, balls, chain, geometry, layout, tiles, view
from advsurprise.grid.lights import below, uniform
from advsurprise.types import EnvSpec


class RoomWorld(AbstractEnv[RoomState]):
    """A world of rooms; every number is a field. `WORLDS` holds the four of the paper."""

    id: str = eqx.field(static=True, default="rooms/four")
    """Name of the world."""
    rooms: int = eqx.field(static=True, default=4)
    """Number of rooms in the chain, 1 to 9."""
    min_side: int = eqx.field(static=True, default=4)
    """Shortest side of a room, walls included; at least 4."""
    max_side: int = eqx.field(static=True, default=8)
    """Longest side of a room, walls included (the paper's text says 12, its code 8)."""
    grid: int = eqx.field(static=True, default=25)
    """Side of the square grid the rooms are placed on."""
    dark: float = eqx.field(static=True, default=0.5)
    """Probability that a room is dark."""
    noisy: float = eqx.field(static=True, default=0.5)
    """Probability that a room is noisy; `dark` and `noisy` add up to 1."""
    kinds: tuple[Literal["dark", "noisy"], ...] = eqx.field(static=True, default=())
    """Fixed kinds of the rooms along the chain; empty to draw each at random."""
    noise: Literal["lights", "balls"] = eqx.field(static=True, default="lights")
    """What happens in noisy rooms: floor tiles that take a new colour every step, or balls that wander."""
    ball_density: float = eqx.field(static=True, default=0.3)
    """With noise=balls: balls per cell of a noisy room, fewer if other objects need the space."""
    control: Literal["box", "switch", "none"] = eqx.field(static=True, default="box")
    """What stills a noisy room when toggled: a box, which vanishes; a switch, which stays; or nothing."""
    restart: bool = eqx.field(static=True, default=False)
    """Whether noisy rooms also hold a switch that starts the noise again."""
    fixed_boxes: bool = eqx.field(static=True, default=False)
    """Whether boxes cannot be picked up (the authors' rule) or can (MiniGrid's)."""
    doors: Literal["closed", "open"] = eqx.field(static=True, default="closed")
    """State of the doors at the start of an episode."""
    key_room: int = eqx.field(static=True, default=-1)
    """Room that holds the key to the door from the previous room (room 0: to its only door); -1 for no key."""
    view: int = eqx.field(static=True, default=7)
    """Side of the square the body sees; odd."""
    encoding: Literal["compact", "shared", "symbolic"] = eqx.field(static=True, default="compact")
    """`compact`: one class per cell, out of those this world can show; `shared`: out of those any room world can show,
    so that policies can be moved between worlds; `symbolic`: MiniGrid's type, colour and state."""
    max_steps: int = eqx.field(static=True, default=128)
    """Length of an episode."""
    timeout: Literal["terminated", "truncated"] = eqx.field(static=True, default="terminated")
    """How a timeout ends an episode: by default as terminated, since the learner sees the time."""
    reward: Reward = eqx.field(static=True, default="none")
    """What the world itself rewards, for `task`: rooms that are new in the episode, stilled rooms, both, or nothing."""
    first_role: Literal["explore", "control"] = eqx.field(static=True, default="explore")
    """Role of Adversarial Surprise that moves first, unless the method's own field overrides it."""

    def __check_init__(self):
        check_rooms(self)

    @property
    def spec(self) -> EnvSpec:
        compact = self.encoding != "symbolic"
        return EnvSpec(
            id=self.id,
            observation_shape=(self.view, self.view) if compact else (self.view, self.view, 3),
            observation_dtype="uint8",
            observation_kind="classes",
            num_classes=len(self.classes) if compact else tiles.NUM_SYMBOLS,
            num_actions=actions.NUM_ACTIONS,
            max_steps=self.max_steps,
            measures=MEASURES,
            truncates=self.timeout == "truncated",
            places=(self.grid, self.grid, 3 ** (self.rooms - 1), 2**self.rooms),
            cell_entries=2,
            noop=int(actions.Action.DONE),
            first_role=self.first_role,
        )

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(action.name.lower() for action in actions.Action)

    @property
    def class_names(self) -> tuple[str, ...]:
        return () if self.encoding == "symbolic" else self.classes

    def draw(self, state: RoomState) -> UInt8[np.ndarray, "rows columns 3"]:
        return _picture().draw(self, state)

    def scene(self, state: RoomState) -> Scene:
        return _picture().scene(self, state)

    @property
    def tile_shapes(self) -> tuple[tuple[Any, ...], ...]:
        return _picture().tile_shapes()

    @property
    def own_cell(self) -> tuple[int, int]:
        return self.view // 2, self.view - 1

    def tiles_of(self, obs: Shaped[np.ndarray, "*n"]) -> UInt8[np.ndarray, "..."]:
        return _picture().tiles_of(self, obs)

    @property
    def reader(self) -> Reader:
        return RoomReader(self)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes a cell can show."""
        absent: set[str] = set()
        if self.encoding == "compact":
            shown = {
                "box or stop switch": self.control != "none",
                "start switch": self.restart,
                "ball": self.noise == "balls",
                **dict.fromkeys(tiles.CLASSES[tiles.FIRST_FLOOR_CLASS :], self.noise == "lights"),
                **dict.fromkeys(("key", "locked door"), self.key_room >= 0),
                **dict.fromkeys(("open door", "closed door"), self.rooms > 1),
            }
            absent = {name for name, can_occur in shown.items() if not can_occur}
        return tuple(name for name in tiles.CLASSES if name not in absent)

    # Jitted: traced once for all programs that use this world, and a single program when called directly.
    @functools.partial(jax.jit, static_argnums=0)
    def initial(self, *, key: PRNGKeyArray) -> RoomState:
        chain_key, bits_key, balls_key, words_key = jax.random.split(key, 4)
        where = chain.sample(chain_key, rooms=self.rooms, low=self.min_side, high=self.max_side, size=self.grid)
        bits = layout.name_bits(jax.random.bits(bits_key, (layout.num_bits(self.rooms),), jnp.uint32), self.rooms)
        noisy = self._draw_kinds(bits["kinds"])
        slots = layout.slots(bits["slots"], layout.floor_area(where))
        cells = layout.floor_cell(where, slots, size=self.grid, view=self.view)
        doors = geometry.cell(where.door[1:, 0], where.door[1:, 1], size=self.grid, view=self.view)
        fill = jnp.where(noisy & (self.noise == "lights"), tiles.LIGHT + jnp.arange(self.rooms), tiles.EMPTY)
        objects = self._objects(bits, cells, doors, noisy)
        ball_cells = jnp.zeros((0,), jnp.int32)
        if self.noise == "balls":
            scattered = self._scatter_balls(where, slots, noisy, key=balls_key)
            ball_cells = scattered.cells
            objects.append(
                layout.where_present(ball_cells != balls.ABSENT, ball_cells, scattered.codes.astype(jnp.int32))
            )
        first_room = jnp.arange(self.rooms) == 0
        return RoomState(
            grid=layout.put(layout.paint(where, fill.astype(jnp.uint8), size=self.grid, view=self.view), objects),
            position=cells[0, layout.BODY],
            direction=(bits["direction"][0] >> 30).astype(jnp.int32),
            carried=jnp.uint8(tiles.EMPTY),
            time=jnp.int32(0),
            top=where.top,
            side=where.side,
            doors=doors,
            balls=ball_cells,
            noisy=noisy,
            stilled=jnp.zeros_like(noisy),
            words=jax.random.bits(words_key, (self.rooms,), jnp.uint32),
            visited=first_room,
            visited_life=first_room,
            uses=jnp.int32(0),
            restarts=jnp.int32(0),
            dark_steps=jnp.int32(0),
        )

    def inherit(self, fresh: RoomState, state: RoomState) -> RoomState:
        return dataclasses.replace(fresh, visited_life=state.visited_life | fresh.visited_life)

    @functools.partial(jax.jit, static_argnums=0)
    def transition(self, state: RoomState, action: Int[Array, ""], *, key: PRNGKeyArray) -> tuple[RoomState, Outcome]:
        before, state = state, self.act(self.stir(state, key=key), action)
        over = state.time >= self.max_steps
        never = jnp.bool_(False)
        terminated, truncated = (over, never) if self.timeout == "terminated" else (never, over)
        return state, Outcome(reward_between(self.reward, before, state), terminated, truncated)

    def stir(self, state: RoomState, *, key: PRNGKeyArray) -> RoomState:
        """Moves the noise of every noisy room that is not stilled, seen or not, before the body acts."""
        bits = jax.random.bits(key, (self.rooms + state.balls.shape[0],), jnp.uint32)
        words = jnp.where(state.stilled, state.words, bits[: self.rooms])
        if self.noise == "lights":
            return dataclasses.replace(state, words=words)
        grid, cells = balls.wander(
            state.grid,
            state.balls,
            state.stilled,
            state.position,
            bits[self.rooms :],
            size=self.grid,
            view=self.view,
        )
        return dataclasses.replace(state, words=words, grid=grid, balls=cells)

    def act(self, state: RoomState, action: Int[Array, ""]) -> RoomState:
        """Applies the action, and updates the clock and the counters."""
        front = state.position + geometry.stride(state.direction, size=self.grid, view=self.view)
        before = state.grid[front]
        effect = actions.act(action, before, state.carried, fixed_boxes=self.fixed_boxes)
        position = jnp.where(effect.moves, front, state.position)
        rooms = jnp.arange(self.rooms)
        stills = (rooms == effect.stills) & ~state.stilled
        starts = (rooms == effect.starts) & state.stilled
        here = rooms == self._room_of(state, position)
        cells = state.balls
        if self.noise == "balls":
            cells = balls.picked_or_dropped(cells, front, before, effect.front)
        return dataclasses.replace(
            state,
            grid=state.grid.at[front].set(effect.front),
            position=position,
            direction=(state.direction + effect.turn) % 4,
            carried=effect.carried,
            time=state.time + 1,
            balls=cells,
            stilled=(state.stilled | stills) & ~starts,
            visited=state.visited | here,
            visited_life=state.visited_life | here,
            uses=state.uses + jnp.any(stills).astype(jnp.int32),
            restarts=state.restarts + jnp.any(starts).astype(jnp.int32),
            dark_steps=state.dark_steps + jnp.any(here & ~state.noisy).astype(jnp.int32),
        )

    @functools.partial(jax.jit, static_argnums=0)
    def observe(self, state: RoomState) -> Shaped[Array, "..."]:
        codes = view.look(
            state.grid,
            state.position,
            state.direction,
            state.carried,
            state.words,
            size=self.grid,
            view=self.view,
        )
        if self.encoding == "symbolic":
            return view.symbolic(codes, view=self.view)
        return view.compact(codes, self.classes, view=self.view)

    @functools.partial(jax.jit, static_argnums=0)
    def measure(self, state: RoomState) -> dict[str, Array]:
        codes = state.grid[state.doors]
        closed = tiles.is_closed_door(codes) | tiles.is_locked_door(codes)
        locked = tiles.is_locked_door(codes)
        noisy_rooms = jnp.sum(state.noisy, dtype=jnp.int32)
        x, y = geometry.coordinates(state.position, size=self.grid, view=self.view)
        room = self._room_of(state, state.position)
        in_dark = ~state.noisy[room]
        return {
            "rooms_episode": jnp.sum(state.visited, dtype=jnp.int32),
            "rooms_life": jnp.sum(state.visited_life, dtype=jnp.int32),
            "noisy_rooms": noisy_rooms,
            "stilled": jnp.sum(state.stilled, dtype=jnp.float32) / jnp.maximum(noisy_rooms, 1).astype(jnp.float32),
            "uses": state.uses,
            "restarts": state.restarts,
            "dark_steps": state.dark_steps,
            "in_dark": in_dark,
            "doors_closed": share(closed),
            "doors_locked": share(locked),
            "shut_in": in_dark & jnp.all(closed),
            "locked_in": in_dark & jnp.all(locked),
            "room": room,
            "x": x,
            "y": y,
            "direction": state.direction,
        }

    @functools.partial(jax.jit, static_argnums=0)
    def place(self, state: RoomState) -> Int[Array, "4"]:
        """Column, row, state of the doors (one base-3 digit each) and stilled rooms (one bit each)."""
        x, y = geometry.coordinates(state.position, size=self.grid, view=self.view)
        codes = state.grid[state.doors]
        door = tiles.is_closed_door(codes).astype(jnp.int32) + 2 * tiles.is_locked_door(codes).astype(jnp.int32)
        doors = jnp.sum(door * 3 ** np.arange(self.rooms - 1, dtype=np.int32), dtype=jnp.int32)
        stilled = jnp.sum(jnp.where(state.stilled, 2 ** np.arange(self.rooms, dtype=np.int32), 0), dtype=jnp.int32)
        return jnp.stack([x, y, doors, stilled]).astype(jnp.int32)

    def rewind(self, first: RoomState, state: RoomState) -> RoomState:
        """The first state with the current counters: an episode's counters run through all of its turns."""
        return dataclasses.replace(first, **{name: getattr(state, name) for name in COUNTED})

    def _room_of(self, state: RoomState, position: Int[Array, ""]) -> Int[Array, ""]:
        """First room whose rectangle, walls included, contains the cell: a door belongs to the earlier room."""
        x, y = geometry.coordinates(position, size=self.grid, view=self.view)
        right, down = x - state.top[:, 0], y - state.top[:, 1]
        holds = (right >= 0) & (right < state.side[:, 0]) & (down >= 0) & (down < state.side[:, 1])
        return jnp.argmax(holds).astype(jnp.int32)

    def _draw_kinds(self, bits: UInt32[Array, " rooms"]) -> Bool[Array, " rooms"]:
        if self.kinds:
            return jnp.asarray([kind == "noisy" for kind in self.kinds])
        return uniform(bits) < self.noisy

    def _objects(
        self,
        bits: dict[str, Array],
        cells: Int[Array, "rooms slots"],
        doors: Int[Array, " doors"],
        noisy: Bool[Array, " rooms"],
    ) -> list[layout.Objects]:
        """Doors, boxes or switches, and the key."""
        rooms = jnp.arange(self.rooms)
        state = tiles.OPEN if self.doors == "open" else tiles.CLOSED
        colours = layout.door_colours(bits["doors"])[: self.rooms - 1]
        objects = [layout.Objects(doors, tiles.door(state, colours).astype(jnp.uint8))]
        if self.control != "none":
            colour = below(bits["boxes"], jnp.uint32(tiles.NUM_COLOURS)).astype(jnp.int32)
            codes = tiles.box(rooms, colour) if self.control == "box" else tiles.STOP_SWITCH + rooms
            objects.append(layout.where_present(noisy, cells[:, layout.CONTROL], codes))
        if self.restart:
            codes = tiles.START_SWITCH + rooms
            objects.append(layout.where_present(noisy, cells[:, layout.RESTART], codes))
        if self.key_room >= 0:
            key = tiles.KEY + colours[max(self.key_room - 1, 0)]
            present = rooms == self.key_room
            objects.append(layout.where_present(present, cells[:, layout.KEY], jnp.full(self.rooms, key)))
        return objects

    def _scatter_balls(
        self,
        where: chain.Chain,
        slots: Int[Array, "rooms slots"],
        noisy: Bool[Array, " rooms"],
        *,
        key: PRNGKeyArray,
    ) -> layout.Objects:
        used = [layout.BODY]
        used += [layout.CONTROL] if self.control != "none" else []
        used += [layout.RESTART] if self.restart else []
        used += [layout.KEY] if self.key_room >= 0 else []
        return layout.scatter_balls(
            where,
            slots[:, jnp.asarray(used)],
            noisy,
            density=self.ball_density,
            high=self.max_side,
            size=self.grid,
            view=self.view,
            key=key,
        )


def _picture() -> Any:
    """The drawing module, imported lazily because it imports this one."""
    from advsurprise.envs import picture

    return picture


_PAIR = {"rooms": 2, "kinds": ("noisy", "dark"), "doors": "open"}

_TABLE: dict[str, tuple[str, dict]] = {
    "rooms/four": (
        "four rooms in a chain, each dark or noisy; a box in each noisy room stills its lights",
        {},
    ),
    "rooms/door": (
        "a noisy room and a dark one joined by an open door that can be closed",
        {**_PAIR, "control": "none", "max_steps": 96, "first_role": "control"},
    ),
    "rooms/lock": (
        "a noisy room and a dark one joined by an open door, with a key in the dark room that locks and unlocks it",
        {**_PAIR, "control": "none", "key_room": 1, "max_steps": 96, "first_role": "control"},
    ),
    "rooms/switch": (
        "a noisy room with a switch that stops its lights and one that starts them again, and a dark room",
        {**_PAIR, "control": "switch", "restart": True},
    ),
}
"""Description and non-default fields of every room world."""

WORLDS = pure_worlds(RoomWorld, _TABLE, view_fields=("encoding", "view"))


def make(id: str, **fields: Any) -> RoomWorld:
    """The room world called `id`, with some fields changed."""
    if id not in WORLDS:
        raise UserError(f"unknown world {nearest(id, WORLDS)}")
    WORLDS[id].check(fields)
    return WORLDS[id].build(**fields)
