"""Workflows by name and from a user's file, with their options."""

import pytest

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs import make_env
from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe
from turnwise.rollout import Runner
from turnwise.tasks import GeneratedTasks
from turnwise.types import TaskVisit
from turnwise.workflows import WorkflowConfig, make_workflow, turns

FILE = """
from turnwise.settings import Settings
from turnwise.types import Message


class Options(Settings):
    questions: int = 1


class Asks:
    config_class = Options

    def __init__(self, config):
        self.config = config

    async def __call__(self, agents, state):
        while True:
            agent = agents[agents.acting(state)[0]]
            for _ in range(self.config.questions):
                await agent.ask([Message(role="user", content="a plan?")])
            step = await agent.act(state)
            if step.terminated or step.truncated:
                return step
            state = step.state


async def plain(agents, state):
    return await agents[agents.acting(state)[0]].act(state)


def blocking(agents, state):
    return None


class NoOptions:
    async def __call__(self, agents, state):
        return None
"""


@pytest.fixture
def named(tmp_path):
    """`named(name)`: a workflow of the user's file."""
    path = tmp_path / "my_workflows.py"
    path.write_text(FILE)
    return lambda name: f"{path}:{name}"


class Words:
    """A renderer whose one token is the action DOWN."""

    def prompt_ids(self, prompt):
        return (1,)

    def continued_ids(self, before, ids, reply, prompt):
        return None

    def decode(self, ids):
        return "<answer> DOWN </answer>"

    def spans(self, completion_ids, reply_format):
        return ()

    def calls(self, reply):
        return None

    def spoken(self, reply):
        return reply


def played(workflow):
    env = make_env("frozen-lake", map=["SF", "GF"])
    runner = Runner(
        env=env,
        workflow=workflow,
        agents={"player": AgentConfig()},
        renderers={"main": Words()},
        engine=ScriptedEngine(lambda request: (2,)),
        seed=0,
    )
    task = GeneratedTasks(env, "train", 0).task(0)
    (episode,) = runner.collect([TaskVisit(iteration=0, visit=0, task=task)], "train")
    assert episode.error is None, episode.error
    return [turn.phase for turn in episode.turns]


def test_a_name_is_looked_up():
    assert make_workflow(WorkflowConfig()) is turns


def test_a_class_of_a_file_is_made_with_its_options(named):
    once = make_workflow(WorkflowConfig(kind=named("Asks")))
    twice = make_workflow(WorkflowConfig(kind=named("Asks"), options={"questions": 2}))
    assert played(once)[:2] == ["ask", "act"]
    assert played(twice)[:3] == ["ask", "ask", "act"]


def test_a_function_of_a_file_plays(named):
    assert played(make_workflow(WorkflowConfig(kind=named("plain")))) == ["act"]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("Asks", {"question": 2}, "did you mean 'questions'"),
        ("plain", {"questions": 2}, "takes no options"),
        ("blocking", {}, "is not an async function"),
        ("NoOptions", {}, "has no `config_class`"),
        ("Asked", {}, "did you mean"),
    ],
)
def test_a_wrong_one_is_refused_with_the_cure(named, name, options, why):
    with pytest.raises(ConfigError, match=why):
        make_workflow(WorkflowConfig(kind=named(name), options=options))


def test_a_recipe_names_a_workflow_of_a_file(named):
    settings = {"workflow.kind": named("Asks"), "workflow.options.questions": 3}
    recipe = load_recipe("frozen-lake", settings)
    assert recipe.workflow.options == {"questions": 3}
    again = load_recipe("frozen-lake", {"workflow": named("plain")})
    assert again.workflow.kind == named("plain")
