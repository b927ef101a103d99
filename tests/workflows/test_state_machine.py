"""The state machine: transitions with guards, seats that are skipped, stop, or sample otherwise."""

from __future__ import annotations

import pytest

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs import make_env
from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe
from turnwise.rollout import Runner
from turnwise.rollout.workflow_check import TURN_END, check_workflow
from turnwise.tasks import GeneratedTasks
from turnwise.types import TaskVisit
from turnwise.workflows import WorkflowConfig, make_workflow

GUARDS = """
def late(state):
    return state.leg >= 1


def never(state):
    return False


number = 3
"""
TURNS = {
    "start": "tell",
    "states": {
        "tell": {"seat": "scout", "next": ["dig"]},
        "dig": {"seat": "digger", "next": [{"to": "tell"}]},
    },
}


@pytest.fixture
def guards(tmp_path):
    path = tmp_path / "guards.py"
    path.write_text(GUARDS)
    return str(path)


class Renders:
    """Every token is a character."""

    def prompt_ids(self, prompt):
        return tuple(map(ord, prompt.messages[-1].content))

    def continued_ids(self, before, ids, reply, prompt):
        return None

    def decode(self, ids):
        return "".join(map(chr, ids))

    def spans(self, ids, reply_format):
        return ()

    def calls(self, reply):
        return None

    def spoken(self, reply):
        return reply


def play(options, legs=3, greedy=False, **topology):
    """Return the episode of a relay, and the engine's requests."""
    env = make_env("relay", size=2, legs=legs)
    words = {"scout": "bim", "digger": "r0 c0"}
    engine = ScriptedEngine(lambda r: tuple(map(ord, f"<answer> {words[r.id.role]} </answer>")))
    runner = Runner(
        env=env,
        workflow=make_workflow(WorkflowConfig(kind="state-machine", options=options)),
        agents={role: AgentConfig(role=role) for role in env.roles},
        renderers={"main": Renders()},
        engine=engine,
        seed=0,
        **topology,
    )
    visit = TaskVisit(iteration=0, visit=0, task=GeneratedTasks(env, "train", 0).task(0))
    (episode,) = runner.collect([visit], "train", greedy=greedy)
    return episode, engine.requests


def seats(requests):
    return [request.id.role for request in requests]


def test_seats_act_as_the_transitions_say():
    episode, requests = play(TURNS)
    assert episode.error is None and episode.terminated
    assert seats(requests) == ["scout", "digger"] * 3


def test_a_seat_samples_with_its_own_settings_but_for_greedy_play():
    own = {"scout": {"temperature": 0.25, "max_tokens": 32}}
    _, requests = play(TURNS | {"seats": own})
    for request in requests:
        sampling = (request.sampling.temperature, request.sampling.max_tokens)
        assert sampling == ((0.25, 32) if request.id.role == "scout" else (1.0, 64))
    _, requests = play(TURNS | {"seats": own}, greedy=True)
    assert {request.sampling.temperature for request in requests} == {0.0}


def test_guards_choose_the_first_transition_that_may_be_taken(guards):
    options = {
        "start": "tell",
        "states": {
            "tell": {"seat": "scout", "next": [{"to": "dig", "when": "acting"}, "tell"]},
            "dig": {
                "seat": "digger",
                "next": [
                    {"to": "tell", "when": f"{guards}:never"},
                    {"to": "end", "when": f"{guards}:late"},
                    "tell",
                ],
            },
        },
    }
    episode, requests = play(options)
    assert seats(requests) == ["scout", "digger"]
    assert (episode.terminated, episode.truncated) == (False, True)


def test_a_transition_may_be_limited():
    limited = {"to": "tell", "at_most": 1}
    states = {**TURNS["states"], "dig": {"seat": "digger", "next": [limited, "end"]}}
    episode, requests = play(TURNS | {"states": states})
    assert seats(requests) == ["scout", "digger"] * 2
    assert episode.truncated


def test_a_seat_stops_after_its_turns_or_is_skipped(guards):
    """Nobody else may act there, so that the machine has to end the episode."""
    rules = ({"stop_after": 1}, {"skip_when": f"{guards}:late"})
    for rule in rules:
        states = {
            "tell": {"seat": "scout", "next": [{"to": "dig", "when": "acting"}, "end"]},
            "dig": TURNS["states"]["dig"],
        }
        episode, requests = play(TURNS | {"states": states, "seats": {"scout": rule}})
        assert seats(requests) == ["scout", "digger"]
        assert episode.truncated and episode.error is None


def test_a_machine_in_which_nobody_acts_breaks_the_episode_with_the_cure():
    episode, _ = play(TURNS | {"seats": {"scout": {"stop_after": 1}}})
    assert "give it a transition to a seat that may act" in episode.error.message
    states = {"tell": {"seat": "scout", "next": [{"to": "tell", "at_most": 1}]}}
    episode, _ = play(TURNS | {"states": states})
    assert "add one that may always be taken" in episode.error.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": "tel"}, "did you mean 'tell'"),
        ({"states": {"end": {"seat": "scout", "next": []}}, "start": "end"}, "is reserved"),
        ({"states": {"tell": {"seat": "scout", "next": ["digg"]}}}, "unknown state 'digg'"),
        ({"states": {"tell": {"seat": "scout", "next": [{"to": "tell", "when": "maybe"}]}}},
         "guard 'maybe' is no function"),
    ],
)  # fmt: skip
def test_a_wrong_machine_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        make_workflow(WorkflowConfig(kind="state-machine", options=TURNS | change))


def test_a_guard_that_is_no_function_is_refused(guards):
    states = {"tell": {"seat": "scout", "next": [{"to": "tell", "when": f"{guards}:number"}]}}
    with pytest.raises(ConfigError, match="is a int, expected a function"):
        make_workflow(WorkflowConfig(kind="state-machine", options=TURNS | {"states": states}))


def test_a_machine_supports_every_topology():
    found = check_workflow(
        WorkflowConfig(kind="state-machine", options=TURNS), make_env("relay", legs=3)
    )
    assert found.topologies == {"independent": "", "spine": "", TURN_END: "", "vine": ""}
    assert found.calls == 6


def test_a_recipe_names_a_machine():
    machine = {"kind": "state-machine", "options": TURNS}
    recipe = load_recipe("relay", {"workflow": machine})
    assert recipe.workflow.options["start"] == "tell"
    with pytest.raises(ConfigError, match="unknown state"):
        load_recipe("relay", {"workflow": {**machine, "options": {**TURNS, "start": "x"}}})


@pytest.mark.parametrize("state", ["tell", "dig"])
@pytest.mark.parametrize("seats", [{}, {"scout": {"max_tokens": 3}}])
def test_a_misspelt_seat_is_refused_whichever_state_names_it(state, seats):
    states = {**TURNS["states"], state: TURNS["states"][state] | {"seat": "digr"}}
    config = WorkflowConfig(
        kind="state-machine", options=TURNS | {"states": states, "seats": seats}
    )
    with pytest.raises(ConfigError, match="unknown seat 'digr': did you mean 'digger'"):
        check_workflow(config, make_env("relay"))


def test_options_of_a_seat_that_never_acts_or_does_not_exist_are_refused():
    states = {"tell": {"seat": "scout", "next": ["end"]}}
    for seat, said in (("digger", "acts in no state"), ("sout", "did you mean 'scout'")):
        options = {"start": "tell", "states": states, "seats": {seat: {"max_tokens": 3}}}
        config = WorkflowConfig(kind="state-machine", options=options)
        with pytest.raises(ConfigError, match=said):
            check_workflow(config, make_env("relay"))
