"""The effect of thoughts on answers, measured by swapping the thoughts of two states.

Provides `swap_thoughts`. A policy whose answer does not depend on its thought keeps the answer; a
policy whose answer follows the thought gives the other state's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.agents import AgentConfig
from turnwise.engines import Request, SteppedEngine, run
from turnwise.engines.model_calls import RendererLike
from turnwise.envs import Observation
from turnwise.envs.tools.calls import calls_in
from turnwise.rollout.agent import action_of
from turnwise.seeding import generator
from turnwise.types import Episode, EpisodeId, Sampling, Turn, TurnId

PAIRS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ThoughtSwap:
    """Shares of `pairs` swaps in which the answer followed the foreign thought, or stayed.

    In a pair two states have different answers. `again` is the control: the share that gives the
    same answer after its own thought, put back in the same way.

    Example:
        >>> ThoughtSwap(pairs=100, followed=0.97, kept=0.01, again=1.0).followed
        0.97
    """

    pairs: int
    followed: float
    kept: float
    again: float


def swap_thoughts(
    episodes: Sequence[Episode],
    agent: AgentConfig,
    renderer: RendererLike,
    engine: SteppedEngine,
    *,
    seed: int,
) -> ThoughtSwap | None:
    """Return what becomes of answers when thoughts are swapped; None if no pair differs.

    Args:
        episodes: greedy episodes of the policy; one turn is taken of each, at random.
        agent: the agent of the turns.
        renderer: of the agent's policy.
        engine: continues the swapped thoughts greedily.
        seed: chooses turns and pairs.
    """
    rng = generator(seed, "thoughts")
    turns = [_with_thought(episode, agent.role) for episode in episodes]
    chosen = [own[rng.integers(len(own))] for own in turns if own]
    order = [chosen[place] for place in rng.permutation(len(chosen))]
    pairs = [(a, b) for a, b in _neighbours(order) if a.action != b.action][:PAIRS]
    if not pairs:
        return None
    called = any(calls_in(turn.action or "") for turn in order)
    words = () if called else tuple(sorted({turn.action or "" for turn in order}))
    anywhere = Observation(text="", legal_actions=words, tools=("any",) if called else ())

    async def answer(number: int, asked: Turn, thought: Turn) -> str | None:
        (span,) = (span for span in thought.spans if span.name == "think")
        said = thought.completion_ids[: span.end]
        request = Request(
            id=TurnId(
                episode=EpisodeId(iteration=0, visit=number, task="swap", member=0),
                role=agent.role,
                turn=0,
            ),
            stream="evaluation",
            policy=agent.policy,
            prompt_ids=asked.prompt_ids + said,
            media=asked.media,
            sampling=Sampling(temperature=0.0, max_tokens=max(1, agent.max_tokens - len(said))),
        )
        rest = (await engine.generate(request)).token_ids
        found = action_of(renderer.decode(said + rest), anywhere, agent, renderer)
        return found if isinstance(found, str) else None

    async def everything() -> list[tuple[str | None, str | None]]:
        swapped = asyncio.gather(*(answer(i, a, b) for i, (a, b) in enumerate(pairs)))
        control = asyncio.gather(*(answer(len(pairs) + i, a, a) for i, (a, _) in enumerate(pairs)))
        return list(zip(await swapped, await control, strict=True))

    found = run(everything(), engine)
    both, count = list(zip(found, pairs, strict=True)), len(pairs)
    return ThoughtSwap(
        pairs=count,
        followed=sum(new == b.action for (new, _), (_, b) in both) / count,
        kept=sum(new == a.action for (new, _), (a, _) in both) / count,
        again=sum(own == a.action for (_, own), (a, _) in both) / count,
    )


def _with_thought(episode: Episode, role: str) -> list[Turn]:
    """Return a role's turns that have a thought and an action."""
    return [
        turn
        for trajectory in episode.trajectories
        if trajectory.role == role and not trajectory.player
        for turn in trajectory.turns
        if turn.action is not None and any(span.name == "think" for span in turn.spans)
    ]


def _neighbours(turns: Sequence[Turn]) -> list[tuple[Turn, Turn]]:
    """Return each turn with the one after it, the last with the first."""
    return list(zip(turns, [*turns[1:], *turns[:1]], strict=True))
