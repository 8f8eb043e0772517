"""The verb methods."""

from typing import Any

from advsurprise import methods


def list_methods() -> dict[str, Any]:
    """Name and description of every method."""
    return {"methods": [{"name": name, "description": text} for name, text in methods.list_methods().items()]}


def methods_text(result: dict[str, Any]) -> str:
    """The list as text."""
    lines = [f"{each['name']:22}{each['description']}" for each in result["methods"]]
    one = "Train one:       advsurprise train --method adversarial-surprise --env rooms/four"
    several = "Compare several: advsurprise train --method adversarial-surprise,random --env rooms/four --seeds 0..4"
    return "\n".join([*lines, "", one, several])
