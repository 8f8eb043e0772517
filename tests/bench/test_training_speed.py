"""Training speed: operations against counts by hand and against XLA's, rows as promised, failures as rows."""

import json

import jax
import jax.numpy as jnp
import pytest

from advsurprise.bench import flops, train
from advsurprise.cli import main as cli
from advsurprise.cli.resolve import resolve

SIZE = {"env", "method", "bodies", "seeds", "rollout"}
NUMBERS = {
    "steps_per_s",
    "compile_s",
    "collect_share",
    "learn_share",
    "flops_per_step",
    "flops_xla",
    "fraction_of_matmul",
    "bytes_accessed",
    "peak_bytes",
}
# A world that compiles in a fraction of a room world's time: what is tested here is the bench, not the world.
TINY = (
    *("bench", "train", "--env", "ladder/game", "--seeds", "1", "--updates", "2"),
    *("--set", "env.max_steps=8", "--set", "method.k_explore=2", "--set", "method.k_control=2"),
    *("--set", "ppo.epochs=1", "--set", "ppo.minibatch=8", "--set", "rollout=8"),
)
SQUARE = jnp.ones((3, 3))
ONE = 2 * 3 * 3 * 3
"""Operations of the product of two such matrices."""


def _count(function, *operands):
    return flops.count(jax.make_jaxpr(function)(*operands))


def _scan(body, length):
    return lambda x: jax.lax.scan(lambda x, _: (body(x), None), x, length=length)[0]


def _while(stop, step, start=0):
    """Squares a matrix while a counter is below `stop`."""

    def squares(x):
        return jax.lax.while_loop(lambda c: c[0] < stop, lambda c: (c[0] + step, c[1] @ c[1]), (start, x))[1]

    return squares


def _square(x):
    return x @ x


def _cube(x):
    return x @ x @ x


@pytest.fixture
def small_matmul(monkeypatch):
    monkeypatch.setattr(train, "MATMUL_SIZES", {"cpu": (64,), "other": (64,)})


def test_a_product_of_matrices():
    assert _count(jnp.matmul, jnp.ones((3, 4)), jnp.ones((4, 5))) == 2 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("program", "products"),
    [
        (_scan(_square, 7), 7),
        (_scan(_scan(_square, 7), 5), 35),
        (_scan(lambda x: _cube(_scan(_square, 7)(x)), 5), 45),
        (jax.jit(_scan(jax.jit(_square), 7)), 7),
        (lambda x: jax.lax.fori_loop(2, 9, lambda _, x: x @ x, x), 7),
        (_while(9, 2), 5),
        (_while(9, 1, start=4), 5),
        (_while(0, 1), 0),
        (lambda x: jax.lax.cond(jnp.all(x > 0), _cube, _square, x), 2),
        (lambda x: jax.lax.cond(jnp.all(x > 0), _square, _cube, x), 2),
        (_scan(lambda x: jax.lax.switch(jnp.int32(1), [_square, _cube, lambda x: x], x), 4), 8),
        (lambda x: jax.lax.while_loop(lambda x: jnp.all(x < 9), _square, x), 1),
    ],
)
def test_loops_count_every_turn_and_branches_the_dearest(program, products):
    assert _count(program, SQUARE) == products * ONE


def test_a_product_mapped_over_a_batch_and_over_both_operands():
    left, right = jnp.ones((6, 3, 4)), jnp.ones((6, 4, 5))
    assert _count(jax.vmap(jnp.matmul), left, right) == 6 * 2 * 3 * 4 * 5
    assert _count(jax.vmap(jnp.matmul, (0, None)), left, right[0]) == 6 * 2 * 3 * 4 * 5


def test_a_loop_under_a_map():
    assert _count(jax.vmap(_scan(_square, 7)), jnp.ones((6, 3, 3))) == 6 * 7 * ONE


def test_arithmetic_and_reductions_count_floats_alone():
    x, whole = jnp.ones((4, 5)), jnp.ones((4, 5), jnp.int32)
    assert _count(lambda x: jnp.exp(x) * x + 1.0, x) == 3 * 20
    assert _count(lambda x: jnp.sum(x, axis=1), x) == 4 * 4
    assert _count(lambda x: jnp.where(x > 0, x, 0.0).T.reshape(-1)[:3], x) == 0
    assert _count(lambda n: jnp.sum(n * n) + n, whole) == 0
    assert _count(lambda x: x.at[jnp.array([0, 2])].add(1.0), x) == 2 * 5


@pytest.mark.parametrize("stride", [1, 2])
def test_xla_agrees_where_nothing_loops(stride):
    image, kernel, matrix = jnp.ones((2, 8, 8, 3)), jnp.ones((2, 2, 3, 5)), jnp.ones((5, 7))

    def program(image, kernel, matrix):
        seen = jax.lax.conv_general_dilated(
            image, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.lax.dot(seen.reshape(-1, 5), matrix)

    xla = jax.jit(program).lower(image, kernel, matrix).compile().cost_analysis()["flops"]
    assert _count(program, image, kernel, matrix) == xla


def test_parts_tell_the_gradient_from_the_loss():
    """d/dW of sum(x W): one product forward, one backward."""
    x, weight = jnp.ones((6, 3)), jnp.ones((3, 4))
    grad = jax.value_and_grad(lambda weight: jax.lax.dot(x, weight)[0, 0])
    program = jax.make_jaxpr(lambda weight: (grad(weight), jax.lax.dot(x, weight)))(weight)
    product = 2 * 6 * 3 * 4
    parts = train.flops_parts(flops.operations(program), product)
    assert parts == {"collect": product, "forward": product, "backward": product, "other": 0}


@pytest.mark.slow
def test_rows_hold_what_is_promised(capsys, small_matmul):
    cli.main([*TINY, "--bodies", "2", "--json"])
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert {"device", "jax", "cores", "matmul_flops_per_s", "rows"} <= set(result)
    (row,) = result["rows"]
    assert set(row) >= SIZE | NUMBERS
    size = {"env": "ladder/game", "method": "adversarial-surprise", "bodies": 2, "seeds": 1, "rollout": 8}
    assert row.items() >= size.items()
    assert all(row[name] > 0 for name in NUMBERS - {"learn_share"})
    assert row["learn_share"] == pytest.approx(1 - row["collect_share"], abs=1e-3)
    assert sum(row["flops_parts"].values()) == pytest.approx(row["flops_per_step"], rel=1e-3)
    assert min(row["flops_parts"].values()) > 0
    rate = row["flops_per_step"] * row["steps_per_s"]
    assert row["fraction_of_matmul"] == pytest.approx(rate / result["matmul_flops_per_s"], rel=1e-2)
    assert "compiling" in printed.err
    text = train.text(result)
    assert f"{row['steps_per_s'] / 268:,.1f} times the 268 steps/s of the authors' own code" in text


def test_a_size_that_fails_is_a_row_and_the_next_is_timed(capsys, small_matmul, monkeypatch):
    def time_size(loop, updates, matmul):
        if loop.cfg.bodies == 4:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore\nlines")
        numbers = dict.fromkeys(NUMBERS, 1.0)
        return numbers | {"steps_per_s": 10.0 * len(loop.cfg.seeds) * loop.cfg.bodies}

    monkeypatch.setattr(train, "time_size", time_size)
    words = [*TINY, "--bodies", "2", "4", "8", "--seeds", "1", "3"]
    cli.main([*words, "--json"])
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    assert [(row["seeds"], row["bodies"]) for row in rows] == [(1, 2), (1, 4), (1, 8), (3, 2), (3, 4), (3, 8)]
    failed = [row for row in rows if "error" in row]
    assert [row["bodies"] for row in failed] == [4, 4]
    assert failed[0]["error"] == "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."
    assert "Traceback" not in printed.err
    cli.main(words)
    text = capsys.readouterr().out
    assert "failed: RESOURCE_EXHAUSTED" in text
    assert "Best: 240 steps/s (adversarial-surprise, 8 bodies, 3 seed(s))" in text


def test_many_bodies_need_no_longer_run(small_matmul, monkeypatch):
    """A size may make more steps in one update than a run has by default, and rollouts are whole episodes."""
    monkeypatch.setattr(train, "time_size", lambda *_: {"error": "not tried"})
    result = train.run(
        "rooms/four",
        methods=["task"],
        bodies=[65536],
        seeds=[2],
        updates=1,
        settings=["env.max_steps=100"],
        resolve=resolve,
        log=lambda _: None,
    )
    assert result["rows"][0]["rollout"] == 500
    assert train.text(result).endswith("No size could be timed.")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--bodies", "0"), "--bodies takes whole numbers from 1"),
        (("--seeds", "0"), "--seeds takes whole numbers from 1"),
        (("--updates", "0"), "--updates takes whole numbers from 1"),
        (("--env", "rooms/fuor"), "did you mean 'rooms/four'"),
        (("--env", "CartPole-v1"), "bench train needs a pure world, not CartPole-v1"),
        (("--method", "task,adversarial-suprise"), "did you mean 'adversarial-surprise'"),
        (("--set", "ppo.epoch=2"), "did you mean 'ppo.epochs'"),
        (("--set", "method.k_explore=-1"), "k_explore"),
    ],
)
def test_mistakes_get_one_sentence_and_nothing_is_timed(capsys, words, sentence):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "train", *words])
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("advsurprise: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
