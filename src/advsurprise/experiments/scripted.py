"""Scripted players of Adversarial Surprise in the room worlds: an Explore that walks or stays, a Control that stills
the room or looks away. They play in the compiled world, and the method scores their observations."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from advsurprise.envs.room_state import RoomState
from advsurprise.envs.rooms import RoomWorld
from advsurprise.experiments.walker import PICKUP, TOGGLE, WAIT, Walker, Way, walkers
from advsurprise.grid import geometry, tiles, view
from advsurprise.learning.density import AbstractDensity
from advsurprise.learning.devices import quickest_compile
from advsurprise.methods.adversarial_surprise import CONTROL, AdversarialSurprise

Explore = Literal["walks", "random", "stays"]
Methods = tuple[AdversarialSurprise, ...]
"""The method with several scopes of its model."""
RANDOM_ACTIONS = 1 << 20
"""Added to the time that is folded into a body's key for random actions."""
BOXES, STOPS = range(tiles.BOX, tiles.BALL), range(tiles.STOP_SWITCH, tiles.START_SWITCH)
KEYS = range(tiles.KEY, tiles.STOP_SWITCH)
ROUND_UP = 128
"""Numbers of poses are rounded up to a multiple of this, so that few programs are compiled."""
TRIED = 64
"""Poses per body that are simulated for all scored steps: the most promising after a single step."""
FLASHING = 4.0
"""Approximate cost of a flashing cell over the later steps, in nats per nat of the first step."""


class Behaviour(NamedTuple):
    """Behaviour of a scripted Control in each of its turns."""

    label: str
    """Its label in tables."""
    stills: bool = False
    """Whether it first stills the noisy room it is in; in worlds where it cannot, it shuts itself in the dark room."""
    pose: Literal["stand", "turn", "away", "repeat"] = "stand"
    """How it then stands. stand: as it is; turn: turned on the spot to see the fewest flashing cells, then the fewest
    cells; away: in the best pose by this measure that it can reach before steps are scored; repeat: in the reachable
    pose with the highest reward under the current model."""
    random: bool = False
    """Whether it then acts at random instead of standing."""


BEHAVIOURS = {
    "nothing": Behaviour("does nothing"),
    "random": Behaviour("acts at random", random=True),
    "still-random": Behaviour("stills, then acts at random", stills=True, random=True),
    "still": Behaviour("stills, then stands", stills=True),
    "turn": Behaviour("turns away on the spot", pose="turn"),
    "away": Behaviour("looks away", pose="away"),
    "still-away": Behaviour("stills, then looks away", stills=True, pose="away"),
    "repeat": Behaviour("repeats a view", pose="repeat"),
    "still-repeat": Behaviour("stills, then repeats a view", stills=True, pose="repeat"),
}


class Steps(eqx.Module):
    """Recorded steps, axes [T, B]."""

    scored: Bool[Array, "..."]
    """Whether the step is scored."""
    log_prob: dict[str, Float[Array, "..."]]
    """Control's reward for each scope of the model: log p_θ(o) on scored steps, 0 on others."""
    empty: dict[str, Bool[Array, "..."]]
    """Whether a step is scored under an empty model, where every observation has the same reward; for each scope."""
    obs: Any
    """Observations after each step, axes [T, B, *observation]."""
    info: dict[str, Array]
    """The world's measures."""


class Standing(eqx.Module):
    """View and reward of a body in candidate poses, axes [B, N]."""

    flashing: Int[Array, "..."]
    """Number of visible cells with flashing lights."""
    in_sight: Int[Array, "..."]
    """Number of visible cells."""
    pay: Float[Array, "..."]
    """Reward of standing there for some scored steps."""


class Poses(eqx.Module):
    """Candidate poses of each body, axes [B, N]."""

    cell: Int[Array, "..."]
    direction: Int[Array, "..."]
    opened: Bool[Array, "..."]
    """Doors that are opened on the way there, axes [B, N, door]."""


# ------------------------------------------------------------------------------------------------------------- playing


def body_keys(seeds: Sequence[int], layouts: int) -> Key[Array, " B"]:
    """Keys of the bodies: `layouts` bodies per seed."""
    of_seed = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed), layouts))
    return of_seed(jnp.asarray(seeds, jnp.uint32)).reshape(-1)


def play(world: RoomWorld, methods: Methods, explore: Explore, control: Behaviour, keys: Key[Array, " B"]) -> Steps:
    """Plays one episode per body. All methods score it; a Control that repeats a view uses the first method's model."""
    start, turn, _ = _programs()
    state, memories = start(world, methods, keys)
    method, time, parts = methods[0], 0, []
    roles = method.role_at(np.arange(world.max_steps))
    while time < world.max_steps:
        length = method.control_steps if roles[time] == CONTROL else method.explore_steps
        length = min(length, world.max_steps - time)

        def run(actions, before=(state, memories), time=time):
            return turn(world, methods, *before, jnp.asarray(actions, jnp.int32), keys, jnp.int32(time))

        if roles[time] == CONTROL:
            actions = _control(world, method, control, state, memories[0], length, run, keys, time)
        else:
            actions = _explore(world, explore, state, length, keys, time)
        state, memories, steps = run(actions)
        parts.append(jax.tree.map(np.asarray, steps))
        time += length
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)


def _start(world: RoomWorld, methods: Methods, keys: Key[Array, " B"]):
    state, timestep = jax.vmap(lambda key: world.reset(key=key))(keys)
    return state, tuple(jax.vmap(method.start)(timestep) for method in methods)


def _turn(world, methods, state, memories, actions: Int[Array, "T B"], keys: Key[Array, " B"], time: Int[Array, ""]):
    """Plays given actions of every body for a turn, starting at `time`."""

    def one(state, memories, action, key):
        state, _ = world.transition(state, action, key=key)
        timestep = world.shown(state)
        scored, log_prob, empty, after = jnp.bool_(False), {}, {}, []
        for method, memory in zip(methods, memories, strict=True):
            learnt = method.init(bodies=len(keys), key=jax.random.key(0))
            memory_after, signal = method.advance(learnt, memory, action, timestep)
            scored, log_prob[method.scope] = signal.scored, signal.log_prob
            empty[method.scope] = signal.scored & (memory.stats.count == 0)
            after.append(memory_after)
        return state, tuple(after), Steps(scored, log_prob, empty, timestep.final_obs, timestep.info)

    def step(carry, now):
        state, memories, time = carry
        now_keys = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
        state, memories, steps = jax.vmap(one)(state, memories, now, now_keys)
        return (state, memories, time + 1), steps

    (state, memories, _), steps = jax.lax.scan(step, (state, memories, time), actions)
    return state, memories, steps


def _stand(world, density, steps: int, state, stats, poses: Poses, keys: Key[Array, " B"]) -> Standing:
    """View and reward of bodies that stand in candidate poses for `steps` scored steps."""

    def one_body(operand):
        state, stats, poses, key = operand
        return jax.vmap(lambda pose: _stand_in(world, density, steps, state, stats, pose, key))(poses)

    return jax.lax.map(one_body, (state, stats, poses, keys))


def _stand_in(world, density: AbstractDensity, steps: int, state: RoomState, stats, pose: Poses, key) -> Standing:
    codes = state.grid[state.doors]
    opened = tiles.door(tiles.OPEN, (codes - tiles.DOOR) % tiles.NUM_COLOURS).astype(jnp.uint8)
    grid = state.grid.at[state.doors].set(jnp.where(pose.opened, opened, codes))
    state = dataclasses.replace(state, grid=grid, position=pose.cell, direction=pose.direction)
    cells = geometry.view_cells(state.position, state.direction, size=world.grid, view=world.view)
    codes = grid[cells]
    seen = view.visible(~tiles.is_opaque(codes), view=world.view) & (cells != state.position)
    room = jnp.clip(codes.astype(jnp.int32) - tiles.LIGHT, 0, world.rooms - 1)
    flashing = seen & tiles.is_light(codes) & ~state.stilled[room]

    def step(carry, key):
        state, stats = carry
        state = world.stir(state, key=key)
        obs = world.observe(state)
        return (state, density.update(stats, obs)), density.log_prob(stats, obs)

    _, pay = jax.lax.scan(step, (state, stats), jax.random.split(key, steps))
    return Standing(jnp.sum(flashing, dtype=jnp.int32), jnp.sum(seen, dtype=jnp.int32), jnp.sum(pay))


@functools.cache
def _programs() -> tuple[Callable, Callable, Callable]:
    """The three functions above, jitted: the first two for fast compilation, the last, the heaviest, for speed."""
    options = quickest_compile()
    start, turn = (jax.jit(each, static_argnums=(0, 1), compiler_options=options) for each in (_start, _turn))
    return start, turn, jax.jit(_stand, static_argnums=(0, 1, 2))


# ------------------------------------------------------------------------------------------------------------- Explore


def _explore(world, explore: Explore, state, length: int, keys, time: int) -> np.ndarray:
    if explore == "random":
        return _random_actions(world, keys, time, length)
    plans: list[list[int]] = [[] for _ in keys]
    if explore == "walks":
        visited = np.asarray(state.visited)
        bodies = walkers(world, state)
        plans = [_walk(body, seen.tolist(), length) for body, seen in zip(bodies, visited, strict=True)]
    return _padded(plans, length)


def _walk(body: Walker, visited: list[bool], length: int) -> list[int]:
    """Walks to the nearest unvisited room along the chain, or to the farthest room if all are visited."""
    while len(body.actions) < length:
        here = body.room
        new = [room for room, seen in enumerate(visited) if not seen]
        others = [room for room in range(len(visited)) if room != here]
        target = min(new, key=lambda room: abs(room - here)) if new else max(others, key=lambda room: abs(room - here))
        if not body.go(lambda pose, cells=body.rooms[target]: pose.cell in cells):
            break
        visited[target] = True
    return body.actions


def _random_actions(world, keys, time: int, length: int) -> np.ndarray:
    folded = jax.vmap(lambda key: jax.random.fold_in(key, RANDOM_ACTIONS + time))(keys)
    draw = jax.vmap(lambda key: jax.random.randint(key, (length,), 0, world.spec.num_actions))
    return np.asarray(draw(folded)).T


def _padded(plans: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Plans as actions [T, B], truncated or padded with waiting."""
    return np.asarray([[*plan[:length], *[WAIT] * (length - len(plan))] for plan in plans], np.int32).T


# ------------------------------------------------------------------------------------------------------------- Control


def _control(world, method, control: Behaviour, state, memory, length: int, run, keys, time: int) -> np.ndarray:
    bodies = walkers(world, state)
    if control.stills:
        noisy, stilled = np.asarray(state.noisy), np.asarray(state.stilled)
        for body, loud, calm in zip(bodies, noisy, stilled, strict=True):
            _still(world, body, loud & ~calm)
    plans = [body.actions for body in bodies]
    if control.random:
        rest = _random_actions(world, keys, time, length).T.tolist()
        return _padded([[*plan, *each] for plan, each in zip(plans, rest, strict=True)], length)
    if control.pose == "stand":
        return _padded(plans, length)
    # Plays the plan, since a stilled room keeps the colours of that moment.
    after = run(_padded(plans, length))[0] if control.stills else state
    quiet = int(method.quiet * method.control_steps)
    left = [max(0, quiet - len(plan)) for plan in plans]
    ways = [list(body.ways(steps)) for body, steps in zip(walkers(world, after), left, strict=True)]
    if control.pose == "turn":
        ways = [[way for way in each if way.pose.cell == each[0].pose.cell] for each in ways]
    folded = jax.vmap(lambda key: jax.random.fold_in(key, RANDOM_ACTIONS + time))(keys)

    def stand(steps: int) -> Standing:
        made = _programs()[2](world, method.density, steps, after, memory.stats, _poses(ways, after), folded)
        return jax.tree.map(np.asarray, made)

    once = stand(1)
    if control.pose == "repeat":
        ways = _promising(once, ways)
        once = stand(method.control_steps - quiet)
    chosen = _choose(once, ways, by_pay=control.pose == "repeat")
    return _padded([[*plan, *way.actions] for plan, way in zip(plans, chosen, strict=True)], length)


def _promising(once: Standing, ways: Sequence[list[Way]]) -> list[list[Way]]:
    """The poses with the highest estimated reward, from the reward of a single step."""
    kept, costs = [], FLASHING * once.flashing - np.round(once.pay, 3)
    for body, each in enumerate(ways):
        columns = (np.asarray(column[body, : len(each)]) for column in (once.in_sight, costs))
        order = np.lexsort([np.arange(len(each)), *columns])
        kept.append([each[index] for index in order[:TRIED]])
    return kept


def _still(world, body: Walker, flashing: np.ndarray) -> None:
    """Plans to still the body's room if its lights flash; in worlds where it cannot, to shut itself in."""
    if world.control == "none":
        return shut_in(body, int(np.argmin(flashing)))
    here = body.room
    cell = body.find(BOXES if world.control == "box" else STOPS, here) if flashing[here] else None
    if cell is not None and body.face(cell):
        body.actions.append(TOGGLE)


def shut_in(body: Walker, dark: int) -> None:
    """Plans to close the door of a two-room world from inside the dark room, and to lock it if there is a key."""
    rooms = range(len(body.rooms))
    key = next((cell for cell in (body.find(KEYS, room) for room in rooms) if cell is not None), None)
    has_key, door = body.carried in KEYS, body.doors[0]
    if body.room == dark and not tiles.is_walkable(body.grid[door]) and (key is None and not has_key):
        return
    if key is not None and not has_key and body.face(key):
        body.actions.append(PICKUP)
        body.carried, body.grid[key] = body.grid[key], tiles.EMPTY
        has_key = True
    inside = body.rooms[dark]
    if not body.go(lambda pose: pose.cell in inside and pose.cell + body.strides[pose.direction] == door):
        return
    is_open, is_locked = tiles.is_open_door(body.grid[door]), tiles.is_locked_door(body.grid[door])
    body.actions += [TOGGLE] * (is_open + (has_key and not is_locked))


def _poses(ways: Sequence[Sequence[Way]], state: RoomState) -> Poses:
    """The final poses of ways, padded to the same number per body by repeating the first."""
    most = max(len(each) for each in ways)
    number = TRIED if most <= TRIED else -(-most // ROUND_UP) * ROUND_UP
    doors = np.asarray(state.doors)
    poses, opened = np.zeros((len(ways), number, 2), np.int32), np.zeros((len(ways), number, doors.shape[1]), bool)
    for body, each in enumerate(ways):
        poses[body] = each[0].pose
        poses[body, : len(each)] = [way.pose for way in each]
        for index, way in enumerate(each):
            if way.opened:
                opened[body, index] = [door in way.opened for door in doors[body]]
    return Poses(jnp.asarray(poses[..., 0]), jnp.asarray(poses[..., 1]), jnp.asarray(opened))


def _choose(standing: Standing, ways: Sequence[Sequence[Way]], *, by_pay: bool) -> list[Way]:
    """Each body's way to the best pose: by reward if `by_pay`, then by the fewest flashing cells, then by the fewest
    visible cells, then the nearest."""
    chosen, costs = [], -np.round(standing.pay, 3) * by_pay
    for body, each in enumerate(ways):
        columns = (np.asarray(column[body, : len(each)]) for column in (standing.in_sight, standing.flashing, costs))
        best = np.lexsort([np.asarray([way.steps for way in each]), *columns])[0]
        chosen.append(each[best])
    return chosen
