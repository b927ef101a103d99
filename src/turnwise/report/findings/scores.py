"""Findings about the scores of a run: below a baseline, broken, or worse than they were."""

from __future__ import annotations

import math

from turnwise.report.findings.facts import Facts, Finding
from turnwise.report.findings.prompts import more_history
from turnwise.runs import metric_names

BELOW = 3.0
"""Standard errors below random play from which the weights are called worse than none."""
BETTER = 3.0
"""Standard errors by which the other decoding is better that are a finding."""
CIRCLES = 0.05
"""The share of test episodes that end in a circle from which it is a finding."""
SHORT, LEAST_SHORT = 3.0, 0.02
"""Standard errors, and score, by which the steps that pay most fall short that are a finding."""
SLIPPED = 3.0
"""Standard errors between the best and the last validation that are a finding."""


def no_better_than_baselines(facts: Facts) -> Finding | None:
    """Compare with the best policy below the optimum, the warm-up included."""
    scores = facts.scores
    if scores is None:
        return None
    optimum = scores.baselines.get(metric_names.OPTIMUM, float("inf"))
    rivals = {name: level for name, level in scores.baselines.items() if level < optimum}
    if not rivals or (metric_names.OPTIMUM in scores.baselines and facts.solved):
        return None
    name, level = max(rivals.items(), key=lambda item: item[1])
    lead = scores.lead_over(name)
    if lead.difference - 2 * lead.stderr > 0:
        return None
    return Finding(
        name="no-better-than-baseline",
        sentence=(
            f"The score {scores.score:.3f} is not clearly above the baseline {name!r} at "
            f"{level:.3f}: its lead is {lead.difference:.3f} {scores.error_text(lead.stderr)}."
        ),
    )


def below_random(facts: Facts) -> Finding | None:
    """Say that the policy is clearly worse than random play in one or both decodings."""
    sentence = _below_random(facts)
    return Finding(name="below-random", sentence=sentence) if sentence else None


def _below_random(facts: Facts) -> str:
    scores = facts.scores
    if scores is None or metric_names.RANDOM not in scores.baselines:
        return ""
    level, error = (
        scores.baselines[metric_names.RANDOM],
        scores.baselines_stderr[metric_names.RANDOM],
    )
    below = {
        name: score
        for name, (score, own) in scores.by_decoding.items()
        if score < level - BELOW * math.hypot(own, error)
    }
    if scores.decoding in below:
        return (
            f"**The score {scores.score:.3f} is below random play's {level:.3f}**: these weights "
            "are worse than none. See `turnwise docs why-is-it-not-learning`."
        )
    if "greedy" in below:
        return (
            f"Played greedily the policy scores {below['greedy']:.3f}, below random play's "
            f"{level:.3f}: the most probable action of a nearly uniform policy is the same almost "
            "everywhere. Sample from it, as the score does, or train it further."
        )
    if "sampled" in below:
        return (
            f"Sampled at the training temperature the policy scores {below['sampled']:.3f}, below "
            f"random play's {level:.3f}: play it greedily, as the score does."
        )
    return ""


def broken(facts: Facts) -> Finding | None:
    """Say that test episodes were ended by the env or the engine."""
    if facts.scores is None or not facts.scores.broken:
        return None
    cause = f"Most often: {facts.scores.broken_by}. " if facts.scores.broken_by else ""
    return Finding(
        name="broken",
        sentence=(
            f"{facts.scores.broken} test episodes were ended by the env or the engine and count "
            f"0, those of baselines too: scores are too low. {cause}`turnwise check` finds what "
            "an env does wrong."
        ),
    )


def other_decoding(facts: Facts) -> Finding | None:
    """Say that the decoding that validation did not choose has a clearly better score."""
    scores = facts.scores
    if scores is None:
        return None
    (chosen, (score, own)), (other, (better, error)) = scores.by_decoding.items()
    if better - score <= BETTER * math.hypot(own, error):
        return None
    return Finding(
        name="other-decoding",
        sentence=(
            f"The same weights score {better:.3f} with the {other} decoding, above the {chosen} "
            f"one's {score:.3f}, which validation chose or the recipe sets."
        ),
        setting=f"evaluation.decoding={other}",
    )


def circling(facts: Facts) -> Finding | None:
    """Say that the greedy policy goes round in circles, which more of the past may end."""
    scores = facts.scores
    if scores is None or not scores.circling:
        return None
    role, count = max(scores.circling.items(), key=lambda item: item[1])
    if count < CIRCLES * scores.tasks:
        return None
    return Finding(
        name="circling",
        sentence=(
            f"In {count} of {scores.tasks} greedy test episodes {role} saw one prompt again and "
            "again until the episode was cut: equal prompts have equal greedy answers. Episodes "
            "that ended scored better. Let prompts show what was done before, by their history or "
            "in Observation.text."
        ),
        setting=more_history(facts, role),
    )


def myopic(facts: Facts) -> Finding | None:
    """Say that the steps that pay most do not lead to the best score."""
    scores = facts.scores
    if scores is None or not scores.myopic:
        return None
    best = scores.baselines.get(metric_names.OPTIMUM, 1.0 if facts.bounded else None)
    level, error = scores.myopic["score"], scores.myopic["stderr"]
    if best is None or best - level <= max(SHORT * error, LEAST_SHORT):
        return None
    return Finding(
        name="myopic",
        sentence=(
            "Siblings are compared by what their own step earns. A player that always takes the "
            f"step that earns most scores {level:.3f} {scores.error_text(error)} on "
            f"{scores.myopic['tasks']:.0f} test tasks, below {best:.3f}: training leads to "
            "such play. Pay each step by how much nearer it is to the end of a best solution, or "
            "compare siblings by what follows them (`turnwise docs why-is-it-not-learning`)."
        ),
    )


def non_finite(facts: Facts) -> Finding | None:
    """Say that optimizer steps were skipped."""
    count = int(facts.train(metric_names.SKIPPED).values.sum())
    if not count:
        return None
    rate = facts.at("optimizer.lr", "auto")
    return Finding(
        name="not-finite",
        sentence=(
            f"{count} optimizer steps were skipped for gradients that were not finite "
            f"({metric_names.SKIPPED})."
        ),
        setting=(
            f"optimizer.movement={facts.movement / 4:.2g}"
            if rate == "auto"
            else f"optimizer.lr={rate / 2:.2g}"
        ),
    )


def validation_slipped(facts: Facts) -> Finding | None:
    """Say that the last weights validate worse than the best ones."""
    found = facts.train(metric_names.VALIDATION)
    if facts.scores is None or len(found) < 2 or facts.scores.stderr == 0:
        return None
    best = int(found.values.argmax())
    fall = float(found.values[best] - found.values[-1])
    if fall <= SLIPPED * facts.scores.stderr:
        return None
    return Finding(
        name="validation-fell",
        sentence=(
            f"Validation fell by {fall:.3f} after its best at iteration {found.steps[best]} "
            f"({metric_names.VALIDATION}): the best checkpoint is reported, not the last."
        ),
    )
