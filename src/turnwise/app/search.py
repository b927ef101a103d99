"""A search for the parameters of a policy, from its settings to its result.

Provides `search_policy` and `resume_search`, which `turnwise search` calls. The loop is
`turnwise.trainers.prompt_search`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from turnwise.app.lifecycle import RUNS
from turnwise.app.search_models import RUN_ATTEMPTS, Endpoint, RunModel
from turnwise.errors import Interrupted, RunError, unknown_name
from turnwise.report.search import REPORT, write_search_report
from turnwise.runs import DiskErrors, StopSignal
from turnwise.runs.files import write_atomically
from turnwise.search.config import SearchConfig
from turnwise.search.cost import estimate
from turnwise.search.folder import (
    Result,
    open_folder,
    read_config,
    read_result,
    write_result,
)
from turnwise.search.history import History, HistoryLog
from turnwise.search.methods import METHODS, Learner, Method
from turnwise.search.problem import Problem
from turnwise.search.prompted import PromptedSearch
from turnwise.search.prompts import prompt_text
from turnwise.search.space import Params
from turnwise.search.tasks import find_task
from turnwise.trainers.progress import Progress, Silent
from turnwise.trainers.prompt_search import cost_of, search

MANIFEST = "manifest.json"
"""What the policy of a run was trained on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A finished search: its folder and its result."""

    folder: Path
    result: Result


def search_policy(
    config: SearchConfig,
    folder: Path | None = None,
    *,
    root: Path = RUNS,
    progress: Progress | None = None,
) -> Found:
    """Search, score the policy that is returned on fresh episodes, and write the result.

    Args:
        config: the search.
        folder: new, or of the same search, which goes on; None makes one in `root`.
        root: where new folders go.
        progress: who watches.

    Raises:
        ConfigError: if the task or the method is unknown, or they do not fit each other.
        RunError: if the folder is in use or of another search, or the endpoint fails.
        Interrupted: if a signal stopped it; the search can go on.
    """
    show, began = progress or Silent(), time.monotonic()
    with ExitStack() as open_parts:
        problem = Problem(find_task(config.task), config.seed, config.relabel)
        open_parts.callback(problem.close)
        method = _method(config, problem, open_parts)
        place = open_parts.enter_context(open_folder(config, folder, root))
        open_parts.enter_context(DiskErrors(partial(_go_on, place)))
        known = read_result(place)
        if known is not None:
            if not (place / REPORT).is_file():  # a kill came between the two
                write_search_report(place)
            return Found(folder=place, result=known)
        log = HistoryLog(place, problem.space)
        open_parts.callback(log.close)
        if isinstance(method, _Trained):
            write_atomically(place / MANIFEST, json.dumps(method.manifest, indent=2) + "\n")
        if config.endpoint is not None:
            _tell_cost(config, problem, log.history, show)
        _searched(config, method, problem, log, place, show)
        result = _result(config, method, problem, log.history, began)
        write_result(place, result)
        write_search_report(place)
        return Found(folder=place, result=result)


def resume_search(folder: Path, *, progress: Progress | None = None) -> Found:
    """Go on with the search in a folder; of a finished one, return what it found.

    Raises:
        RunError: if there is none.
        TurnwiseError: as `search_policy`.
    """
    return search_policy(read_config(folder), folder, progress=progress)


def _method(config: SearchConfig, problem: Problem, open_parts: ExitStack) -> Method:
    """Return who proposes."""
    if config.method is not None:
        if config.method not in METHODS:
            raise unknown_name("method", config.method, METHODS)
        return METHODS[config.method](problem, config.seed)
    if config.run is not None:
        model = RunModel(
            config.run, config.seed, problem.space, config.task, config.control, start=config.start
        )
        open_parts.callback(model.close)
        return _Trained(model)
    assert config.endpoint is not None, "one of them is given"

    def render(history: History, slot: int) -> str:
        return prompt_text(
            problem,
            history,
            prompt=config.prompt,
            shown=config.shown,
            iteration=slot + 1,
            iterations=config.budget.iterations,
            episodes=config.budget.episodes,
            refused=history.refused,
        )

    endpoint = Endpoint(config.endpoint, config.seed, render)
    open_parts.callback(endpoint.close)
    return PromptedSearch(problem.space, ask=endpoint.ask, retries=config.prompt.retries)


class _Trained(PromptedSearch):
    """The policy of a run as the searcher, and what it was trained on."""

    def __init__(self, model: RunModel) -> None:
        levels = model.levels
        super().__init__(
            levels.space, ask=model.ask, retries=RUN_ATTEMPTS - 1, read=levels.read, failures=0
        )
        self.manifest = model.manifest


def _searched(
    config: SearchConfig,
    method: Method,
    problem: Problem,
    log: HistoryLog,
    folder: Path,
    show: Progress,
) -> None:
    """Spend the budget.

    Raises:
        Interrupted: if a signal came first.
        RunError: with the command that goes on, if the endpoint fails.
    """
    shows_steps = config.endpoint is not None and config.prompt.kind == "props+"
    steps = config.prompt.steps if shows_steps and problem.space.choices else 0
    with StopSignal(show.note) as stop:
        try:
            finished = search(
                method, problem, config.budget, log, seed=config.seed, steps=steps,
                price=config.price, progress=show, stop=stop,
            )  # fmt: skip
        except RunError as error:
            if isinstance(method, Learner):
                raise
            raise RunError(f"{error}: {_go_on(folder)}") from error
        except KeyboardInterrupt:
            finished = False
    if not finished:
        raise Interrupted(f"{_go_on(folder)}, from iteration {log.history.slots}", folder)


def _go_on(folder: Path) -> str:
    return f"`turnwise search --resume {folder}` goes on"


def _tell_cost(config: SearchConfig, problem: Problem, history: History, show: Progress) -> None:
    """Tell what a search at an endpoint will ask for, before it does."""
    assert config.endpoint is not None, "it is asked"
    found = estimate(config, problem, history)
    most = found.calls * (config.prompt.retries + 1)
    text = (
        f"{config.endpoint.model} at {config.endpoint.base_url}: {found.calls:,} calls, about "
        f"{found.prompt_tokens:,} tokens of prompts and {found.completion_tokens:,} of replies"
    )
    cost = cost_of(found.prompt_tokens, found.completion_tokens, config.price)
    text += f", for about {cost:.2f}" if cost else "; set the prices to see what they cost"
    if config.prompt.retries:
        text += f"; at most {most:,} calls, if no reply can be used"
    show.note(text)


def _result(
    config: SearchConfig, method: Method, problem: Problem, history: History, began: float
) -> Result:
    """Score the returned policy on fresh episodes, and sum up the costs.

    Raises:
        RunError: if nothing was tried.
    """
    if not history.tries:
        raise RunError(
            "no policy was tried: the model gave none; look at its replies in the history"
        )
    best = history.tries[-1] if isinstance(method, Learner) else history.best()
    actor = method.actor() if isinstance(method, Learner) else None
    if actor is None:
        assert best.params is not None, "proposers propose parameters"
        actor = problem.policy.actor(best.params)
    fresh = np.array(problem.play_actor(actor, problem.fresh_seeds(config.budget.fresh)).returns)
    spent = history.spent
    return Result(
        task=config.task, proposer=config.proposer, seed=config.seed,
        params=None
        if best.params is None
        else problem.space.plain(problem.policy.own(best.params)),
        score=best.mean, stderr=best.stderr, score_episodes=len(best.returns),
        fresh=float(fresh.mean()), fresh_stderr=float(fresh.std(ddof=1) / math.sqrt(len(fresh))),
        fresh_episodes=len(fresh),
        exact=None if best.params is None else problem.exact(best.params),
        optimum=problem.optimum(),
        mean_best=float(np.mean(history.best_so_far)),
        mean_best_exact=_mean_exact(problem, [history.tries[i].params for i in history.leaders]),
        evaluations=history.slots, lost=history.lost, policies=len(history.tries),
        episodes=history.episodes, calls=spent.calls, failed_calls=spent.failed,
        refused_replies=spent.refused, prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cost=cost_of(spent.prompt_tokens, spent.completion_tokens, config.price),
        seconds=round(time.monotonic() - began, 2),
    )  # fmt: skip


def _mean_exact(problem: Problem, leaders: Sequence[Params | None]) -> float | None:
    """Return the mean expected return of the best policies so far; None if it is not known."""
    known: dict[Params, float] = {}
    for params in leaders:
        if params is None:
            return None
        if params not in known:
            value = problem.exact(params)
            if value is None:
                return None
            known[params] = value
    return float(np.mean([known[params] for params in leaders if params is not None]))
