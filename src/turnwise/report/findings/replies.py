"""Findings about episodes that do not end, and replies that are cut or no action."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from turnwise.report.findings.facts import Facts, Finding
from turnwise.runs import metric_names
from turnwise.runs.results import SURE
from turnwise.utils.rewards import mix_rewards

MANY_CUT = 0.1
"""Share of completions cut at the token limit that is a finding."""
MANY_FAILED = 0.1
"""Share of failed episodes that is a finding."""
MANY_CAPPED = 0.1
"""Share of episodes cut at the turn limit from which the env is the first cause to check."""
SOME_CAPPED = 0.02
"""Share of episodes cut at the turn limit that is a finding at all."""
FEWEST_TURNS = 10
"""The least cap on turns that is suggested."""
MOSTLY_FAILED = 0.5
"""Share of failed episodes from which hardly anything can be learned."""
SHORT_WARM_UP = 100
"""Steps of a warm-up below which a model made on the spot writes anything at all."""
WARM_UP = 400
"""Steps of a warm-up where there was none."""
SMALLER = 10
"""How many times smaller a learning rate, or a movement, has to be that destroyed the policy."""
JUMP = 0.3
"""The rise of the share of failed episodes in one iteration that an update has caused."""
MOSTLY_BY_LENGTH = 0.5
"""The share of what replies that were cut earn less that is due to their length, as replies that
were not cut show, from which their length is the cause."""
CUT_AMONG_FAILED = 0.5
"""Share of failed replies that were cut, from which on their length is the cause."""


def endless(facts: Facts) -> Finding | None:
    """Say that many episodes are cut at the cap on turns."""
    if not _does_not_end(facts):
        return None
    share = facts.train(metric_names.CAPPED).end()
    env = f"the env {facts.scores.env!r}" if facts.scores is not None else "the env"
    return Finding(
        name="endless",
        sentence=(
            f"**{share:.0%} of the episodes were cut at the cap on turns lately "
            f"({metric_names.CAPPED}): the policy does not bring them to an end, or {env} does not "
            "end them.** See that step returns terminated = True where an episode is over. Replies "
            "that are no action count as turns, too. A long episode is more likely to fail, and "
            "rewards at the end of an episode that was cut are never given."
        ),
        setting=_shorter(facts),
    )


def some_capped(facts: Facts) -> Finding | None:
    """Say that some episodes are cut at the cap on turns."""
    if _does_not_end(facts):
        return None
    what = "episodes were cut at the cap on turns"
    return _many(facts, "capped", metric_names.CAPPED, SOME_CAPPED, what, "let the env end them")


def failing(facts: Facts) -> Finding | None:
    """Say that most episodes fail, or failed at one time, unless the env does not end them."""
    metric = metric_names.INVALID if _goes_on(facts) else metric_names.FAILED
    found = facts.train(metric)
    if _does_not_end(facts) or not len(found) or found.values.max() <= MOSTLY_FAILED:
        return None
    what = "replies" if _goes_on(facts) else "episodes"
    place = int((found.values > MOSTLY_FAILED).argmax())
    first = int(found.steps[place])
    if found.end() <= MOSTLY_FAILED:
        said = f"**More than half of the {what} of iteration {first} failed**; fewer later on."
        return Finding(name="failed-earlier", sentence=said)
    said = (
        f"**{found.end():.0%} of the {what} failed lately, more than half since iteration "
        f"{first} ({metric}): "
    )
    cut, role = _cut(facts)
    taught = facts.at("pretrain.steps", 0) + facts.at("warmup.steps", 0)
    if first == int(found.steps[0]) and taught < SHORT_WARM_UP and facts.is_nano(role):
        why = (
            "nothing has taught the reply format.** A model made on the spot needs a warm-up; this "
            f"one had {taught} steps."
        )
        setting = f"{'pretrain' if facts.at('pretrain') else 'warmup'}.steps={WARM_UP}"
    elif place and found.values[place] - found.values[place - 1] > JUMP:
        why = "an update destroyed the reply format.** Read the replies in `episodes/`."
        setting = _smaller_steps(facts)
    elif cut > CUT_AMONG_FAILED:
        why = f"{cut:.0%} of the replies that fail are cut at agents.{role}.max_tokens.**"
        setting = _longer(facts, role)
    elif first > int(found.steps[0]):
        why = "the updates destroy the reply format.** Read the replies in `episodes/`."
        setting = _smaller_steps(facts)
    else:
        why = "the policy has not learned the reply format.** Read the replies in `episodes/`."
        setting = _more_teaching(facts, role)
        if not setting:
            why += " No stage of this run teaches it: begin with a model that has learned it."
    return Finding(name="failing", sentence=said + why, setting=setting)


def some_failed(facts: Facts) -> Finding | None:
    """Say that some episodes failed."""
    if failing(facts):
        return None
    cure = "read their errors in `episodes/`"
    if _does_not_end(facts):
        cure = "end the episodes earlier, and then read the errors of the others in `episodes/`"
    return _many(facts, "failed", metric_names.FAILED, MANY_FAILED, "episodes failed", cure)


def cut(facts: Facts) -> Finding | None:
    """Say that many completions are cut, unless that costs them nothing."""
    if not _cutting_costs(facts):
        return None
    _, role = _cut(facts)
    what = "completions were cut at the token limit"
    cure = f"allow longer replies (agents.{role}.max_tokens) or teach shorter ones"
    return _many(facts, "cut", metric_names.CUT, MANY_CUT, what, cure, _longer(facts, role))


def _cutting_costs(facts: Facts) -> bool:
    """Whether replies that were cut earn less than others, and not because a long reply does.

    It is so where the recorded episodes have only one of both kinds of replies.
    """
    weights = facts.at("credit.rewards", {})
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for episode in facts.episodes:
        if episode.broken:
            continue
        paid = sum(mix_rewards(turn.rewards, weights) for turn in episode.own_turns)
        for turn in episode.own_turns:
            earned = paid if weights else episode.score
            length = float(len(turn.completion_ids))
            found[turn.finish_reason == "length"].append((length, earned))
    if min(map(len, found.values())) < 2:
        return True
    (long, low), (short, high) = (np.array(found[kind]).T for kind in (True, False))
    gap = high.mean() - low.mean()
    error = math.hypot(*(each.std(ddof=1) / math.sqrt(len(each)) for each in (low, high)))
    slope = np.cov(short, high)[0, 1] / max(short.var(ddof=1), 1e-12)
    by_length = -min(slope, 0.0) * (long.mean() - short.mean())
    return bool(gap > SURE * error and by_length < MOSTLY_BY_LENGTH * gap)


def _does_not_end(facts: Facts) -> bool:
    """Whether many episodes are cut at the cap, and not because their replies fail."""
    found, invalid = facts.train(metric_names.CAPPED), facts.train(metric_names.INVALID)
    if _goes_on(facts) and len(invalid) and invalid.end() > MOSTLY_FAILED:
        return False
    return len(found) > 0 and found.end() > MANY_CAPPED


def _goes_on(facts: Facts) -> bool:
    """Whether episodes go on after a reply that is no action, so that they do not fail by it."""
    return any(facts.at(f"agents.{role}.invalid_reply") == "continue" for role in facts.roles)


def _many(
    facts: Facts, name: str, metric: str, limit: float, what: str, cure: str, setting: str = ""
) -> Finding | None:
    found = facts.train(metric)
    if not len(found) or found.end() <= limit:
        return None
    said = f"{found.end():.0%} of the {what} lately ({metric}): {cure}."
    return Finding(name=name, sentence=said, setting=setting)


def _cut(facts: Facts) -> tuple[float, str]:
    """Return the share of failed replies that were cut, and the role that is cut most."""
    failed = [
        (trajectory.role, turn.finish_reason == "length")
        for episode in facts.episodes
        for trajectory in episode.trajectories
        for turn in trajectory.turns
        if turn.error is not None and not trajectory.player
    ]
    ((role, _),) = Counter(r for r, was_cut in failed if was_cut).most_common(1) or [
        (facts.roles[0], 0)
    ]
    return sum(was_cut for _, was_cut in failed) / max(len(failed), 1), role


def _longer(facts: Facts, role: str) -> str:
    where = f"agents.{role}.max_tokens"
    return f"{where}={2 * facts.at(where, 64)}"


def _more_teaching(facts: Facts, role: str) -> str:
    """Return a setting that lengthens the supervised stage; empty if a model was given as it is."""
    for stage in ("warmup", "pretrain"):
        steps = facts.at(f"{stage}.steps", 0)
        if steps:
            return f"{stage}.steps={2 * steps}"
    return f"warmup.steps={WARM_UP}" if facts.is_nano(role) else ""


def _shorter(facts: Facts) -> str:
    """Return a cap of half the mean turns of an episode, if episodes are long."""
    turns, episodes = facts.train(metric_names.TURNS), facts.train(metric_names.EPISODES)
    if not len(turns) or not len(episodes):
        return ""
    cap = round(turns.end() / episodes.end() / 2)
    return f"env.max_turns={cap}" if cap >= FEWEST_TURNS else ""


def _smaller_steps(facts: Facts) -> str:
    """Return a setting with far smaller updates: these have destroyed the policy."""
    rate = facts.at("optimizer.lr", "auto")
    if rate == "auto":
        return f"optimizer.movement={facts.movement / SMALLER:.2g}"
    return f"optimizer.lr={rate / SMALLER:.2g}"
