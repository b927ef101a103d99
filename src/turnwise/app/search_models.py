"""The models that a search asks: an OpenAI-compatible endpoint, or a run of `policy-search`.

Provides `Endpoint` and `RunModel`. An endpoint's key is read from the environment variable that the
settings name, by the remote engine, which keeps it out of every message and reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnwise.engines import Request
from turnwise.engines.remote import RemoteEngine
from turnwise.envs.policy_search.env import NOISES, PolicySearch, PolicySearchConfig
from turnwise.envs.policy_search.functions import manifest
from turnwise.envs.policy_search.text import levels_text
from turnwise.errors import EngineError, IllegalActionError, RunError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.search.config import Control, EndpointConfig
from turnwise.search.cost import tokens_in
from turnwise.search.history import History
from turnwise.search.levels import Labels, LevelSpace, check_size, task_data
from turnwise.search.prompted import FAILED_APART, Reply
from turnwise.search.space import ParamSpace
from turnwise.search.tasks import TASKS
from turnwise.seeding import generator
from turnwise.types import Episode, EpisodeId, Message, Prompt, Sampling, Task, TaskVisit, TurnId

ROLE = "searcher"
TOGETHER = 8
"""The replies of a run's policy that are sampled at once: it is shown the same until one is used.
"""
HEATS = (1.0, 2.0)
"""By what the temperature is multiplied for the first such replies, and for those after them: a
policy that is sure of what was tried would repeat it."""
RUN_ATTEMPTS = TOGETHER * len(HEATS)
"""The replies of a run's policy in one iteration."""
Render = Callable[[History, int], str]
"""From the history and the number of the evaluation to a prompt."""


class Endpoint:
    """Asks an endpoint, one request at a time.

    Raises:
        ConfigError: if the key's environment variable is not set.
        MissingDependencyError: if httpx is not installed.
    """

    def __init__(self, config: EndpointConfig, seed: int, render: Render) -> None:
        self._sampling = Sampling(temperature=config.temperature, max_tokens=config.max_tokens)
        self._render = render
        self._engine = RemoteEngine(ROLE, config, seed, section="endpoint")
        self._runner = asyncio.Runner()

    def ask(self, history: History, slot: int, attempt: int) -> Reply:
        """Return the model's reply; its tokens are estimated where the server counts none.

        Raises:
            EngineError: if there is none.
        """
        prompt = self._render(history, slot)
        episode = EpisodeId(iteration=slot, visit=0, task="search", member=0)
        request = Request(
            id=TurnId(episode=episode, role=ROLE, turn=attempt),
            stream="train",
            policy=ROLE,
            prompt_ids=(),
            sampling=self._sampling,
            prompt=Prompt(messages=(Message(role="user", content=prompt),)),
        )
        drawn = self._runner.run(self._engine.generate(request))
        text = drawn.text or ""
        if drawn.usage is None:
            return Reply(
                text=text, prompt_tokens=tokens_in(prompt), completion_tokens=tokens_in(text)
            )
        return Reply(
            text=text,
            prompt_tokens=drawn.usage.prompt_tokens,
            completion_tokens=drawn.usage.completion_tokens,
        )

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._engine.close())
        self._runner.close()


class RunModel:
    """Lets the policy of a run of `policy-search` answer, by draws at its temperature.

    Args:
        run: the run folder.
        seed: of the draws.
        space: of the parameters.
        task: the task that is searched, for messages.
        control: whether the history is shown as it is.
        start: whether its policy has the weights that training by reward began with.

    Raises:
        RunError: if there is no such run, it is of another env, or it did not keep its start.
        ConfigError: if the task has a size that the run was not trained with.
    """

    def __init__(
        self,
        run: str,
        seed: int,
        space: ParamSpace,
        task: str,
        control: Control,
        *,
        start: bool = False,
    ) -> None:
        recipe = load_recipe(str(Run.open(Path(run)).recipe), (), lambda text: None)
        env = recipe.env.make("evaluation").unwrapped
        if not isinstance(env, PolicySearch):
            raise RunError(
                f"'{run}' is a run of the env {recipe.env.name!r}, whose policy proposes no "
                "parameters: give a run of `turnwise train policy-search`"
            )
        check_size(space, env.config, task, run)
        from turnwise.app.loading import load_run  # which imports torch

        self.levels = LevelSpace(space=space)
        self.manifest = manifest_of(run, env.config)
        self._seed, self._env = seed, env
        self._control: Control = control
        self._sampled: tuple[tuple[int, int], list[Episode]] = ((-1, 0), [])
        self._loaded = load_run(run, seed=seed)
        self._loaded.use_checkpoint()
        if start and not self._loaded.use_start():
            self._loaded.close()
            raise RunError(
                f"'{run}' has no weights of its start, as its training by reward has not begun: "
                "leave start out"
            )
        self._judges = [self._loaded.judge(env, heat=heat) for heat in HEATS]

    def ask(self, history: History, slot: int, attempt: int) -> Reply:
        """Return the levels of the policy's answer, empty where its reply holds none.

        Raises:
            EngineError: if sampling fails.
        """
        batch, member = divmod(attempt, TOGETHER)
        labels = self._labels(slot, batch)
        if self._sampled[0] != (slot, batch):
            data = task_data(self.levels, labels, history, self._control, self._seed, slot)
            task = Task(id=f"search-{slot}", env=self._env.name, seed=self._seed, data=data)
            visit = TaskVisit(iteration=slot, visit=batch, task=task)
            judge = self._judges[attempt % FAILED_APART // TOGETHER]
            played = judge.collect([visit], "evaluation", group_size=TOGETHER)
            self._sampled = (slot, batch), played
        episode = self._sampled[1][member]
        if not episode.turns:
            raise EngineError(f"the policy gave no reply ({episode.error})")
        turn = episode.turns[-1]
        return Reply(
            text=self._levels(episode.task, labels, turn.action or ""),
            prompt_tokens=len(turn.prompt_ids),
            completion_tokens=len(turn.completion_ids),
        )

    def _labels(self, slot: int, batch: int) -> Labels:
        """Return the labels of a prompt."""
        rng = generator(self._seed, "searcher labels", slot, batch)
        space = self.levels.space
        return Labels.drawn(space.count, self.levels.levels, not space.choices, rng)

    def _levels(self, task: Task, labels: Labels, answer: str) -> str:
        """Return the levels that an answer means, empty where it names none."""
        try:
            return levels_text(labels.meant(self._env.reset(task).read(answer)))
        except IllegalActionError:
            return ""

    def close(self) -> None:
        """Close the engine."""
        self._loaded.close()


def manifest_of(run: str, config: PolicySearchConfig) -> dict[str, Any]:
    """Return what a searcher was trained on, for the folder of a search."""
    return {
        "run": run,
        "env": PolicySearch.name,
        "functions": manifest(config.families),
        "parameters": [config.least_params, config.most_params],
        "shown": config.shown,
        "counted": config.counted,
        "noise": list(NOISES),
        "tasks_of_search_in_training": [name for name in TASKS if name in config.families],
    }
