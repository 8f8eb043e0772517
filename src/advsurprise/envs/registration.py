"""Gymnasium's ids of the room worlds. Gymnasium imports this when it is imported itself, so it imports nothing."""

IDS = {
    "FourRooms-v0": "rooms/four",
    "DoorRoom-v0": "rooms/door",
    "LockRoom-v0": "rooms/lock",
    "SwitchRoom-v0": "rooms/switch",
}
"""Name within the namespace `advsurprise`, and the world it makes."""


def register() -> None:
    """Called by Gymnasium through the entry point `gymnasium.envs`, which adds the namespace."""
    from gymnasium.envs.registration import register as register_id

    for name, world in IDS.items():
        register_id(
            id=name,
            entry_point="advsurprise.envs.gymnasium:RoomsEnv",
            vector_entry_point="advsurprise.envs.gymnasium:RoomsVectorEnv",
            kwargs={"world": world},
        )
