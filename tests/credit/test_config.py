"""Credit options are applied or refused, never ignored."""

import pytest
from pydantic import ValidationError

from turnwise.credit import (
    SCHEMES,
    CreditConfig,
    assign_advantages,
    check_components,
    fill_rewards,
    mix_rewards,
    returns_to_go,
)
from turnwise.errors import ConfigError

REFUSED = [
    ({"scheme": "rlo"}, "did you mean 'rloo'"),
    ({"scheme": "grpo", "own_episode": "include"}, "own_episode = 'include' does not apply"),
    ({"scheme": "grpo", "gamma": 0.9}, "gamma = 0.9 does not apply"),
    ({"scheme": "maxrl", "weight": 2.0}, "weight = 2.0 does not apply"),
    ({"scheme": "rloo", "std": "group"}, "takes none"),
    ({"scheme": "dr_grpo", "std": "batch_returns"}, "takes none"),
    ({"scheme": "reinforce++", "std": "group"}, "takes batch_returns"),
    ({"scheme": "rloo", "std_floor": 0.1}, "std_floor = 0.1 does not apply"),
    ({"scheme": "grpo", "std": "none", "std_floor": 0.1}, "std_floor = 0.1 does not apply"),
    ({"scheme": "grpo", "std": "batch"}, "batch_returns"),
    ({"scheme": "reinforce++", "std": "batch_advantages"}, "takes batch_returns"),
    ({"scheme": "reinforce", "filter_zero_variance": True}, "the whole batch"),
    ({"scheme": "maxrl", "rewards": {"goal": 1.0, "steps": -0.1}}, "0 or more"),
    ({"segments": {"think": "seeing"}}, "to no span"),
    ({"segments": {"": "return"}}, "empty name"),
    ({"std_floor": 0.0}, "greater than 0"),
    ({"rewards": {"goal": float("nan")}}, "finite"),
    ({"reward": {"goal": 1.0}}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_does_not_apply_is_refused_with_the_reason(options, why):
    with pytest.raises(ValidationError, match=why):
        CreditConfig(**options)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_resolved_config_can_be_read_again(scheme):
    config = CreditConfig(scheme=scheme, rewards={"goal": 1.0})
    assert CreditConfig(**config.model_dump()) == config
    assert CreditConfig(**config.model_dump(exclude_none=True)) == config


def test_defaults_of_each_scheme():
    """Group mean and batch std, floor 1e-4; GiGPO as published but for own_episode."""
    got = {name: CreditConfig(scheme=name) for name in SCHEMES}
    assert {name: config.std for name, config in got.items()} == {
        "reinforce": "none",
        "reinforce++": "batch_returns",
        "rloo": "none",
        "grpo": "batch_returns",
        "dr_grpo": "none",
        "maxrl": "none",
        "gigpo": "none",
    }
    assert (got["grpo"].std_floor, got["rloo"].std_floor) == (1e-4, None)
    gigpo = got["gigpo"]
    assert (gigpo.gamma, gigpo.weight, gigpo.own_episode) == (0.95, 1.0, "exclude")


def test_segments_with_a_component_of_their_own_have_a_floor():
    segments = {"think": "seeing", "answer": "return"}
    config = CreditConfig(scheme="rloo", segments=segments, std_floor=0.1)
    assert (config.std_floor, config.segment_components) == (0.1, ("seeing",))
    assert CreditConfig(scheme="rloo", segments=segments).std_floor == 1e-4


def test_components_have_to_exist():
    config = CreditConfig(rewards={"gaol": 1.0})
    with pytest.raises(ConfigError, match="did you mean 'goal'"):
        check_components(config, ["goal", "seeing"])
    with pytest.raises(ConfigError, match="unknown reward component 'sight'"):
        segments = {"think": "sight", "answer": "return"}
        check_components(CreditConfig(rewards={"goal": 1.0}, segments=segments), ["goal"])
    with pytest.raises(ConfigError, match="is reserved"):
        check_components(CreditConfig(rewards={"goal": 1.0}), ["goal", "return"])
    check_components(CreditConfig(rewards={"goal": 1.0}), ["goal", "seeing"])


def test_no_weights_are_refused_until_filled():
    config = CreditConfig()
    with pytest.raises(ConfigError, match="rewards is empty"):
        check_components(config, ["goal"])
    with pytest.raises(ConfigError, match="rewards is empty"):
        assign_advantages([], config)
    assert fill_rewards(config, ["a", "b"]).rewards == {"a": 1.0, "b": 1.0}
    assert fill_rewards(CreditConfig(rewards={"a": 2.0}), ["a", "b"]).rewards == {"a": 2.0}


def test_rewards_and_returns_to_go_by_hand():
    assert mix_rewards({"goal": 1.0, "seeing": 1.0}, {"goal": 2.0, "steps": -1.0}) == 2.0
    assert returns_to_go([1.0, 2.0, 4.0], gamma=0.5).tolist() == [3.0, 4.0, 4.0]
    assert returns_to_go([1.0, 2.0], gamma=1.0).tolist() == [3.0, 2.0]
    assert returns_to_go([], gamma=1.0).tolist() == []
