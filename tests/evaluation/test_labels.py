"""Labels come from what worlds and methods declare."""

import pytest

from advsurprise import envs, methods
from advsurprise.config import RunConfig
from advsurprise.envs.host import gymnasium
from advsurprise.evaluation import labels
from advsurprise.evaluation.labels import Labels
from advsurprise.types import Measure


def test_a_column_is_called_what_its_world_and_method_call_it():
    found = labels.of_config(RunConfig(env="rooms/door", method="adversarial-surprise"))
    assert {column: found.label(column) for column in COLUMNS} == COLUMNS


COLUMNS = {
    "end/rooms_episode": "rooms visited per episode",
    "mean/rooms_episode": "rooms visited so far, time mean",
    "end/stilled": "noisy rooms stilled at the end of the episode",
    "mean/stilled": "noisy rooms stilled, time mean",
    "handover/control/first/in_dark": "in a dark room when control's first turn ends",
    "handover/explore/all/doors_closed": "doors closed when explore's turns end",
    "scored_surprise": "surprise of scored steps (nats, the method's own model)",
    "common_surprise": "surprise of all observations (nats per step, common model)",
    "explore/entropy": "explore: entropy of the policy (nats)",
    "end/nothing": "end/nothing",
    "handover/control/first/nothing": "handover/control/first/nothing",
    "nothing": "nothing",
}


def test_short_names_lead_to_columns():
    found = labels.of_config(RunConfig(env="rooms/door", method="adversarial-surprise")).shorts
    assert found["rooms"] == "end/rooms_episode"
    assert found["rooms-mean"] == "mean/rooms_episode"
    assert (found["surprise"], found["scored"]) == ("common_surprise", "scored_surprise")


def test_what_is_shown_at_the_end_is_shown_as_a_time_mean_too():
    for name in ("rooms/four", "ladder/game"):
        shown = labels.of_method(methods.make("asp", envs.make(name).spec)).shown
        ends = [column.removeprefix("end/") for column in shown if column.startswith("end/")]
        means = [column.removeprefix("mean/") for column in shown if column.startswith("mean/")]
        assert ends == means != []


@pytest.mark.parametrize("name", ["adversarial-surprise", "agac", "asp", "random", "rnd", "smirl", "task"])
def test_runs_in_the_worlds_of_others_have_labels_without_opening_them(name):
    found = labels.of_config(RunConfig(env="nowhere.py:Gone", method=name))
    assert found.world == gymnasium.MEASURES
    assert found.method == methods.make(name, envs.make("rooms/four").spec).measures
    assert found.label("end/episode_return") == "the world's own reward per episode"
    assert found.drawn == ["end/episode_return", "end/episode_length", "common_surprise"]


def test_shares_of_bins_have_labels_and_are_shown_only_when_asked_for():
    edges = Measure("where", "place", short="where", shown=True, edges=(16.0, 48.5, 64.0))
    found = Labels((edges,))
    assert found.shares == {
        "share/where/16": "place from 16 to 48.5, share of steps",
        "share/where/48.5": "place from 48.5 to 64, share of steps",
    }
    assert [found.label(column) for column in found.shares] == list(found.shares.values())
    assert all(found.is_shared(column) for column in found.shares)
    assert not {*found.shares} & {*found.shown, *found.drawn, *found.shorts.values(), *labels.live(found)}


def test_what_is_gone_leaves_columns_without_labels():
    assert labels.of_config(RunConfig(env="rooms/gone", method="gone")) == Labels()
    assert labels.of_config(RunConfig(env="rooms/four", method="gone")).label("end/uses").startswith("boxes")


def test_several_runs_share_one_table():
    rooms, others = (labels.of_config(RunConfig(env=env, method="asp")) for env in ("rooms/four", "CartPole-v1"))
    both = labels.union([rooms, others, rooms])
    assert both == Labels(rooms.world + others.world, rooms.method)
