"""The speed of host worlds is measured and printed as promised; how fast they are is not tested."""

import json
import math

import pytest

from advsurprise.cli import main as cli

NUMBERS = ("raw_steps_per_s", "inference_steps_per_s", "train_steps_per_s", "fraction_of_raw")


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "env"), [("atari", "atari/freeway"), ("doom", "doom/take-cover")])
def test_rows_hold_what_is_promised(capsys, verb, env):
    words = [
        "--bodies",
        "2",
        "--updates",
        "1",
        "--set",
        "rollout=4",
        "--set",
        "env.side=8",
        "--no-peer",
        "--json",
    ]
    cli.main(["bench", verb, "--method", "random", *words])
    result = json.loads(capsys.readouterr().out)
    [row] = result["rows"]
    assert (row["env"], row["bodies"], row["rollout"]) == (env, 2, 4)
    assert all(math.isfinite(row[name]) and row[name] > 0 for name in NUMBERS)
    assert row["fraction_of_raw"] == pytest.approx(row["train_steps_per_s"] / row["raw_steps_per_s"], rel=0.01)
    assert result["peer"] is None


def test_a_compiled_world_is_refused_with_a_sentence(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "atari", "--env", "rooms/four"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "advsurprise: rooms/four is not a host world: use bench train\n"
