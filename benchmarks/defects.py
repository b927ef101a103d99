"""Defects of PettingLLMs' public code, each of which replaces one function of turnwise.

Provides the table `REPLACED` and `defective`, inside which the functions of some names are replaced
and their calls counted. `teams_defects.py` says what each defect is, and `defect_run.py` runs the
command line with them. A replacement calls the original too, and tells whether its own result
differs from the original's, so that a defect that changes nothing is seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from turnwise.credit import Credit
from turnwise.credit.groups import Group, GroupKey, Unit
from turnwise.credit.schemes.base import Comparison
from turnwise.engines.model_calls import ModelCalls
from turnwise.envs.base import Observation, Step
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.state import PlanState, potential
from turnwise.errors import EngineError
from turnwise.rollout.agent import RolloutAgent
from turnwise.rollout.branch import Branch
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.trials import Trials
from turnwise.seeding import generator
from turnwise.types import TrainingSample, Turn, TurnId, VisitId

GAMMA = 0.99
"""The discount of the shaped rewards of the public code."""
TOP_P, TOP_K = 0.9, 20
"""The filters of its training sampling."""
FAILED = 0.05
"""The share of the calls in training that fail; a guess, the public code has no number."""


def merged_problems(
    original: Callable[..., tuple[Group, ...]],
    units: Sequence[Unit],
    comparison: Comparison,
    config: Any,
    untrained: Iterable[TurnId] = (),
) -> tuple[tuple[Group, ...], bool]:
    """Compare the turns of one role and round of K problems, where K is the number of siblings."""
    siblings = 1 + max((unit.id.branch for unit in units), default=0)

    def key(unit: Unit) -> GroupKey:
        number = unit.episode.visit // siblings
        return GroupKey(
            role=unit.role, seat=unit.id.role, round=unit.id.round, state=f"problems {number}"
        )

    found = original(units, comparison, config, untrained)
    made = original(units, replace(comparison, key=key), config, untrained)
    return made, advantages_of(made) != advantages_of(found)


def advantages_of(groups: Iterable[Group]) -> dict[TurnId, float]:
    """Return the advantage of each unit."""
    return {
        unit.id: advantage
        for group in groups
        for unit, advantage in zip(group.units, group.advantages, strict=True)
    }


async def one_reward(
    original: Callable[..., Any], trials: Trials, seat: str, branches: Sequence[Branch]
) -> tuple[list[Branch], bool]:
    """Give all siblings of a seat the reward of one, where another seat has acted in the round.

    It is the sibling with the number of the other seat's sibling that went on.
    """
    found: list[Branch] = await original(trials, seat, branches)
    paid = [branch for branch in found if branch.trials]
    agents = (trials.agents.with_policy(other) for other in trials.agents if other != seat)
    last = [agent.turns[-1] for agent in agents if agent.turns]
    earlier = [turn.id.branch for turn in last if turn.id.round == branches[0].question.id.round]
    if not earlier or not paid:
        return found, False
    same = [branch for branch in paid if branch.turn.id.branch == earlier[0]]
    rewards = (same or paid)[0].trials
    made = [branch.judged(*rewards) if branch.trials else branch for branch in found]
    return made, [each.trials for each in made] != [each.trials for each in found]


@dataclass
class Play:
    """What an episode with stale states keeps: the state that prompts show, and the branches' own.

    `begun` is the state in which the round began, `own` that in which the play of each sibling's
    number is.
    """

    begun: PlanState[Any] | None = None
    own: dict[int, PlanState[Any]] = field(default_factory=dict)


PLAYS: WeakKeyDictionary[EpisodeCounter, Play] = WeakKeyDictionary()
"""The plays of the episodes that are being played."""


async def stale_state(
    original: Callable[..., Any],
    agent: RolloutAgent,
    branch: Branch,
    *,
    draw: str = "",
    state: Any = None,
) -> tuple[Branch, bool]:
    """Step a sibling of training in its own play, and show the state after the first round.

    From the second round on, all rounds begin in one state, and the reward of sibling number n is
    that of its action in the play of all siblings with this number. A play that is over pays
    nothing.
    """
    found: Branch = await original(agent, branch, draw=draw, state=state)
    shown, place = branch.question, branch.turn.id.branch
    if agent.context.draws.stream != "train" or found.step is None:
        return found, False
    play = PLAYS.setdefault(agent.context.counter, Play())
    if not shown.id.round:
        play.own[place] = found.step.state
        return found, False
    if not shown.state.turn:
        play.begun = shown.state
    own: PlanState[Any] = play.own.get(place) or shown.state
    rewards = dict(branch.turn.rewards)
    if not own.ended:
        acting = agent.seat in agent.context.env.acting(own)
        stepped = await original(agent, branch, draw=draw, state=own if acting else shown.state)
        if stepped.step is not None:
            rewards, play.own[place] = dict(stepped.turn.rewards), stepped.step.state
    after: PlanState[Any] = found.step.state
    if not after.turn:  # the round is over
        after = replace(play.begun or after, left=after.left)
    over = not after.left
    step = Step(state=after, rewards=rewards, terminated=False, truncated=over)
    made = replace(found, turn=replace(found.turn, rewards=rewards), step=step)
    return made, rewards != found.turn.rewards or after != found.step.state


def no_hand_off(
    original: Callable[..., Observation], env: PlanningEnv[Any], state: PlanState[Any], role: str
) -> tuple[Observation, bool]:
    """Show a seat nothing of what the others have done in the round."""
    found = original(env, state, role)
    made = original(env, replace(state, calls=(), plans=()), role)
    return made, made != found


def last_round(
    original: Callable[..., Credit], episodes: Sequence[Any], config: Any, **more: Any
) -> tuple[Credit, bool]:
    """Train the turns in the last round of the longest episode of each visit, and no others."""
    found = original(episodes, config, **more)
    last: dict[VisitId, int] = {}
    for turn in found.advantages:
        visit = turn.episode.visit_id
        last[visit] = max(last.get(visit, 0), turn.round)
    kept = {turn for turn in found.advantages if turn.round == last[turn.episode.visit_id]}
    return found.of(kept), len(kept) < len(found.advantages)


def dithering(
    original: Callable[..., Step[Any]], env: PlanningEnv[Any], state: PlanState[Any], action: str
) -> tuple[Step[Any], bool]:
    """Shape rewards by GAMMA times the new potential less the old one, with negative potentials.

    A potential is minus the cost that is left. A move that changes no cost then earns something.
    """
    found = original(env, state, action)
    rewards, (team, own) = dict(found.rewards), state.costs
    costs = env.costs(found.state.position)
    for name, cost, start in zip(("progress", "move_useful"), costs, (team, own), strict=True):
        rewards[name] += (1 - GAMMA) * (1 - potential(cost, start))
    return replace(found, rewards=rewards), rewards != found.rewards


def filtered_sampling(
    original: Callable[..., Tensor], scores_PV: Tensor, uniforms_PM: Tensor
) -> tuple[Tensor, bool]:
    """Draw from the most probable tokens; their log-probabilities are of the whole distribution."""
    found = original(scores_PV, uniforms_PM)
    sorted_PV, index_PV = scores_PV.softmax(-1).sort(descending=True, stable=True)
    dropped_PV = sorted_PV.cumsum(-1) - sorted_PV >= TOP_P
    dropped_PV[:, TOP_K:] = True
    mask_PV = torch.zeros_like(dropped_PV).scatter(1, index_PV, dropped_PV)
    made = original(scores_PV.masked_fill(mask_PV, -torch.inf), uniforms_PM)
    return made, not torch.equal(made, found)


def other_temperature(
    original: Callable[..., list[TrainingSample]], episodes: Sequence[Any], *args: Any, **more: Any
) -> tuple[list[TrainingSample], bool]:
    """Score all tokens at temperature 1, whatever they were sampled at."""
    found = original(episodes, *args, **more)
    made = [replace(row, temperature=np.ones_like(row.temperature)) for row in found]
    return made, any((row.temperature != 1).any() for row in found)


def fails(calls: ModelCalls, identity: TurnId) -> bool:
    """Whether a model call of training is one of those that fail."""
    return calls._stream == "train" and generator(0, "failed", str(identity)).random() < FAILED


async def failed_trained(
    original: Callable[..., Any], calls: ModelCalls, identity: TurnId, *args: Any
) -> tuple[Turn, bool]:
    """Return the end token alone for a call that fails."""
    found: Turn = await original(calls, identity, *args)
    if not fails(calls, identity) or found.finish_reason != "stop":
        return found, False
    end, logprob = found.completion_ids[-1:], found.logprobs[-1:]
    made = replace(found, completion_ids=end, logprobs=logprob, text="", spans=())
    return made, made != found


async def failed_left_out(
    original: Callable[..., Any], calls: ModelCalls, identity: TurnId, *args: Any
) -> tuple[Turn | EngineError, bool]:
    """Raise an engine's error for a call that fails; its turn then leaves its group."""
    found: Turn = await original(calls, identity, *args)
    if not fails(calls, identity) or found.finish_reason != "stop":
        return found, False
    return EngineError(f"call {identity} fails, as {FAILED:.0%} of all do"), True


class Replaced(NamedTuple):
    """A function of turnwise, as "module:name", and what replaces it.

    `by` gets the original and its arguments. It returns the result, or an error to be raised, and
    whether that differs from the original's.
    """

    target: str
    by: Callable[..., Any]


REPLACED: dict[str, Replaced] = {
    "merged-problems": Replaced("turnwise.credit.assign:compare", merged_problems),
    "one-reward": Replaced("turnwise.rollout.trials:Trials.judged", one_reward),
    "stale-state": Replaced("turnwise.rollout.agent:RolloutAgent.stepped", stale_state),
    "no-hand-off": Replaced("turnwise.envs.planning.base:PlanningEnv.observe", no_hand_off),
    "last-round": Replaced("turnwise.trainers.grpo:assign_advantages", last_round),
    "dithering": Replaced("turnwise.envs.planning.base:PlanningEnv._moved", dithering),
    "filtered-sampling": Replaced("turnwise.engines.local.sampler:_invert", filtered_sampling),
    "other-temperature": Replaced(
        "turnwise.trainers.batches:samples_from_episodes", other_temperature
    ),
    "failed-trained": Replaced("turnwise.engines.model_calls:ModelCalls.turn", failed_trained),
    "failed-left-out": Replaced("turnwise.engines.model_calls:ModelCalls.turn", failed_left_out),
}
"""Name -> what it replaces."""


@contextmanager
def defective(
    names: Iterable[str], note: Callable[[Mapping[str, dict[str, int]]], None] | None = None
) -> Iterator[Mapping[str, dict[str, int]]]:
    """Replace functions inside the block; yield by name how often they were called and differed.

    `note` is given these counts after each call.
    """
    counts = {name: {"calls": 0, "differed": 0} for name in names}

    def result(name: str, made: Any, differs: bool) -> Any:
        counts[name]["calls"] += 1
        counts[name]["differed"] += differs
        if note is not None:
            note(counts)
        if isinstance(made, Exception):
            raise made
        return made

    with ExitStack() as stack:
        for name in counts:
            owner, attribute = _place(REPLACED[name].target)
            original = vars(owner)[attribute]
            stack.callback(setattr, owner, attribute, original)
            setattr(
                owner, attribute, _replacement(original, REPLACED[name].by, partial(result, name))
            )
        yield counts


def _place(target: str) -> tuple[Any, str]:
    """Return the module or class that holds a function, and the function's name there."""
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    owner: Any = import_module(module)
    for each in outer:
        owner = vars(owner)[each]
    return owner, name


def _replacement(
    original: Any, by: Callable[..., Any], result: Callable[[Any, bool], Any]
) -> Callable[..., Any]:
    """Return a function that calls `by` with the original, and passes what it returns on."""
    if inspect.iscoroutinefunction(original):

        @wraps(original)
        async def waits(*args: Any, **more: Any) -> Any:
            return result(*await by(original, *args, **more))

        return waits

    @wraps(original)
    def returns(*args: Any, **more: Any) -> Any:
        return result(*by(original, *args, **more))

    return returns
