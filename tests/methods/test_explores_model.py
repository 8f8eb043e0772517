"""Explore with a model of its own, against Algorithm 1 in plain numpy: the episode's, or another of the round."""

import pytest
from algorithm_1 import SPEC
from comparing import FIELDS, compare

from advsurprise.errors import UserError
from advsurprise.methods.adversarial_surprise import AdversarialSurprise


@pytest.mark.parametrize(("pay_prior", "explore_pay"), [(True, "scored"), (False, "scored"), (False, "control")])
def test_explore_can_be_paid_by_the_episodes_model_and_control_by_the_rounds(pay_prior, explore_pay):
    fields = {"fit_on": "scored", "first": "explore", "pay_prior": pay_prior, **FIELDS[1]}
    compare(SPEC, scope="round", explore_scope="episode", explore_pay=explore_pay, **fields)


@pytest.mark.parametrize(("explore_pay", "rounds"), [("scored", 0), ("control", 0), ("control", 2)])
def test_explores_reward_can_be_scaled_by_its_own_return(explore_pay, rounds):
    fields = {"fit_on": "scored", "first": "explore", "pay_prior": False, "rounds": rounds, **FIELDS[1]}
    compare(SPEC, scope="round", explore_scope="episode", explore_pay=explore_pay, explore_scale="own", **fields)


@pytest.mark.parametrize(
    ("quiet_weight", "first", "rounds"), [(0.0, "explore", 0), (0.25, "control", 0), (1.0, "explore", 2)]
)
@pytest.mark.parametrize("scale", ["shared", "own"])
def test_explore_can_be_paid_for_all_of_controls_turn_of_which_control_feels_a_part(quiet_weight, first, rounds, scale):
    fields = {"fit_on": "scored", "first": first, "pay_prior": False, "rounds": rounds, **FIELDS[1]}
    fields |= {"explore_pay": "control", "explore_scale": scale, "quiet_weight": quiet_weight}
    compare(SPEC, scope="round", explore_scope="round", **fields)


def test_a_model_of_explores_own_needs_another_scope():
    with pytest.raises(UserError, match="needs scope=round"):
        AdversarialSurprise(SPEC, scope="episode", explore_scope="episode")
    with pytest.raises(UserError, match="explore_pay=control needs explore_scope=round or explore_scope=episode"):
        AdversarialSurprise(SPEC, explore_pay="control")
    with pytest.raises(UserError, match="explore_scale=own needs explore_scope=round or explore_scope=episode"):
        AdversarialSurprise(SPEC, explore_scale="own")
    with pytest.raises(UserError, match="quiet_weight needs explore_pay=control"):
        AdversarialSurprise(SPEC, scope="round", explore_scope="episode", quiet_weight=0.1)
    with pytest.raises(UserError, match="explore_scope=round needs explore_pay=control"):
        AdversarialSurprise(SPEC, scope="round", explore_scope="round")


def test_a_game_of_two_models_can_outlast_the_worlds_episodes():
    fields = {"fit_on": "scored", "first": "explore", "pay_prior": False, "rounds": 2, **FIELDS[1]}
    compare(SPEC, scope="round", explore_scope="episode", **fields)
