"""A team of which one role is played here and the other by a server."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from turnwise.agents import AgentConfig
from turnwise.credit import assign_advantages, make_credit
from turnwise.engines import (
    RemoteConfig,
    RemoteEngine,
    RoutingEngine,
    ScriptedEngine,
    close_engine,
    remote,
)
from turnwise.envs import Env, Observation, Step
from turnwise.errors import ModelError
from turnwise.render import TextRenderer
from turnwise.rollout import Runner, samples_from_episodes, without_cut
from turnwise.rollout.metrics import rollout_metrics
from turnwise.runs import EpisodeLog, episode_file, read_episodes
from turnwise.types import Media, Message, Prompt, Task, TaskVisit
from turnwise.workflows import turns

WORDS = ("LEFT", "DOWN", "RIGHT")
TASK = Task(id="t", env="guided", seed=0, data={})


@dataclass(frozen=True)
class Said:
    """The messages so far: advice and answers in turn."""

    words: tuple[str, ...] = ()


class Guided(Env[Said]):
    """A guide names a word, twice, and each time a walker should say it, too."""

    name = "guided"
    roles = ("guide", "walker")
    components: ClassVar = {"agreed": "team", "spoke": "agent"}

    def reset(self, task):
        return Said()

    def acting(self, state):
        return (self.roles[len(state.words) % 2],)

    def observe(self, state, role):
        text = "name a word" if role == "guide" else f"the guide says {state.words[-1]}"
        return Observation(text=text, legal_actions=WORDS)

    def step(self, state, role, action, noise):
        agreed = role == "walker" and action == state.words[-1]
        words = (*state.words, action)
        return Step(
            state=Said(words),
            rewards={"agreed": float(agreed), "spoke": 1.0},
            terminated=len(words) == 4,
            truncated=False,
        )

    def score(self, state):
        pairs = zip(state.words[::2], state.words[1::2], strict=True)
        return sum(advice == answer for advice, answer in pairs) / 2


@pytest.fixture
def guide():
    """A server that says what its script has for the number of the request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.asked.append(asked)
                status, said, reason = server.script(len(server.asked))
            message = {"role": "assistant", "content": said}
            body = json.dumps({"choices": [{"message": message, "finish_reason": reason}]})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args):
            pass

    server, lock = ThreadingHTTPServer(("127.0.0.1", 0), Handler), threading.Lock()
    server.asked, server.script = [], lambda number: (200, "<answer> DOWN </answer>", "stop")
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def play(guide, renderer, monkeypatch):
    """`play(count)`: so many members of one group; walkers say DOWN, those of odd members RIGHT."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    url = f"http://127.0.0.1:{guide.server_address[1]}/v1"
    config = RemoteConfig(base_url=url, model="wise", retries=1)

    def walks(request):
        word = "RIGHT" if request.id.episode.member % 2 else "DOWN"
        return renderer.completion_ids(f"<answer> {word} </answer>")

    engine = RoutingEngine(ScriptedEngine(walks), {"wise": RemoteEngine("wise", config, 0)})
    runner = Runner(
        env=Guided(),
        workflow=turns,
        agents={
            "guide": AgentConfig(role="guide", policy="wise", system="be brief", history="full"),
            "walker": AgentConfig(role="walker", history="full"),
        },
        renderers={"main": renderer, "wise": TextRenderer("wise")},
        engine=engine,
        seed=0,
    )
    yield lambda count, iteration=0: runner.collect(
        [TaskVisit(iteration=iteration, visit=0, task=TASK)], "train", group_size=count
    )
    close_engine(engine)


def test_both_play_one_episode_and_the_walker_alone_is_trained(play, guide, renderer):
    episodes = play(4)
    assert [one.error for one in episodes] == [None] * 4
    assert [one.score for one in episodes] == [1.0, 0.0, 1.0, 0.0]
    advice, answers = episodes[0].trajectories
    assert [turn.action for turn in advice.turns] == ["DOWN", "DOWN"]
    assert [turn.order for turn in answers.turns] == [1, 3]
    for turn in advice.turns:
        assert turn.text == "<answer> DOWN </answer>"
        assert (turn.prompt_ids, turn.completion_ids, turn.logprobs, turn.spans) == ((),) * 4
        assert turn.text_only and not answers.turns[0].text_only
    conversation = guide.asked[-1]["messages"]
    assert [one["role"] for one in conversation] == ["system", "user", "assistant", "user"]

    config = make_credit(scheme="grpo", rewards={"agreed": 1.0, "spoke": 0.5})
    credit = assign_advantages(episodes, config, team={"agreed"})
    assert {one.role for one in credit.advantages} == credit_roles(credit) == {"walker"}
    assert credit.counted == frozenset(credit.advantages)
    assert [group.returns for group in credit.groups] == [(3.0, 1.0, 3.0, 1.0)]
    rows = samples_from_episodes(episodes, credit.advantages)
    assert {row.policy for row in rows} == {"main"}
    everything = {turn.id: {"": 1.0} for one in episodes for turn in one.turns}
    assert {row.policy for row in samples_from_episodes(episodes, everything)} == {"main"}


def credit_roles(credit):
    return {unit.role for group in credit.groups for unit in group.units}


def test_what_a_server_said_is_recorded_with_what_it_was_asked(play, tmp_path):
    episodes = play(2)
    log = EpisodeLog(tmp_path, decode=lambda policy, ids: {"main": "decoded"}[policy])
    log.write(0, episodes)
    read = read_episodes(episode_file(tmp_path, 0))
    assert read.episodes == tuple(episodes)
    first = read.episodes[0].trajectories[0].turns[0]
    assert first.prompt_text == "[system]\nbe brief\n\n[user]\nname a word"


def test_metrics_count_its_turns_and_no_tokens_of_them(play, guide):
    guide.script = lambda number: (200, "<answer> DOWN </answer>", "length")
    episodes = play(2)
    walkers = [turn for one in episodes for turn in one.turns if turn.id.role == "walker"]
    found = rollout_metrics(episodes)
    assert found["rollout/turns"] == 8
    mean = sum(len(turn.completion_ids) for turn in walkers) / len(walkers)
    assert found["rollout/completion_tokens"] == mean
    assert without_cut(episodes) == episodes, "cut replies that nobody trains exclude nothing"


def test_a_reply_that_is_no_action_ends_the_episode_as_its_own_failure(play, guide):
    guide.script = lambda number: (200, "hm", "stop")
    (episode,) = play(1)
    assert (episode.error.kind, episode.broken) == ("parse", False)
    assert [turn.text for turn in episode.turns] == ["hm"]
    assert assign_advantages([episode], make_credit(rewards={"agreed": 1.0})).advantages == {}


def test_a_server_that_fails_breaks_its_episodes_and_a_later_iteration_goes_on(play, guide):
    healthy, guide.script = guide.script, lambda number: (500, "", "stop")
    (episode,) = play(1)
    assert episode.broken and "status 500" in episode.error.message
    assert len(guide.asked) == 2, "the engine alone asks again, as often as `retries` says"
    guide.script = healthy
    (episode,) = play(1, iteration=1)
    assert (episode.error, episode.score) == (None, 1.0)


def test_a_policy_at_a_server_is_given_messages_of_text_alone():
    own, message = TextRenderer("wise"), Message(role="user", content="?")
    assert own.prompt_ids(Prompt(messages=(message,))) == ()
    picture = Media(kind="image/png", data=b"")
    for given, named in (
        (Prompt(text="2+2="), "raw text"),
        (Prompt(messages=(message,), tools=("{}",)), "tools"),
        (Prompt(messages=(message,), media=(picture,)), "media"),
    ):
        with pytest.raises(ModelError, match=f"policy 'wise' is remote .* the env gives {named}:"):
            own.prompt_ids(given)
