"""Episodes made by hand: what the tests of credit assignment play with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from turnwise.types import (
    Episode,
    EpisodeId,
    Failure,
    Sampling,
    Span,
    Task,
    Trajectory,
    Turn,
    TurnId,
)


def _episode(
    rewards: Sequence[float | Mapping[str, float]],
    *,
    sample: int = 0,
    visit: int = 0,
    iteration: int = 0,
    task: str = "t",
    role: str = "player",
    policy: str = "main",
    states: Sequence[str | None] | None = None,
    first_prompt: tuple[int, ...] = (1, 2),
    spans: Sequence[Sequence[str]] | None = None,
    error: Failure | None = None,
    next_key: str | None = None,
) -> Episode:
    """Return an episode with one turn for each entry of `rewards` (a number is {"goal": it}).

    With `next_key` it was left before its end, in the state of that key.
    """
    turns = tuple(
        Turn(
            order=number,
            id=TurnId(
                episode=EpisodeId(iteration=iteration, visit=visit, task=task, member=sample),
                role=role,
                turn=number,
            ),
            policy=policy,
            policy_version=0,
            prompt_ids=first_prompt if number == 0 else (9, number),
            completion_ids=(3, 4),
            logprobs=(-0.5, -0.5),
            sampling=Sampling(),
            finish_reason="stop",
            text="",
            spans=tuple(Span(name=n, start=0, end=1) for n in (spans[number] if spans else ())),
            rewards={"goal": reward} if isinstance(reward, float | int) else reward,
            state_key=states[number] if states else None,
        )
        for number, reward in enumerate(rewards)
    )
    return Episode(
        id=EpisodeId(iteration=iteration, visit=visit, task=task, member=sample),
        task=Task(id=task, env="e", seed=0, data={}),
        trajectories=(Trajectory(role=role, seat=role, turns=turns, next_key=next_key),),
        terminated=next_key is None,
        truncated=next_key is not None,
        score=0.0,
        error=error,
    )


@pytest.fixture(scope="session")
def episode():
    """The factory of episodes."""
    return _episode


@pytest.fixture(scope="session")
def one_turn_groups():
    """Return a function: lists of returns, one list per visit, to one-turn episodes."""

    def make(*groups: Sequence[float]) -> list[Episode]:
        return [
            _episode([value], visit=visit, sample=sample)
            for visit, returns in enumerate(groups)
            for sample, value in enumerate(returns)
        ]

    return make
