"""The verb doctor."""

import importlib.metadata
import os
import platform
from typing import Any

import jax

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "gymnasium", "safetensors", "numpy")
EXTRAS = {
    "atari": "ale-py",
    "doom": "vizdoom",
    "gymnax": "gymnax",
    "pgx": "pgx",
    "video": "imageio-ffmpeg",
    "track": "tensorboardX",
    "ray": "ray",
    "oracle": "minigrid",
}
"""Each extra and one package that it installs; no `gpu`, since devices are listed anyway."""


def doctor() -> dict[str, Any]:
    """Versions, devices and extras; an extra that is not installed is None."""
    return {
        "ok": True,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": [f"{device.platform} {device.device_kind}" for device in jax.devices()],
        "cores": os.cpu_count(),
        "extras": {name: _version(package) for name, package in EXTRAS.items()},
    }


def text(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"python {report['python']}, {report['cores']} cores, devices: {', '.join(report['devices'])}"]
    lines += [f"  {name:12} {version}" for name, version in report["packages"].items()]
    for name, version in report["extras"].items():
        missing = f'missing; install with: pip install "advsurprise[{name}]"'
        lines.append(f"  extra {name:8} {version or missing}")
    if all(device.startswith("cpu") for device in report["devices"]):
        lines.append('  no GPU in use; for an NVIDIA GPU: pip install "advsurprise[gpu]"')
    return "\n".join([*lines, "OK"])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
