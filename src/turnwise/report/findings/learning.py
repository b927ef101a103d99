"""Findings about the policy gradient: groups without differences, actions without reasons, steps.

None of them is one where the score is at the top.
"""

from __future__ import annotations

import math

from turnwise.credit.schemes import DEFAULT, SCHEMES
from turnwise.policies.auto_rate import LARGEST_RISE, TOO_NEAR
from turnwise.report.findings.facts import Facts, Finding, since
from turnwise.report.policies import policy_names
from turnwise.runs import metric_names

FEW_MIXED = 0.1
"""Share of groups with different returns below which batches have little gradient."""
LITTLE = 0.02
"""The least state dependence that shows that the policy uses what it observes."""
CONSTANT = 0.8
"""The share of one action from which a policy is nearly constant."""
ENTROPY_GONE = 0.02
"""Entropy per token, in nats, below which a policy hardly explores."""
MANY_UNDONE = 0.5
"""Share of the latest iterations with an update that was undone that is a finding."""


def equal_groups(facts: Facts) -> Finding | None:
    """Say that no group differs, unless all are solved, or equal groups give a gradient, too."""
    found = facts.train(metric_names.MIXED)
    if not len(found) or facts.solved or found.end() >= FEW_MIXED or _by_turn(facts):
        return None
    if facts.at("trainer.max_turns") and facts.train(metric_names.RETURN_STD).end() > 0:
        return None  # what episodes that were left go on with is not in their returns
    if not facts.bounded and facts.risen:
        return None  # a score without an upper bound may be at its top
    return Finding(
        name="equal-groups",
        sentence=(
            f"Only {found.end():.0%} of the latest groups had different returns "
            f"({metric_names.MIXED}, below {FEW_MIXED:.0%} since iteration "
            f"{since(found, FEW_MIXED)}), and the others gave no gradient. {_how_equal(facts)}: "
            f"the score is {facts.score}."
        ),
        setting=_more_difference(facts, found.end()),
    )


def _by_turn(facts: Facts) -> bool:
    """Whether the credit scheme judges turns by themselves, and not by the group alone."""
    scheme = SCHEMES.get(facts.at("credit.scheme", DEFAULT))
    return scheme is not None and scheme.by_turn is not None


def _how_equal(facts: Facts) -> str:
    """Say whether the latest groups without a difference have the best score, or one below it.

    The best score is 1 where scores are bounded, otherwise the best one of the latest episodes.
    """
    groups: dict[object, list[float]] = {}
    for episode in facts.episodes:
        if not episode.broken:
            groups.setdefault(episode.id.visit_id, []).append(episode.score)
    equal = [min(group) for group in groups.values() if min(group) == max(group)]
    every = [score for group in groups.values() for score in group]
    if not equal or (not facts.bounded and min(every) == max(every)):
        return "They are equally good or equally bad"
    best = 1.0 if facts.bounded else max(every)
    share = sum(score >= best for score in equal) / len(equal)
    if share == 0:
        return "They are not solved but equally bad"
    rest = ", the rest equally bad" if share < 1 else ""
    return f"{share:.0%} of them are equally good, with the score {best:.3g}{rest}"


def _more_difference(facts: Facts, mixed: float) -> str:
    """Return a setting that makes groups differ."""
    entropy = facts.train(metric_names.ENTROPY)
    if _commonest(facts)[1] > CONSTANT or (len(entropy) and entropy.end() < ENTROPY_GONE):
        return facts.explores_more
    scheme = SCHEMES.get(facts.at("credit.scheme", DEFAULT))
    refills = facts.at("trainer.dynamic_sampling", False)
    if mixed > 0 and not refills and scheme is not None and scheme.by_visit:
        return "trainer.dynamic_sampling=true"
    return f"trainer.group_size={2 * facts.at('trainer.group_size', 8)}"


def ignores_state(facts: Facts) -> Finding | None:
    """Say that actions do not depend on the observation, and the score shows nothing else.

    A policy first learns which action is good on average; this raises its return. The scores of
    constant policies tell whether that is all. Where they are not known, a score that has risen is
    enough, unless one action is nearly all that the policy does.
    """
    found = facts.train(metric_names.STATE_DEPENDENCE)
    if len(found) < 3 or facts.solved:
        return None
    action, share = _commonest(facts)
    constant = share > CONSTANT
    mean, level = float(found.lately().mean()), _level(facts, constant)
    if mean >= LITTLE or not level:
        return None
    return Finding(
        name="ignores-observation",
        sentence=(
            "The policy does not act on what it observes: two of its actions are equal only "
            f"{max(mean, 0.0):.1%} more often in equal states than in different ones "
            f"({metric_names.STATE_DEPENDENCE}; {LITTLE:.0%} would be little)"
            + (f", and {share:.0%} of them are {action}" if constant else "")
            + f". {level}."
        ),
        setting=facts.explores_more if constant else facts.more_updates or facts.more_tasks,
    )


def _level(facts: Facts, constant: bool) -> str:
    """Say that the score is not above a constant's, or has not risen; "" where it is, or has.

    Of a policy that is nearly `constant`, say so of a score that has risen, too.
    """
    scores = facts.scores
    if scores is not None and scores.knows_constants:
        rival = scores.unbeaten
        if not rival:
            return ""
        level = scores.baselines[rival]
        return f"The score {scores.score:.3f} is not clearly above that of {rival!r}, {level:.3f}"
    if not (facts.risen or facts.return_risen):
        return f"The score has not risen: {facts.score}"
    always = "One action everywhere is all that has raised the score"
    return f"{always}: {facts.score}" if constant else ""


def _commonest(facts: Facts) -> tuple[str, float]:
    """Return the commonest action of the latest iteration and its share."""
    last = next((r for r in reversed(facts.records) if r["phase"] == metric_names.TRAIN), {})
    shares = [
        (value, name.removeprefix("action/"))
        for name, value in last.items()
        if name.startswith("action/") and value is not None
    ]
    share, action = max(shares, default=(0.0, ""))
    return action, share


def entropy_gone(facts: Facts) -> list[Finding]:
    """Name each policy that hardly explores although the score has not risen.

    A score that one action everywhere has raised (`ignores_state`) has not risen for this purpose.
    """
    if facts.solved or (facts.risen and ignores_state(facts) is None):
        return []
    names = policy_names(facts.records)
    checks = [(f"{name}/{metric_names.ENTROPY}", f" of policy {name!r}") for name in names]
    found = (_gone(facts, *check) for check in checks or [(metric_names.ENTROPY, "")])
    return [finding for finding in found if finding is not None]


def _gone(facts: Facts, metric: str, of_policy: str) -> Finding | None:
    found = facts.train(metric)
    if not len(found) or found.end() >= ENTROPY_GONE:
        return None
    return Finding(
        name="entropy",
        sentence=(
            f"The entropy{of_policy} collapsed before the score rose: {found.end():.3f} nats a "
            f"token lately, {found.start():.3f} at the start ({metric}). The score is "
            f"{facts.score}."
        ),
        setting=facts.explores_more,
    )


def movement_bound(facts: Facts) -> list[Finding]:
    """Name each policy whose updates are often undone, or cannot move it as far as wanted."""
    if facts.solved or facts.at("optimizer.lr", "auto") != "auto":
        return []
    found = (check(facts, prefix) for prefix in facts.prefixes for check in (_undone, _unmoved))
    return [finding for finding in found if finding is not None]


def _undone(facts: Facts, prefix: str) -> Finding | None:
    """Say that many of the latest updates were undone; the first one looks for its rate."""
    undone = facts.train(f"{prefix}{metric_names.UNDONE}")
    if len(undone) < 4:
        return None
    latest = undone.lately()[-(len(undone) - 1) :]
    share = float((latest > 0).mean())
    if share < MANY_UNDONE:
        return None
    return Finding(
        name="undone-updates",
        sentence=(
            f"{share:.0%} of the last {len(latest)} updates{_of(prefix)} were undone and computed "
            f"again, {latest.mean():.1f} times in the mean ({prefix}{metric_names.UNDONE}): they "
            "moved the policy too far, by different amounts. More episodes make updates more "
            "alike."
        ),
        setting=facts.more_tasks,
    )


def _unmoved(facts: Facts, prefix: str) -> Finding | None:
    """Say that updates move a policy far less than wanted at the largest rate there is."""
    at_cap = facts.train(f"{prefix}{metric_names.AT_CAP}")
    if not len(at_cap) or at_cap.lately().min() < 1:
        return None
    moved = float(facts.train(f"{prefix}{metric_names.MOVEMENT}").lately().mean())
    wanted = float(facts.train(f"{prefix}{metric_names.WANTED}").lately().mean())
    if moved >= TOO_NEAR * wanted:
        return None
    rate = float(facts.train(f"{prefix}{metric_names.RATE}").values[-1])
    faster = rate * min(math.sqrt(wanted / max(moved, 1e-12)), LARGEST_RISE)
    return Finding(
        name="too-small-updates",
        sentence=(
            f"Updates{_of(prefix)} move the policy by {moved:.2g} nats per decision, where "
            f"{wanted:.2g} are wanted ({prefix}{metric_names.MOVEMENT}), although the learning "
            f'rate is the largest that "auto" allows. The score is {facts.score}.'
        ),
        setting=f"optimizer.lr={faster:.1e}",
    )


def _of(prefix: str) -> str:
    return f" of policy {prefix[:-1]!r}" if prefix else ""
