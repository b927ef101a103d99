"""The prompts of Prompted Policy Search, ProPS and ProPS+ (arXiv:2511.21928), in our own words.

Provides `prompt_text`. Each prompt is written anew from the history: a model has no memory of
earlier ones. Every score has its number of episodes and its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.search.config import PromptConfig, ShownConfig
from turnwise.search.history import History, Try
from turnwise.search.policies import TablePolicy
from turnwise.search.problem import Problem


def prompt_text(
    problem: Problem,
    history: History,
    *,
    prompt: PromptConfig,
    shown: ShownConfig,
    iteration: int,
    iterations: int,
    episodes: int,
    refused: str = "",
) -> str:
    """Return the prompt for the next policy.

    Args:
        problem: the task and its policy.
        history: what was tried.
        prompt: how the model is asked.
        shown: which tries it is shown.
        iteration: the number of this iteration, from 1.
        iterations: of the whole search.
        episodes: of an evaluation.
        refused: why the reply to this prompt before could not be used, in our own words.
    """
    parts = [
        _duty(problem, episodes),
        *_task(problem, prompt),
        _rules(problem, prompt),
        *_tries(problem, history, prompt, shown),
        _question(problem, iteration, iterations),
    ]
    if refused:
        parts.append(f"Your last reply to this could not be used: {refused}.")
    return "\n\n".join(parts)


def _duty(problem: Problem, episodes: int) -> str:
    space = problem.space
    return (
        f"You search for the {space.count} parameters of a policy that make its score as high as "
        "possible. You cannot compute the score. You propose parameters, they are played for "
        f"{episodes} episodes, and you are told the mean return, its standard error and the number "
        "of episodes. Then you propose again, from all that was tried."
    )


def _task(problem: Problem, prompt: PromptConfig) -> list[str]:
    """Return what `props+` says of the env and of the policy."""
    found = []
    if prompt.kind == "props+":
        about = problem.task.about or f"The environment is {problem.task.env} of Gymnasium."
        found += [f"The task: {about}", f"The policy is {problem.policy.described()}."]
    if prompt.hints:
        found.append(f"Advice: {prompt.hints}")
    return found


def _rules(problem: Problem, prompt: PromptConfig) -> str:
    space, task = problem.space, problem.task
    lines = [
        "Rules:",
        f"1. There are {space.count} parameters, params[0] to params[{space.count - 1}]. Each is "
        f"{space.described()}.",
        "2. Never propose parameters that are in the list below.",
        "3. While scores improve, go on from the best parameters with small changes. When they no "
        "longer do, explore: "
        + (
            "change several of them at once."
            if space.choices
            else f"move parameters by steps of about {task.search_step:g}, or further."
        ),
        "4. A score is a mean over few episodes. Differences smaller than the standard errors mean "
        "nothing.",
    ]
    if task.optimum is not None and prompt.optimum:
        lines.append(
            f"5. The best score that is possible is about {task.optimum:g}. While the best in the "
            "list is clearly below it, the search is at a local optimum and must move on."
        )
    return "\n".join(lines)


def _tries(
    problem: Problem, history: History, prompt: PromptConfig, shown: ShownConfig
) -> list[str]:
    """Return the lists of tries, each under its heading."""
    if shown.rule == "all":
        lists = {"All tries, the oldest first:": history.tries}
    else:
        best, latest = shown.most
        ranked = history.ranked()[:best]
        chosen = {id(tried) for tried in ranked}
        others = [tried for tried in history.tries if id(tried) not in chosen]
        recent = others[len(others) - min(latest, len(others)) :]
        lists = {"The best tries, the best first:": ranked}
        lists["The most recent others, the oldest first:"] = recent
    with_steps = prompt.kind == "props+" and isinstance(problem.policy, TablePolicy)
    return [
        "\n".join([title, *(_line(problem, each, with_steps) for each in tries)])
        for title, tries in lists.items()
        if tries
    ]


def _line(problem: Problem, tried: Try, with_steps: bool) -> str:
    """Return one try: its parameters, its score, and an episode where that is shown."""
    assert tried.params is not None, "a model's tries have parameters"
    text = f"{problem.space.text(tried.params)} | {score_text(tried)}"
    if with_steps and tried.steps:
        text += f"\n  an episode (state, action, reward): {_episode_text(tried.steps)}"
    return text


def score_text(tried: Try) -> str:
    """Return a score with its error and its number of episodes.

    Example:
        >>> score_text(Try(slot=0, source="search", params=(1,), returns=[0.0, 1.0]))
        'score 0.5 +- 0.5 (2 episodes)'
        >>> score_text(Try(slot=0, source="search", params=(1,), returns=[3.0]))
        'score 3 (1 episode)'
    """
    if tried.stderr is None:
        return f"score {tried.mean:.4g} (1 episode)"
    return f"score {tried.mean:.4g} +- {tried.stderr:.2g} ({len(tried.returns)} episodes)"


def _episode_text(steps: Sequence[tuple[int, int, float]]) -> str:
    return " ".join(f"({state}, {action}, {reward:g})" for state, action, reward in steps)


def _question(problem: Problem, iteration: int, iterations: int) -> str:
    last = problem.space.count - 1
    between = ", ".join(["params[0]: <value>", *(["params[1]: <value>"] if last >= 1 else [])])
    end = f", ..., params[{last}]: <value>" if last >= 2 else ""
    return (
        f"This is iteration {iteration} of {iterations}. Answer with one line that holds all "
        f"{problem.space.count} parameters in this form, and with nothing else on it:\n"
        f"{between}{end}\n"
        "Then write one line that says why you chose them."
    )
