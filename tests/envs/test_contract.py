"""docs/contract.md as code, over every world."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jaxtyping import Array, Int

import advsurprise
from advsurprise import envs
from advsurprise.envs.base import AbstractEnv, Outcome
from advsurprise.envs.host.pure import as_host
from advsurprise.types import CONTINUE, RESTART, REWIND, EnvSpec, Measure

pytestmark = pytest.mark.slow

# Every world once, in short episodes, and every way in which their programs differ.
FIELDS = {"rooms/door": {"timeout": "truncated"}, "rooms/lock": {"encoding": "symbolic", "view": 5}}
VARIANTS = {"balls": ("rooms/four", {"noise": "balls"}), "one room": ("rooms/four", {"rooms": 1})}
PURE = [id for id in advsurprise.list_envs() if envs.find(id).kind == "pure"]
WORLDS = {id: (id, FIELDS.get(id, {})) for id in PURE} | VARIANTS
WORLDS = {name: (id, {"max_steps": 20} | fields) for name, (id, fields) in WORLDS.items()}
BODIES = 6
BATCHED = [
    pytest.param(name, marks=() if name in ("balls", "rooms/lock") else pytest.mark.long) for name in sorted(WORLDS)
]
"""`make test` batches two worlds: how that is done is the same for all."""


@pytest.fixture(params=sorted(WORLDS))
def env(request):
    id, fields = WORLDS[request.param]
    return advsurprise.make(id, **fields)


def _actions(env, key):
    """Random actions for two episodes and a step: as many for every test, so that a world is compiled once."""
    return jax.random.randint(key, (2 * env.spec.max_steps + 1,), 0, env.spec.num_actions)


def _play(env, key, actions):
    """Timesteps and states of one body as numpy, axes [time, …]; time 0 is the reset."""
    return jax.tree.map(np.asarray, _program(env, key, actions))


@functools.partial(jax.jit, static_argnums=0)
def _program(env, key, actions):
    """What `_play` gives, still on the device; also for batches."""
    reset_key, step_key = jax.random.split(key)
    state, first = env.reset(key=reset_key)

    def step(state, both):
        action, key = both
        state, timestep = env.step(state, action, key=key)
        return state, (state, timestep)

    _, rest = jax.lax.scan(step, state, (actions, jax.random.split(step_key, len(actions))))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), (state, first), rest)


def _equal(left, right):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def test_the_spec_is_true(env, getkey):
    _, played = _play(env, getkey(), _actions(env, getkey()))
    spec, times = env.spec, 2 * env.spec.max_steps + 2
    assert played.obs.shape[1:] == spec.observation_shape
    assert played.obs.dtype == spec.observation_dtype
    assert tuple(sorted(played.info)) == tuple(sorted(spec.info))
    assert all(value.shape == (times,) for value in played.info.values())
    assert int(played.obs.max()) < spec.num_classes
    for place in (played.place, played.final_place):
        assert (place.shape, place.dtype) == ((times, len(spec.places)), jnp.int32)
        assert (np.asarray(place) >= 0).all()
        assert (np.asarray(place) < np.array(spec.places)).all()


def test_reset_ends_nothing(env, getkey):
    _, played = _play(env, getkey(), _actions(env, getkey()))
    timestep = jax.tree.map(lambda leaf: leaf[0], played)
    assert not bool(timestep.terminated | timestep.truncated)
    assert np.array_equal(timestep.obs, timestep.final_obs)


def test_an_episode_ends_once_and_the_next_begins_in_the_same_step(env, getkey):
    length = env.spec.max_steps
    states, played = _play(env, getkey(), _actions(env, getkey()))
    ended = np.asarray(played.terminated | played.truncated)
    assert np.flatnonzero(ended).tolist() == [length, 2 * length]
    assert not bool((played.terminated & played.truncated).any())
    # `obs` is what the fresh state shows; `final_obs` of other steps is `obs`.
    obs, place = jax.jit(jax.vmap(lambda state: (env.observe(state), env.place(state))))(states)
    assert np.array_equal(played.obs, obs)
    assert np.array_equal(played.obs[~ended], played.final_obs[~ended])
    # So with places.
    assert np.array_equal(played.place, place)
    assert np.array_equal(played.place[~ended], played.final_place[~ended])
    assert not np.array_equal(played.place, played.final_place)


def test_final_obs_and_info_belong_to_the_episode_that_ended(env, getkey):
    length = env.spec.max_steps
    key, actions = getkey(), _actions(env, getkey())
    states, played = _play(env, key, actions)
    # The same keys through `transition`, which never begins anew.
    step_key = jax.random.split(key)[1]
    move_key, _ = jax.random.split(jax.random.split(step_key, len(actions))[length - 1])
    before = jax.tree.map(lambda leaf: leaf[length - 1], states)

    @jax.jit
    def move(state, action, key):
        moved, outcome = env.transition(state, action, key=key)
        return outcome, env.observe(moved), env.place(moved), env.measure(moved)

    outcome, obs, place, measured = move(before, actions[length - 1], move_key)
    assert bool(outcome.terminated | outcome.truncated)
    assert np.array_equal(played.final_obs[length], obs)
    assert np.array_equal(played.final_place[length], place)
    assert _equal(jax.tree.map(lambda leaf: leaf[length], played.info), measured)


def test_same_key_same_trajectory(env, getkey):
    key, other = getkey(), getkey()
    actions = _actions(env, getkey())
    once, again, different = _play(env, key, actions), _play(env, key, actions), _play(env, other, actions)
    assert _equal(once, again)
    assert not _equal(once, different)


def test_every_step_uses_its_action(env, getkey):
    turns = jnp.zeros_like(_actions(env, getkey()))
    states, played = _play(env, getkey(), turns)
    ended = np.asarray(played.terminated | played.truncated)[1:]
    direction = np.asarray(states.direction)
    turned = (direction[:-1] - direction[1:]) % 4 == 1
    assert turned[~ended].all()


@pytest.mark.parametrize("env", BATCHED, indirect=True)
def test_bodies_in_a_batch_are_bodies_alone(env, getkey):
    keys = jax.random.split(getkey(), BODIES)
    actions = jnp.stack([_actions(env, getkey()) for _ in keys])
    together = jax.vmap(lambda key, actions: _program(env, key, actions))(keys, actions)
    together = jax.tree.map(np.asarray, together)
    alone = [_play(env, key, each) for key, each in zip(keys, actions, strict=True)]
    for body in range(BODIES):
        assert _equal(jax.tree.map(lambda leaf, body=body: leaf[body], together), alone[body])


# The adapter is the same for all worlds: two represent them, one for each kind of end.
@pytest.mark.parametrize("env", ["rooms/door", "balls"], indirect=True)
def test_the_host_contract_gives_the_same_episodes_for_the_same_seed(env):
    actions = np.random.default_rng(0).integers(0, env.spec.num_actions, (env.spec.max_steps + 2, BODIES))
    runs = []
    for _ in range(2):
        host = as_host(env, BODIES)
        run = [host.reset(seed=3)]
        for action in actions:
            host.send(action)
            run.append(host.recv())
        host.close()
        runs.append(run)
    assert all(_equal(left, right) for left, right in zip(*runs, strict=True))
    assert isinstance(runs[0][0].obs, np.ndarray)
    assert (runs[0][env.spec.max_steps].terminated | runs[0][env.spec.max_steps].truncated).all()


def test_a_host_refuses_to_be_used_out_of_order():
    host = as_host(Countdown(), 2)
    with pytest.raises(RuntimeError, match="reset"):
        host.send(np.zeros(2, np.int64))
    with pytest.raises(RuntimeError, match="send"):
        host.recv()
    with pytest.raises(RuntimeError, match="before relocating bodies"):
        host.relocate(np.zeros(2, np.int64))


class CountdownState(eqx.Module):
    left: Int[Array, ""]
    length: Int[Array, ""]
    episodes: Int[Array, ""]


class Countdown(AbstractEnv[CountdownState]):
    """Episodes of random lengths: bodies end at different times, as they never do in the room worlds."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("countdown", (), "int32", "vector", 0, 2, 0, (Measure("episodes", "episodes"),))

    def initial(self, *, key):
        length = jax.random.randint(key, (), 1, 6)
        return CountdownState(length, length, jnp.int32(0))

    def inherit(self, fresh, state):
        return dataclasses.replace(fresh, episodes=state.episodes + 1)

    def transition(self, state, action, *, key):
        state = dataclasses.replace(state, left=state.left - 1)
        return state, Outcome(jnp.float32(1), state.left == 0, jnp.bool_(False))

    def observe(self, state):
        return state.left

    def measure(self, state):
        return {"episodes": state.episodes}

    def place(self, state):
        return jnp.zeros(0, jnp.int32)

    def rewind(self, first, state):
        return dataclasses.replace(first, episodes=state.episodes)


def test_only_the_bodies_that_ended_begin_anew():
    env = Countdown()
    shape = (3, 4)
    keys = jax.random.split(jax.random.key(0), shape)
    actions = jnp.zeros(30, jnp.int32)
    # Two nested batches, as bodies within seeds.
    states, played = jax.vmap(jax.vmap(lambda key: _program(env, key, actions)))(keys)
    left = np.asarray(states.left)
    ended = np.asarray(played.terminated)
    assert 0 < ended[..., 1:].mean() < 1
    assert (left[..., 1:][~ended[..., 1:]] == left[..., :-1][~ended[..., 1:]] - 1).all()
    assert (np.asarray(played.final_obs)[ended] == 0).all()
    assert (left[ended] == np.asarray(states.length)[ended]).all()
    assert (np.asarray(states.episodes)[..., -1] == ended.sum(-1)).all()


@pytest.fixture(scope="module", params=["countdown", "balls"])
def travelled(request):
    """Bodies before and after they were relocated, all at once: requests, and states as numpy."""
    if request.param == "countdown":
        env, steps, bodies = Countdown(), 4, 3 * BODIES
    else:
        id, fields = WORLDS[request.param]
        env, steps, bodies = advsurprise.make(id, **fields), 15, BODIES
    host = as_host(env, bodies)
    seen = [host.reset(seed=3)]
    first = host.state
    for action in np.random.default_rng(0).integers(0, env.spec.num_actions, (steps, host.bodies)):
        host.send(action)
        with pytest.raises(RuntimeError, match="receive the last step"):
            host.relocate(np.zeros(host.bodies, np.int64))
        seen.append(host.recv())
        over = np.asarray(seen[-1].terminated | seen[-1].truncated)
        first = jax.tree.map(lambda new, old, over=over: np.where(_like(over, new), new, old), host.state, first)
    before = jax.tree.map(np.asarray, host.state)
    request = np.arange(host.bodies) % 3
    shown = host.relocate(request)
    return env, request, first, before, jax.tree.map(np.asarray, host.state), seen[-1], shown


def _like(mask, leaf):
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))


def _of(mask, states):
    return jax.tree.map(lambda leaf: leaf[mask], states)


COUNTED = ("visited", "visited_life", "uses", "restarts", "dark_steps", "episodes")
"""What counts, in an episode or in a life, in the worlds here."""


def test_only_bodies_that_request_it_are_relocated(travelled):
    _, request, _, before, after, last_seen, shown = travelled
    stays = request == CONTINUE
    assert _equal(_of(stays, before), _of(stays, after))
    assert np.array_equal(shown.obs[stays], last_seen.obs[stays])
    assert np.array_equal(shown.place[stays], last_seen.place[stays])


def test_a_rewound_body_is_in_its_first_state_but_for_what_was_counted(travelled):
    _, request, first, before, after, _, _ = travelled
    back = request == REWIND
    for name in vars(first):
        expected = before if name in COUNTED else first
        assert np.array_equal(getattr(after, name)[back], getattr(expected, name)[back]), name
    assert not _equal(_of(back, before), _of(back, after))


def test_a_body_that_restarts_begins_a_new_episode_of_the_same_life(travelled):
    env, request, first, before, after, _, _ = travelled
    anew = request == RESTART
    if isinstance(env, Countdown):
        assert np.array_equal(after.episodes[anew], before.episodes[anew] + 1)
        assert np.array_equal(after.left[anew], after.length[anew])
        return
    assert not after.time[anew].any()
    assert (after.visited_life >= before.visited_life)[anew].all()
    assert not (after.grid[anew] == first.grid[anew]).all(axis=1).any()


def test_what_relocated_bodies_see_is_what_their_states_show(travelled):
    env, _, _, _, after, _, shown = travelled
    states = jax.tree.map(jnp.asarray, after)
    obs, place = jax.jit(jax.vmap(lambda state: (env.observe(state), env.place(state))))(states)
    assert np.array_equal(shown.obs, obs)
    assert np.array_equal(shown.place, place)
    assert not (shown.terminated | shown.truncated).any()


def test_a_new_episode_is_what_a_body_is_rewound_to_next(getkey):
    # Restarted twice, then moved, then rewound: back to where the second restart led, not to where the body began.
    # Bodies may be relocated before their first step (a vector environment may be reset again by mask), and
    # twice in a row they are led to different episodes.
    env = Countdown()
    host = as_host(env, 64)
    host.reset(getkey())
    host.relocate(np.full(64, RESTART))
    once = np.asarray(host.state.length)
    host.relocate(np.full(64, RESTART))
    began = np.asarray(host.state.length)
    assert not np.array_equal(once, began)
    host.send(np.zeros(64, np.int64))
    ended = host.recv().terminated
    host.relocate(np.full(64, REWIND))
    assert np.array_equal(np.asarray(host.state.left)[~ended], began[~ended])
    assert np.asarray(host.state.episodes).tolist() == (2 + ended).tolist()


def test_resets_are_a_branch_not_a_select_under_vmap():
    env = advsurprise.make("rooms/four")
    keys = jax.random.split(jax.random.key(0), (2, 3))
    states, _ = jax.eval_shape(jax.vmap(jax.vmap(lambda key: env.reset(key=key))), keys)
    step = jax.vmap(jax.vmap(lambda s, k: env.step(s, jnp.int32(0), key=k)))
    outside = _primitives_outside_branches(jax.make_jaxpr(step)(states, keys).jaxpr)
    assert "cond" in outside
    # Rejection sampling of layouts is the only `while` in the world: it must be within the branch.
    assert "while" not in outside


def _primitives_outside_branches(program):
    names = set()
    for equation in program.eqns:
        names.add(equation.primitive.name)
        if equation.primitive.name != "cond":
            for inner in jaxprs_in_params(equation.params):
                names |= _primitives_outside_branches(inner)
    return names
