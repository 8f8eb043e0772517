"""The doctor names what is here and what is missing, with the line that installs it."""

import importlib.metadata
import json
import pathlib
import platform
import tomllib

import jax
import numpy as np

from advsurprise.cli import doctor
from advsurprise.cli import main as cli


def test_it_reports_this_machine(capsys):
    cli.main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["python"] == platform.python_version()
    assert report["packages"]["numpy"] == np.__version__
    assert len(report["devices"]) == len(jax.devices())
    cli.main(["doctor"])
    text = capsys.readouterr().out
    assert text.endswith("OK\n")
    assert f"numpy        {np.__version__}" in text


def test_a_missing_extra_comes_with_the_line_that_installs_it(capsys, monkeypatch):
    version = importlib.metadata.version

    def without_vizdoom(package):
        if package == "vizdoom":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2.3" if package == "ale-py" else version(package)

    monkeypatch.setattr(importlib.metadata, "version", without_vizdoom)
    report = doctor.doctor()
    assert (report["extras"]["doom"], report["extras"]["atari"]) == (None, "1.2.3")
    lines = doctor.text(report).splitlines()
    assert '  extra doom     missing; install with: pip install "advsurprise[doom]"' in lines
    assert "  extra atari    1.2.3" in lines


def test_a_gpu_is_offered_only_where_none_is_used():
    report = doctor.doctor()
    assert "advsurprise[gpu]" in doctor.text({**report, "devices": ["cpu cpu"]})
    assert "advsurprise[gpu]" not in doctor.text({**report, "devices": ["gpu NVIDIA H200"]})


def test_every_extra_of_the_package_is_looked_for():
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - {"gpu"}
    for name, package in doctor.EXTRAS.items():
        assert any(requirement.startswith(package) for requirement in extras[name]), name
