"""All bodies of a host world as one array of bytes, for a checkpoint."""

import json
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Shaped, UInt8, UInt32

from advsurprise.envs.host.shared import pack, unpack
from advsurprise.errors import UserError
from advsurprise.types import EnvSpec

FORMAT = 1


class ByBody(NamedTuple):
    """What a host knows about each body, seed by seed."""

    seeded: UInt32[np.ndarray, " N"]
    """Number of seeds drawn for it so far."""
    lost: Bool[np.ndarray, " N"]
    """Whether its worker died and no step has reported it yet."""
    info: Float32[np.ndarray, "N M"]
    """Its current measures."""
    obs: Shaped[np.ndarray, "N ..."]
    """Its last observation."""
    first_obs: Shaped[np.ndarray, "N ..."]
    """If it is lost, the first observation of its new episode."""


class Saved(NamedTuple):
    """Everything that is saved."""

    entropy: UInt32[np.ndarray, "S words"]
    """Key data of each seed, from which its episodes are drawn."""
    by_body: ByBody
    bodies: list[bytes]
    """What each body saved."""


def write(spec: EnvSpec, seeds: int, bodies: int, saved: Saved) -> UInt8[np.ndarray, " n"]:
    """All bodies as bytes, with a header that identifies the world."""
    by_body = saved.by_body._replace(first_obs=saved.by_body.first_obs[saved.by_body.lost])
    header = json.dumps(_header(spec, seeds, bodies)).encode()
    arrays = [np.ascontiguousarray(array).tobytes() for array in (saved.entropy, *by_body)]
    return np.frombuffer(pack([header, *arrays, *saved.bodies]), np.uint8)


def read(spec: EnvSpec, seeds: int, bodies: int, state: UInt8[np.ndarray, " n"]) -> Saved:
    """Reads what `write` wrote; refuses damaged bytes and those of another world."""
    try:
        header, entropy, *rest = unpack(state.tobytes())
        known = json.loads(header)
    except ValueError as error:
        raise UserError(f"{spec.id}: the saved state of the world is damaged: bytes are missing or changed") from error
    for key, value in _header(spec, seeds, bodies).items():
        if known.get(key) != value:
            raise UserError(f"{spec.id}: the world was saved with {key} {known.get(key)}, not {value}")
    count = seeds * bodies
    by_body = _read_bodies(spec, count, rest[: len(ByBody._fields)])
    words = np.frombuffer(entropy, np.uint32).reshape(seeds, -1)
    return Saved(words, by_body, rest[len(ByBody._fields) :])


def _header(spec: EnvSpec, seeds: int, bodies: int) -> dict:
    shape, measures = list(spec.observation_shape), list(spec.info)
    known = {"format": FORMAT, "world": spec.id, "seeds": seeds, "bodies": bodies}
    return known | {"observations": [spec.observation_dtype, *shape], "measures": measures}


def _read_bodies(spec: EnvSpec, count: int, parts: list[bytes]) -> ByBody:
    seeded, lost, info, obs, first_obs = parts
    mask = np.frombuffer(lost, bool)
    current = np.frombuffer(obs, spec.observation_dtype).reshape(count, *spec.observation_shape)
    following = np.zeros_like(current)
    following[mask] = np.frombuffer(first_obs, spec.observation_dtype).reshape(-1, *spec.observation_shape)
    measures = np.frombuffer(info, np.float32).reshape(count, len(spec.info))
    return ByBody(np.frombuffer(seeded, np.uint32), mask, measures, current, following)
