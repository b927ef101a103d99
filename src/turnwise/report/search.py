"""The report of a search: its scores, its cost and its pictures, made from its folder only.

Provides `write_search_report`.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.report.search_film import film_episode
from turnwise.report.search_pictures import draw_history, draw_policies, draw_scores
from turnwise.runs.files import write_atomically
from turnwise.search.config import SearchConfig
from turnwise.search.folder import SETTINGS, Result, read_config, read_result
from turnwise.search.history import HISTORY, History, Try, read_history
from turnwise.search.policies import Policy
from turnwise.search.problem import Problem
from turnwise.search.space import Params
from turnwise.search.tasks import SearchTask, find_task
from turnwise.utils.text import printable

REPORT, SCORES = "report.md", "curve.png"
POLICIES, TRIES, FILM = "policies.png", "history.png", "episode.gif"
FILM_SEED = 0
BEST = 10
"""The policies in the table of the report."""


def write_search_report(folder: Path) -> str:
    """Write `report.md` and the pictures of a search, finished or not, and return the text.

    Raises:
        RunError: if a file of the search is damaged.
        MissingDependencyError: if a package that the task needs is not installed.
    """
    config, result = read_config(folder), read_result(folder)
    task = find_task(config.task)
    problem = Problem(task, config.seed)
    problem.close()
    history = read_history(folder, problem.space)
    if config.relabel is not None:  # what is shown has the env's own numbers
        searched = Problem(task, config.seed, config.relabel)
        searched.close()
        for tried in history.tries:
            tried.params = tried.params and searched.policy.own(tried.params)
    title = f"{config.task} by {config.proposer}"
    parts = [
        f"# {title}",
        f"The settings are in [{SETTINGS}]({SETTINGS}), every policy and model call in "
        f"[{HISTORY}]({HISTORY}).",
        *([_scores(task, result)] if result is not None else ["The search is not finished."]),
        *([lost] if (lost := lost_iterations(history.slots, history.lost)) else []),
        *_pictures(folder, title, task, problem.policy, history, result),
        *([_best(problem.policy, history)] if history.tries else []),
        _costs(config, history, result),
    ]
    text = printable("\n\n".join(part for part in parts if part) + "\n")
    write_atomically(folder / REPORT, text)
    return text


def lost_iterations(slots: int, lost: int) -> str:
    """Return a warning of iterations in which a model gave no policy; "" if they are few."""
    if lost == 0 or 2 * lost < slots:
        return ""
    if lost == slots:
        return (
            "No reply gave a policy that could be played: what is returned is the best of the "
            "random policies of the warm-up, which had one episode each."
        )
    return f"{lost:,} of {slots:,} iterations brought no policy: all replies were refused."


def score_rows(task: SearchTask, result: Result) -> list[tuple[str, str, str]]:
    """Return the scores of the returned policy and published ones: name, score, episodes."""
    rows = [
        ("in the search", with_error(result.score, result.stderr), f"{result.score_episodes:,}"),
        (
            "fresh episodes",
            with_error(result.fresh, result.fresh_stderr),
            f"{result.fresh_episodes:,}",
        ),
    ]
    if result.exact is not None:
        rows.append(("exact", f"{result.exact:.4g}", ""))
    if result.optimum is not None:
        rows.append(("exact, the best player", f"{result.optimum:.4g}", ""))
    if task.published is not None:
        name, score, spread = task.published.best_baseline
        note = "own rules, does not compare" if task.own_rules else "10 seeds"
        rows += [
            ("published: ProPS, GPT-4o", with_error(*task.published.props), note),
            ("published: ProPS+, GPT-4o", with_error(*task.published.props_plus), note),
            (f"published: {name}", with_error(score, spread), note),
        ]
    return rows


def with_error(mean: float, error: float | None) -> str:
    """Return a score with its error.

    Example:
        >>> with_error(0.25, 0.0968), with_error(1.0, None)
        ('0.25 +- 0.097', '1')
    """
    return f"{mean:.4g}" if error is None else f"{mean:.4g} +- {error:.2g}"


def _scores(task: SearchTask, result: Result) -> str:
    lines = ["| returned policy | score | episodes |", "|---|---:|---:|"]
    lines += [f"| {' | '.join(row)} |" for row in score_rows(task, result)]
    lines += [
        "",
        f"The mean over evaluations of the best score so far is {result.mean_best:.4g}"
        + (
            f", and {result.mean_best_exact:.4g} by exact values."
            if result.mean_best_exact is not None
            else "."
        ),
    ]
    return "\n".join(lines)


def _pictures(
    folder: Path,
    title: str,
    task: SearchTask,
    policy: Policy,
    history: History,
    result: Result | None,
) -> list[str]:
    """Draw what the history has, and return the lines that show it."""
    if not history.slots or not history.tries:
        return ["Nothing was tried yet."]
    draw_scores(folder / SCORES, title, task, history)
    lines = [f"![the score of each policy, and the best so far]({SCORES})"]
    if any(each.params is not None for each in history.tries):
        draw_policies(folder / POLICIES, task, policy, history)
        draw_history(folder / TRIES, policy, history)
        lines += [
            f"![the best policy at several times]({POLICIES})",
            f"![all parameters that were tried]({TRIES})",
        ]
    if result is not None and result.params is not None:
        params = policy.space.read(result.params)
        missing = film_episode(folder / FILM, task, policy, params, FILM_SEED)
        lines.append(
            f"![an episode of the returned policy]({FILM})"
            if missing is None
            else f"There is no film of an episode: {missing}."
        )
    return lines


def _best(policy: Policy, history: History) -> str:
    """Return the table of the best policies; of equal ones, which a learner plays, the best try."""
    lines = ["## The best policies", "", "In the order of the mean minus its standard error.", ""]
    lines += ["| evaluation | score | episodes | parameters |", "|---:|---:|---:|---|"]
    best: dict[Params, Try] = {}
    for each in sorted(history.tries, key=lambda t: -t.cautious):
        if each.params is not None:
            best.setdefault(each.params, each)
    for params, each in [*best.items()][:BEST]:
        written = " ".join(policy.space.written(v) for v in params)
        score = with_error(each.mean, each.stderr)
        place = each.slot + 1 if each.source == "search" else "warm-up"
        lines.append(f"| {place} | {score} | {len(each.returns)} | {written} |")
    return "\n".join(lines)


def _costs(config: SearchConfig, history: History, result: Result | None) -> str:
    spent = history.spent
    lines = ["## Costs", "", f"- {len(history.tries):,} policies, {history.episodes:,} episodes"]
    if spent.calls:
        lines.append(
            f"- {spent.calls:,} model calls, of which {spent.failed:,} failed and "
            f"{spent.refused:,} replies were refused; {history.lost:,} iterations without a policy"
        )
        tokens = (
            f"{spent.prompt_tokens:,} tokens of prompts, {spent.completion_tokens:,} of replies"
        )
        lines.append(f"- {tokens}")
    if result is not None and result.cost:
        lines.append(f"- cost {result.cost:.2f}, by the prices that were given")
    if result is not None:
        lines.append(f"- {result.seconds:,.0f} s in the last process")
    return "\n".join([*lines, f"- seed {config.seed}"])
