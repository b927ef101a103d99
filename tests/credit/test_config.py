"""Credit options are applied or refused, never ignored."""

import pytest

from turnwise.credit import (
    SCHEMES,
    assign_advantages,
    check_components,
    fill_rewards,
    make_credit,
    mix_rewards,
    returns_to_go,
)
from turnwise.errors import ConfigError

REFUSED = [
    ({"scheme": "rlo"}, "did you mean 'rloo'"),
    ({"scheme": "grpo", "own_episode": "include"}, "own_episode = 'include' does not apply"),
    ({"scheme": "grpo", "gamma": 0.9}, "gamma = 0.9 does not apply"),
    ({"scheme": "maxrl", "state_weight": 2.0}, "state_weight = 2.0 does not apply"),
    ({"scheme": "rloo", "std": "group"}, "std = 'group' does not apply"),
    ({"scheme": "dr_grpo", "std": "batch_returns"}, "std = 'batch_returns' does not apply"),
    ({"scheme": "reinforce++", "std": "group"}, "batch_returns"),
    ({"scheme": "rloo", "std_floor": 0.1}, "std_floor = 0.1 does not apply"),
    ({"scheme": "grpo", "std": "none", "std_floor": 0.1}, "std_floor = 0.1 does not apply"),
    ({"scheme": "grpo", "std": "batch"}, "batch_returns"),
    ({"scheme": "reinforce++", "std": "batch_advantages"}, "batch_returns"),
    (
        {"scheme": "reinforce", "filter_zero_variance": True},
        "filter_zero_variance = True does not apply",
    ),
    ({"scheme": "max_at_k", "k": 0}, "greater than or equal to 1"),
    ({"scheme": "grpo", "k": 2}, "k = 2 does not apply"),
    ({"scheme": "maxrl", "rewards": {"goal": 1.0, "steps": -0.1}}, "0 or more"),
    ({"segments": {"think": "perception"}}, "to no span"),
    ({"segments": {"": "return"}}, "empty name"),
    ({"std_floor": 0.0}, "greater than 0"),
    ({"least_advantage": 0.0}, "less than 0"),
    ({"least_advantage": -float("inf")}, "finite"),
    ({"state_key": "obs"}, "'env' or 'observation'"),
    ({"rewards": {"goal": float("nan")}}, "finite"),
    ({"reward": {"goal": 1.0}}, "did you mean 'rewards'"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_does_not_apply_is_refused_with_the_reason(options, why):
    with pytest.raises(ConfigError, match=why):
        make_credit(**options)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_resolved_config_can_be_read_again(scheme):
    config = make_credit(scheme=scheme, rewards={"goal": 1.0})
    assert make_credit(**config.model_dump()) == config
    assert make_credit(**config.model_dump(exclude_none=True)) == config


def test_defaults_of_each_scheme():
    """Group mean and batch std, floor 1e-4; GiGPO as published but for own_episode."""
    got = {name: make_credit(scheme=name) for name in SCHEMES}
    assert {name: config.divides_by for name, config in got.items()} == {
        "reinforce": "none",
        "reinforce++": "batch_returns",
        "rloo": "none",
        "grpo": "batch_returns",
        "dr_grpo": "none",
        "maxrl": "none",
        "max_at_k": "batch_advantages",
        "gigpo": "none",
        "gae": "batch_advantages",
        "rae": "none",
        "at_grpo": "group",
        "leave_one_role_out": "none",
        "counterfactual": "none",
    }
    assert got["grpo"].floor == 1e-4
    gigpo = got["gigpo"]
    assert (gigpo.gamma, gigpo.state_weight, gigpo.own_episode) == (0.95, 1.0, "exclude")
    assert (got["gae"].gamma, got["gae"].gae_lambda) == (0.95, 0.3)


def test_segments_with_a_component_of_their_own_have_a_floor():
    segments = {"think": "perception", "answer": "return"}
    config = make_credit(scheme="rloo", segments=segments, std_floor=0.1)
    assert (config.std_floor, config.segment_components) == (0.1, ("perception",))
    assert make_credit(scheme="rloo", segments=segments).floor == 1e-4


def test_components_have_to_exist():
    config = make_credit(rewards={"gaol": 1.0})
    with pytest.raises(ConfigError, match="did you mean 'goal'"):
        check_components(config, ["goal", "perception"])
    with pytest.raises(ConfigError, match="unknown reward component 'sight'"):
        segments = {"think": "sight", "answer": "return"}
        check_components(make_credit(rewards={"goal": 1.0}, segments=segments), ["goal"])
    with pytest.raises(ConfigError, match="is reserved"):
        check_components(make_credit(rewards={"goal": 1.0}), ["goal", "return"])
    check_components(make_credit(rewards={"goal": 1.0}), ["goal", "perception"])


def test_no_weights_are_refused_until_filled():
    config = make_credit()
    with pytest.raises(ConfigError, match="rewards is empty"):
        check_components(config, ["goal"])
    with pytest.raises(ConfigError, match="rewards is empty"):
        assign_advantages([], config)
    with pytest.raises(ConfigError, match="gives goal the weight 0, so every return would be 0"):
        check_components(make_credit(rewards={"goal": 0.0}), ["goal", "other"])
    assert fill_rewards(config, ["a", "b"]).rewards == {"a": 1.0, "b": 1.0}
    assert fill_rewards(make_credit(rewards={"a": 2.0}), ["a", "b"]).rewards == {"a": 2.0}


def test_rewards_and_returns_to_go_by_hand():
    assert mix_rewards({"goal": 1.0, "perception": 1.0}, {"goal": 2.0, "steps": -1.0}) == 2.0
    assert returns_to_go([1.0, 2.0, 4.0], gamma=0.5).tolist() == [3.0, 4.0, 4.0]
    assert returns_to_go([1.0, 2.0], gamma=1.0).tolist() == [3.0, 2.0]
    assert returns_to_go([], gamma=1.0).tolist() == []
