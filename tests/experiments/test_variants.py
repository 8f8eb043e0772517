"""Variants of Adversarial Surprise: each can be trained, and what was trained and played is gathered."""

import json

import pytest

from advsurprise.errors import UserError
from advsurprise.experiments import variants
from advsurprise.experiments.cells import read_csv


@pytest.mark.parametrize("family", variants.FAMILIES)
def test_every_variant_is_a_valid_configuration(family, tmp_path):
    args = variants.Variants(out=tmp_path, family=family)
    jobs = [variants.training_job(args, name) for name in args.of.variants]
    assert len({job.commands for job in jobs}) == len(jobs)


def test_curves_and_frozen_policies_are_gathered(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(variants, "train_all", lambda jobs, **others: asked.extend(jobs))
    run = tmp_path / "turns-16_floor-0.05"
    run.mkdir()
    row = {"update": 1, "step": 8192, "seed": 100, "game/score": 300.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    played = {"steps": 8192, "episodes": 30, "end": True, "seeds": [{"seed": 100, "game/score": 321.0, "other": 1.0}]}
    entries = [played | {"player": player} for player in ("sampled", "control alone")]
    (run / "frozen.json").write_text(json.dumps(entries))
    variants.compare(variants.Variants(out=tmp_path, family="doom", only=("turns-16 floor-0.05",)))
    assert [job.name for job in asked] == ["turns-16_floor-0.05"]
    whose = {"world": "doom/take-cover", "arm": "turns-16 floor-0.05", "seed": 100}
    (curve,) = read_csv(tmp_path / "variants.csv")
    assert curve["game/score"] == 300.0
    assert read_csv(tmp_path / "frozen.csv") == [
        whose | {"player": player, "step": 8192, "game/score": 321.0} for player in ("sampled", "control alone")
    ]
    with pytest.raises(UserError, match="did you mean 'turns-16'"):
        variants.compare(variants.Variants(out=tmp_path, family="doom", only=("turns-17",)))
