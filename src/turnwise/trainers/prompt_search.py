"""Policy search: a proposer names a policy, it is played, and the history grows.

Provides `search`, the loop of Prompted Policy Search (arXiv:2511.21928) and of the methods that it
is compared with. No weights change. One of the best policies is played again now and then, because
a mean over few episodes flatters the best of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from turnwise.errors import RunError
from turnwise.runs import StopSignal
from turnwise.search.config import BudgetConfig, PriceConfig
from turnwise.search.history import HistoryLog, Try
from turnwise.search.methods import Learner, Method, Proposer
from turnwise.search.methods.base import unknown_draw
from turnwise.search.problem import Problem
from turnwise.search.space import Params
from turnwise.seeding import generator
from turnwise.trainers.progress import Progress

PHASE = "search"
WARM_UP = "warm-up"


def search(
    method: Method,
    problem: Problem,
    budget: BudgetConfig,
    log: HistoryLog,
    *,
    seed: int,
    steps: int = 0,
    price: PriceConfig | None = None,
    progress: Progress,
    stop: StopSignal,
) -> bool:
    """Search until the budget is spent; return False if a signal stopped it.

    It goes on with the history of the log. Nothing that is in the log is played again.

    Args:
        method: proposes policies, or learns.
        problem: plays them.
        budget: how many episodes.
        log: the history.
        seed: draws the policies of the warm-up.
        steps: the most steps of a policy's first episode that are kept.
        price: of the tokens of model calls.
        progress: shows what happens.
        stop: says whether to stop.

    Raises:
        RunError: if a model gave no policy too many times in a row, or its endpoint fails.
    """
    parts = _Parts(problem, budget, log, steps, price or PriceConfig(), progress, stop)
    if isinstance(method, Learner):
        return parts.learn(method)
    if method.warms_up and not parts.warm_up(seed):
        return False
    return parts.propose(method)


def evaluations_of(method: Method, budget: BudgetConfig) -> int:
    """Return the evaluations of a method, so that all methods play equally many episodes.

    A method without a warm-up has the episodes of the warm-up as well, in whole evaluations.
    """
    if not isinstance(method, Learner) and method.warms_up:
        return budget.iterations
    return budget.iterations + budget.warmup // budget.episodes


class _Parts:
    """What the steps of a search share."""

    def __init__(
        self,
        problem: Problem,
        budget: BudgetConfig,
        log: HistoryLog,
        steps: int,
        price: PriceConfig,
        progress: Progress,
        stop: StopSignal,
    ) -> None:
        self._problem, self._budget, self._log = problem, budget, log
        self._steps, self._price, self._progress, self._stop = steps, price, progress, stop

    def warm_up(self, seed: int) -> bool:
        """Play random policies once each, no policy twice; return False if a signal came."""
        space, history = self._problem.space, self._log.history
        while history.warmed_up < self._budget.warmup and not history.exhausts(space):
            if self._stop.requested is not None:
                return False
            number = history.warmed_up
            rng = generator(seed, "search warm-up", number)
            params = unknown_draw(history, space, rng, partial(space.drawn, rng))
            name = f"warm-up {number}"
            played = self._problem.play(params, episodes=1, name=name, first_steps=self._steps)
            self._log.add(
                Try(
                    slot=number - self._budget.warmup,
                    source="warm-up",
                    params=params,
                    returns=list(played.returns),
                    steps=played.steps,
                )
            )
        return True

    def propose(self, method: Proposer) -> bool:
        """Play what is proposed, and the best again; return False if a signal came."""
        history, total = self._log.history, evaluations_of(method, self._budget)
        self._progress.begin(PHASE, done=history.slots, total=total)
        while history.slots < total:
            if self._stop.requested is not None:
                return False
            slot = history.slots
            again = self._played_again(slot, total)
            if again is not None:
                played = self._problem.play(
                    again, episodes=self._budget.episodes, name=f"evaluation {slot}"
                )
                self._log.play_again(slot, again, played.returns)
            else:
                self._try(method, slot)
            self._tell(history.slots)
        return True

    def learn(self, learner: Learner) -> bool:
        """Let a learner learn; return False if a signal came.

        A learner that was stopped learns anew from the seed, which gives the same episodes; those
        that the log has are compared with it.
        """
        history, each = self._log.history, self._budget.episodes
        total = evaluations_of(learner, self._budget)
        known = list(history.tries)
        self._progress.begin(PHASE, done=history.slots, total=total)
        done = 0

        def record(params: Params | None, returns: Sequence[float]) -> bool:
            nonlocal done
            returns = [self._problem.checked(value) for value in returns]
            if done < len(known):
                self._compare(known[done], params, returns, done)
            else:
                self._log.add(Try(slot=done, source="search", params=params, returns=list(returns)))
                self._tell(history.slots)
            done += 1
            return self._stop.requested is None

        learner.learn(total * each, each, record)
        return self._stop.requested is None

    def _try(self, method: Proposer, slot: int) -> None:
        """Play what a method proposes, or lose the slot."""
        with self._stop.at_once():  # every call is in the log before it is used
            params = method.propose(self._log, slot)
        if params is None:
            self._log.lose(slot)
            if self._log.history.lost_in_a_row >= self._budget.lost:
                raise RunError(
                    f"the model gave no policy in {self._budget.lost} iterations in a row: look "
                    f"at its replies in '{self._log.path}', and raise max_tokens, shorten the "
                    "history or choose another model"
                )
            return
        played = self._problem.play(
            params, episodes=self._budget.episodes, name=f"evaluation {slot}",
            first_steps=self._steps,
        )  # fmt: skip
        self._log.add(
            Try(
                slot=slot,
                source="search",
                params=params,
                returns=list(played.returns),
                steps=played.steps,
            )
        )

    def _played_again(self, slot: int, total: int) -> Params | None:
        """Return the policy that is played again in a slot; None where a new one is tried.

        A small task has no new one left after some evaluations.
        """
        budget, history = self._budget, self._log.history
        if not (budget.plays_again(slot, total) or history.exhausts(self._problem.space)):
            return None
        best = [each for each in history.ranked() if each.params is not None]
        if not best:
            return None
        return min(best[: budget.best], key=lambda each: len(each.returns)).params

    def _compare(
        self, known: Try, params: Params | None, returns: Sequence[float], number: int
    ) -> None:
        """Check that a learner did again what the log says."""
        if known.params != params or known.returns != list(returns):
            raise RunError(
                f"'{self._log.path}': learning anew gave other episodes than the log has in "
                f"evaluation {number}, as other versions of packages do: begin in another folder"
            )

    def _tell(self, done: int) -> None:
        """Show a finished slot."""
        history = self._log.history
        shown = {"search/score": history.tries[-1].mean} if history.tries else {}
        if history.best_so_far:
            shown["search/best"] = history.best_so_far[-1]
        spent = history.spent
        if spent.calls:
            shown["search/tokens"] = float(spent.prompt_tokens + spent.completion_tokens)
        cost = cost_of(spent.prompt_tokens, spent.completion_tokens, self._price)
        if cost:
            shown["search/cost"] = cost
        self._progress.advance(done, shown)


def cost_of(prompt_tokens: int, completion_tokens: int, price: PriceConfig) -> float:
    """Return the price of tokens.

    Example:
        >>> cost_of(2_000_000, 100_000, PriceConfig(prompt=2.5, completion=10.0))
        6.0
    """
    return (prompt_tokens * price.prompt + completion_tokens * price.completion) / 1e6
