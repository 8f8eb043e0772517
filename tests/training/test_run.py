"""A run on disk: what its folder holds, how it is continued, and what is refused."""

import contextlib
import dataclasses
import json
import math
import re
import signal
import subprocess
import sys
from contextlib import nullcontext

import jax
import numpy as np
import pytest
from event_files import scalars
from tiny_run import FIELDS, TINY, WORDS, Signals, metric_rows, newest_record, saved_tensors

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.learning.networks import WIDTH
from advsurprise.training import checkpoint, folder, loops, memory, run
from advsurprise.training.metrics import read_rows

pytestmark = pytest.mark.slow


def test_trained_in_two_parts_equals_trained_at_once(tmp_path, loop):
    run.train(TINY, tmp_path / "once", loop=loop)
    run.train(dataclasses.replace(TINY, steps=20 * 6), tmp_path / "twice", loop=loop)
    result = run.train(TINY, tmp_path / "twice", loop=loop)
    assert (result.steps, result.finished, result.stopped_by) == (20 * 12, True, 0)
    assert saved_tensors(tmp_path / "once") == saved_tensors(tmp_path / "twice")
    assert metric_rows(tmp_path / "once") == metric_rows(tmp_path / "twice")


def test_an_existing_run_is_continued_never_overwritten(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    before, card = saved_tensors(tmp_path), (tmp_path / "card.md").read_bytes()
    again = run.train(TINY, tmp_path, loop=loop)
    assert (again.steps, again.finished) == (20 * 12, True)
    assert (saved_tensors(tmp_path), (tmp_path / "card.md").read_bytes()) == (before, card)
    with pytest.raises(UserError, match=r"holds another run \(bodies is 2 there, 4 asked for\)"):
        run.train(dataclasses.replace(TINY, bodies=4), tmp_path)
    assert saved_tensors(tmp_path) == before
    fresh = run.train(dataclasses.replace(TINY, steps=20 * 5), tmp_path, fresh=True, loop=loop)
    assert fresh.steps == 20 * 5
    assert len(metric_rows(tmp_path)) == 10


def test_a_run_may_go_on_in_other_processes(tmp_path):
    cfg = RunConfig(env="atari/freeway", env_fields={"sticky": 0.25, "workers": 7})
    folder.prepare_folder(cfg, tmp_path, fresh=False)
    for placed in ({"workers": 2}, {"groups": 4}, {}):
        folder.check_folder(dataclasses.replace(cfg, env_fields={"sticky": 0.25} | placed), tmp_path, fresh=False)
    with pytest.raises(UserError, match="holds another run"):
        folder.check_folder(dataclasses.replace(cfg, env_fields={"workers": 7}), tmp_path, fresh=False)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(UserError, match="not empty and holds no run"):
            run.train(TINY, tmp_path, fresh=fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        run.train(TINY, tmp_path / "thesis.tex")


def test_what_cannot_be_trained_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match="k_explore"):
        run.train(dataclasses.replace(TINY, method_fields={"k_explore": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_never_train_into_one_folder(tmp_path, loop):
    holds = "import pathlib, sys, time; from advsurprise.training.folder import locked\n"
    holds += "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", holds, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="is being trained by another process"):
        run.train(TINY, tmp_path / "run", loop=loop)
    assert not list((tmp_path / "run").iterdir())
    # A process that is killed leaves no lock behind.
    other.kill()
    other.communicate()
    with folder.locked(tmp_path / "run"):
        assert not list((tmp_path / "run").iterdir())


def test_what_a_killed_writer_left_does_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".config.json.99.tmp").write_text("{")
    folder.prepare_folder(TINY, tmp_path, fresh=False)
    assert folder.read_run(tmp_path) == TINY


def test_what_a_killed_writer_left_is_removed_when_the_run_goes_on(tmp_path, loop):
    run.train(dataclasses.replace(TINY, steps=20 * 2), tmp_path, loop=loop)
    left = [tmp_path / ".card.md.7.tmp", tmp_path / "checkpoints" / ".step_000000001.json.7.tmp"]
    for path in left:
        path.touch()
    run.train(dataclasses.replace(TINY, steps=20 * 3), tmp_path, loop=loop)
    assert not any(path.exists() for path in left)


def test_the_folder_holds_what_it_says(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "metrics.jsonl", "checkpoints", "card.md"}
    assert folder.read_run(tmp_path) == TINY
    rows = metric_rows(tmp_path)
    assert [(row["update"], row["seed"]) for row in rows[:3]] == [(1, 3), (1, 4), (2, 3)]
    assert {"scored_surprise", "common_surprise", "explore/reward", "control/entropy", "end/total"} <= set(rows[0])
    assert all(row["scored_surprise"] > 0 for row in rows)
    assert f"advsurprise eval {tmp_path}" in (tmp_path / "card.md").read_text()


def test_the_versions_of_the_beginning_are_kept_and_later_ones_listed(tmp_path, monkeypatch):
    def config():
        return json.loads((tmp_path / "config.json").read_text())

    for number, resumed in [("1", None), ("1", None), ("2", ["2"]), ("2", ["2"]), ("1", ["2", "1"])]:
        monkeypatch.setattr(folder, "versions", lambda number=number: {"jax": number})
        folder.prepare_folder(TINY, tmp_path, fresh=False)
        assert config()["versions"] == {"jax": "1"}
        assert config().get("resumed_with") == (resumed and [{"jax": each} for each in resumed])
    folder.prepare_folder(TINY, tmp_path, fresh=True)
    assert "resumed_with" not in config()


def test_trackers_get_the_rows_also_after_a_stop(tmp_path, loop, monkeypatch, capsys):
    """Stopped after update 3 and resumed without being told of trackers again; `--fresh` removes what they wrote."""
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(Signals(loop, 3, signal.SIGTERM)))
    words = ["train", *WORDS, "--steps", "240", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        cli.main([*words, "--track", "tensorboard"])
    assert f"tensorboard --logdir {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(loop))
    cli.main(["resume", str(tmp_path)])
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["update"] for row in rows] == [number for number in range(1, 13) for _ in TINY.seeds]
    shown = scalars(tmp_path / "track" / "tensorboard")
    wanted = {
        (f"seed_{row['seed']}/{name}", row["step"]): row[name] for row in rows for name in set(row) - {"step", "seed"}
    }
    finite = {key: np.float32(value) for key, value in wanted.items() if np.isfinite(float(value))}
    assert len(finite) > 24 * 10
    assert shown == finite
    tracked = saved_tensors(tmp_path)
    cli.main([*words, "--fresh"])
    assert not (tmp_path / "track").exists()
    assert saved_tensors(tmp_path) == tracked


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    whole, newest = saved_tensors(tmp_path), newest_record(tmp_path)
    tensors = newest.parent / checkpoint.read_record(newest)["tensors"]["file"]
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    lines = []
    run.train(TINY, tmp_path, loop=loop, log=lines.append)
    assert lines[0].startswith("skipped a checkpoint:")
    assert newest.name in lines[0]
    assert lines[1].startswith("continuing from update 10")
    assert saved_tensors(tmp_path) == whole


def test_a_damaged_configuration_is_refused_with_a_sentence(tmp_path):
    folder.prepare_folder(TINY, tmp_path, fresh=False)
    path = tmp_path / "config.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="is damaged"):
        folder.read_run(tmp_path)
    path.write_text(json.dumps({"config": {"boddies": 3}}))
    with pytest.raises(UserError, match="did you mean 'bodies'"):
        folder.read_run(tmp_path)
    with pytest.raises(UserError, match="there is no run"):
        folder.read_run(tmp_path / "elsewhere")


def test_losses_that_are_not_finite_stop_the_run_and_keep_the_last_good_checkpoint(tmp_path, loop):
    class Breaks:
        init, like, resumed, agents = loop.init, loop.like, loop.resumed, loop.agents
        saved, notes, method = loop.saved, loop.notes, loop.method

        def update(self, state):
            state, metrics = loop.update(state)
            if int(state.update[0]) == 8:
                metrics["control/loss"] = metrics["control/loss"].at[1].set(np.nan)
            return state, metrics

    with pytest.raises(run.NonFinite, match=r"control/loss of seed 4 is nan at step 160.*is kept"):
        run.train(TINY, tmp_path, loop=Breaks())
    assert checkpoint.read_record(newest_record(tmp_path))["step"] == 5
    assert run.train(TINY, tmp_path, loop=loop).steps == 20 * 12


def test_a_role_without_samples_has_no_loss_to_check(tmp_path):
    row = {"step": 160, "seed": 4, "control/loss": math.nan, "control/value_loss": math.nan}
    run.check_finite([row | {"control/steps": 0.0}], tmp_path)
    for stops in ({"control/steps": 1.0}, {}, {"control/steps": 0.0, "predictor/loss": math.nan}):
        with pytest.raises(run.NonFinite, match="of seed 4 is nan at step 160"):
            run.check_finite([row | stops], tmp_path)


def test_memory_that_runs_out_is_a_sentence_that_says_how_many_bodies_fit(tmp_path, loop, monkeypatch):
    def overflows(state):
        if int(state.update[0]) == 7:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore\nlines")
        return update(state)

    update = loop.update
    monkeypatch.setattr(loop, "update", overflows)
    with pytest.raises(memory.OutOfMemory) as caught:
        run.train(TINY, tmp_path, loop=loop)
    said = re.fullmatch(
        r"2 bodies of 2 seed\(s\) do not fit into the memory of this machine; about ([\d,]+) would: use --bodies (\d+)",
        str(caught.value),
    )
    assert said is not None, caught.value
    assert int(said[2]) == int(said[1].replace(",", "")) > 1000
    assert checkpoint.read_record(newest_record(tmp_path))["step"] == 5


def test_a_disk_that_is_full_in_the_middle_ends_a_run_and_nothing_is_lost(tmp_path, loop, small_disk):
    whole, run_folder, filler = tmp_path / "whole", small_disk / "run", small_disk / "filler"
    run.train(TINY, whole, loop=loop)
    run.train(dataclasses.replace(TINY, steps=20 * 5), run_folder, loop=loop)
    kept = saved_tensors(run_folder)
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    with pytest.raises(UserError, match="No space left on device"):
        run.train(TINY, run_folder, loop=loop)
    assert saved_tensors(run_folder) == kept
    filler.unlink()
    run.train(TINY, run_folder, loop=loop)
    assert saved_tensors(run_folder) == saved_tensors(whole)
    assert metric_rows(run_folder) == metric_rows(whole)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of eight megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_every_leaf_of_the_state_is_an_array_before_it_is_compiled(loop):
    """jit would turn a number that is no array, and so no part of a checkpoint, into one."""
    seen = []

    def traced(function):
        def step(argument):
            result = function(argument)
            seen.extend(jax.tree_util.tree_leaves_with_path(result))
            return result

        return step

    state = jax.eval_shape(traced(loop._init_seed), jax.random.key(0))
    jax.eval_shape(traced(loop._update_seed), state)
    assert [path for path, leaf in seen if not isinstance(leaf, jax.Array)] == []
    assert len(seen) > 2 * len(jax.tree.leaves(state))


def test_python_trains_and_loads_with_the_command_lines_defaults(tmp_path, shared):
    trained = advsurprise.train("ladder/game", steps=200, out=tmp_path, **FIELDS)
    assert (trained.updates, len(trained.agents)) == (10, 2)
    assert trained.agents[0].policies["explore"].hidden.weight.shape[0] == 2 * WIDTH
    assert trained.config == dataclasses.replace(TINY, steps=200, save_every=RunConfig().save_every)
    assert advsurprise.load(tmp_path).config == trained.config


def test_the_command_line_trains_and_resumes(tmp_path, capsys, shared):
    run_folder = str(tmp_path / "run")
    cli.main(["train", *WORDS, "--steps", "200", "--out", run_folder, "--json"])
    trained = json.loads(capsys.readouterr().out)
    assert (trained["run"], trained["steps"], trained["seeds"]) == (run_folder, 200, [3, 4])
    assert trained["last"]["scored_surprise"] > 0
    cli.main(["resume", run_folder, "--steps", "400"])
    captured = capsys.readouterr()
    assert "trained 400 steps for 2 seed(s)" in captured.out
    assert "continuing from update 10" in captured.err
