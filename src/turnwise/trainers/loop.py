"""What the loops of all algorithms share: the start, the clock, playing, validation, the end.

Provides `begun`, `play_groups`, `validate`, `solved`, `reached`, `time_share`, `training_share`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from turnwise.evaluation import evaluate
from turnwise.tasks.openings import length_of
from turnwise.trainers.failures import stop_if_broken
from turnwise.trainers.plan import Plan
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.validation import Validation, save, validate_policy
from turnwise.types import Episode, TaskVisit

PHASE = "train"
EXAMS = 1_000_000_000
"""Added to the numbers of evaluations for the curriculum: validation has other draws."""
BEFORE_UPDATES = "seconds_before_updates"
"""The name of the run's total of seconds before the first iteration began."""


def begun(session: Session, plan: Plan, resumed: Resumed | None) -> tuple[int, bool]:
    """Return the number of the first iteration to come, and whether training is over before it."""
    iteration, done = 0, False
    if resumed is not None:
        for trained in session.trained.values():
            resumed.restore(trained)
        iteration, done = resumed.step, reached(plan, resumed.score)
    elif plan.validate_start or time_share(session, plan) >= 1:
        done = validate_start(session, plan)
    if BEFORE_UPDATES not in session.totals:
        seconds = session.totals.get("seconds", 0.0)
        session.totals[BEFORE_UPDATES] = session.group.broadcast(seconds)
    return iteration, done or time_share(session, plan) >= 1


def play_groups(session: Session, plan: Plan, visits: Sequence[TaskVisit]) -> list[Episode]:
    """Play every visit `group_size` times, all side by side.

    Raises:
        EnvError: if an iteration's episodes were all broken by the env; they are recorded.
    """
    if session.opponents is not None:
        visits = session.opponents.assigned(visits)
    episodes = session.runner.collect(visits, "train", group_size=plan.trainer.group_size)
    if visits[0].visit == 0:  # refills are judged with the iteration that they belong to
        stop_if_broken(session, visits[0].iteration, episodes)
    session.engine.end_iteration()
    session.count_engine()
    restarted = sum(bool(episode.opening) for episode in episodes)
    replayed = sum(length_of(visit.opening) for visit in visits)
    played = sum(turn.action is not None for each in episodes for turn in each.sampled)
    played += sum(episode.trial_steps for episode in episodes)
    restarted += sum(episode.resets for episode in episodes)
    session.count(episodes=len(episodes), env_steps=played + replayed, state_resets=restarted)
    return episodes


def validate(
    session: Session, plan: Plan, iteration: int, *, ends: bool = False
) -> Validation | None:
    """Return the validation of the weights if one is due after `iteration` iterations.

    It is due every `validate_every` iterations, and where training `ends`. An exam of the
    curriculum is held before it, if one is due.
    """
    examine(session, plan, iteration)
    if iteration % plan.validate_every and not ends:
        return None
    tasks = session.validation.take(plan.validation_tasks)
    return validate_policy(
        session, tasks, exact=plan.exact, decoding=plan.decoding, iteration=iteration
    )


def examine(session: Session, plan: Plan, iteration: int) -> None:
    """Let the policy play the tasks that the curriculum wants it to be evaluated on, if any."""
    tasks = session.curriculum.exam(iteration)
    if not tasks:
        return
    greedy = plan.decoding == "greedy"
    found = evaluate(session.eval_runner, tasks, greedy=greedy, number=EXAMS + iteration)
    session.engine.end_iteration()
    session.count_engine()
    session.take_sampling()  # as in validation
    session.curriculum.judge(found.episodes)


def validate_start(session: Session, plan: Plan) -> bool:
    """Validate and save the weights that training begins with; return whether they are enough."""
    began = time.perf_counter()
    found = validate(session, plan, 0)
    assert found is not None, "0 is a multiple of every period"
    session.record(PHASE, 0, found.metrics, began)
    save(session, PHASE, 0, found)
    return reached(plan, found.score)


def solved(plan: Plan, played: Sequence[Episode]) -> bool:
    """Whether an episode has the score at which training stops."""
    wanted = plan.trainer.stop_at_score
    return wanted is not None and any(each.score >= wanted for each in played)


def reached(plan: Plan, score: float | None) -> bool:
    """Whether a validation score is the target at which training stops."""
    return plan.target is not None and score is not None and score >= plan.target


def time_share(session: Session, plan: Plan, unrecorded: float = 0.0) -> float:
    """Return the share of the run's time that is over; 0 without a limit.

    It is the same in all processes. `unrecorded` are seconds that are not part of the totals yet.
    """
    if plan.trainer.minutes is None:
        return 0.0
    seconds = session.totals.get("seconds", 0.0) + unrecorded
    return session.group.broadcast(min(1.0, seconds / (60 * plan.trainer.minutes)))


def training_share(session: Session, plan: Plan) -> float:
    """Return the share of the time of the iterations that is over; 0 without a limit.

    What changes over the iterations begins with the first of them, not with the warm-up or the
    validation before.
    """
    if plan.trainer.minutes is None:
        return 0.0
    before = session.totals[BEFORE_UPDATES] / (60 * plan.trainer.minutes)
    return max(0.0, (time_share(session, plan) - before) / max(1 - before, 1e-9))
