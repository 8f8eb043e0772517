"""Gymnasium ids of the room worlds, registered when `advsurprise` is imported.

Entry points are strings, so that nothing is imported until an environment is made.
"""

from gymnasium.envs.registration import register as register_id
from gymnasium.envs.registration import registry

IDS = {
    "advsurprise/FourRooms-v0": "rooms/four",
    "advsurprise/DoorRoom-v0": "rooms/door",
    "advsurprise/LockRoom-v0": "rooms/lock",
    "advsurprise/SwitchRoom-v0": "rooms/switch",
}
"""Gymnasium ids and the worlds they make."""


def register() -> None:
    """Registers the ids for `gymnasium.make` and `gymnasium.make_vec`."""
    for id, world in IDS.items():
        if id not in registry:
            register_id(
                id=id,
                entry_point="advsurprise.envs.as_gymnasium:RoomsEnv",
                vector_entry_point="advsurprise.envs.as_gymnasium:RoomsVectorEnv",
                kwargs={"world": world},
            )
