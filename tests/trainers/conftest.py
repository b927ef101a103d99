"""A tiny policy that speaks, and sessions and gradients made with it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from turnwise.app import build
from turnwise.credit import assign_advantages
from turnwise.forest import FlatScorer, ForestConfig, TreeScorer
from turnwise.kernels import use
from turnwise.policies import NanoConfig, PolicyConfig, load_policy, make_nano, make_optimizer
from turnwise.policies.schedule import OptimizerConfig
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.rollout import samples_from_episodes
from turnwise.runs import Run, StopSignal, read_metrics
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import Silent, train_grpo, warm_up
from turnwise.trainers.batches import batch_of, begin
from turnwise.trainers.loop import play_groups
from turnwise.trainers.update import make_batch, optimise, score_column
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId

RECIPE = str(Path(__file__).parent / "tiny.toml")
ACTIONS = ("LEFT", "DOWN", "RIGHT", "UP")


def tiny(*overrides: str) -> Recipe:
    """Return the tests' recipe."""
    return load_recipe(RECIPE, overrides)


@pytest.fixture(scope="session")
def make_recipe():
    """The function above."""
    return tiny


@pytest.fixture
def make_session(tmp_path_factory):
    """`make_session(recipe)`: the assembled parts in a run folder of their own."""
    with ExitStack() as stack:

        def make(recipe, folder=None):
            path = folder or tmp_path_factory.mktemp("run") / "run"
            fresh = not path.exists()
            run = Run.create(path, recipe.name, recipe.to_toml(), path) if fresh else Run(path)
            stop = stack.enter_context(StopSignal())
            session = build.assemble(recipe, run, stop, Silent())
            stack.callback(session.metrics.close)
            return session

        yield make


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory) -> Path:
    """Sixteen lakes with each of the four answers: what to say, not what to do."""
    env = tiny().env.make("training")
    tasks = GeneratedTasks(env, "train", 0).take(16)
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [
        {
            "prompt": env.observe(env.reset(task), "player").text,
            "completion": f"<answer> {action} </answer>",
        }
        for task in tasks
        for action in ACTIONS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def speaker(rows_file, tmp_path_factory) -> Path:
    """A tiny model that mostly answers with a legal action, any of the four."""
    path = tmp_path_factory.mktemp("speaker")
    recipe = tiny(
        f"warmup.data={rows_file}",
        "warmup.steps=60",
        "warmup.eval_every=60",
        "warmup.batch_size=16",
        "warmup.optimizer={lr=1e-2,warmup_steps=5}",
    )
    run = Run.create(path / "run", recipe.name, recipe.to_toml(), path / "run")
    with StopSignal() as stop:
        session = build.assemble(recipe, run, stop, Silent())
        assert warm_up(session, recipe.warmup, None)
        session.metrics.close()
    session.policies["main"].save(path / "model")
    return path / "model"


@pytest.fixture
def speaking(speaker):
    """`speaking(*overrides)`: the recipe of reinforcement learning from the speaker on."""

    def make(*overrides):
        start = (f"policies.main.model={speaker}", "policies.main.nano=none", "warmup=none")
        return tiny(*start, *overrides)

    return make


@pytest.fixture
def train(make_session):
    """`train(recipe)`: the policy-gradient phase alone; its session and its metrics records."""

    def run(recipe):
        session = make_session(recipe)
        session.save_start()
        assert train_grpo(session, build.plan_of(recipe), None)
        session.metrics.sync()
        records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
        return session, records

    return run


@pytest.fixture
def first_batch(speaking, make_session):
    """`first_batch(*overrides)`: a session, its plan, and the batch of its first iteration."""

    def make(*overrides):
        recipe = speaking(*overrides)
        session, plan = make_session(recipe), build.plan_of(recipe)
        session.save_start()
        episodes = play_groups(session, plan, session.curriculum.visits(0))
        credit = assign_advantages(episodes, plan.credit)
        trained = session.trained["main"]
        begin(session, plan, trained)
        samples = samples_from_episodes(
            episodes, credit.advantages, reference=plan.loss.has_kl_loss
        )
        return session, plan, batch_of(plan, trained, samples, credit)

    return make


SIZES = NanoConfig(
    hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=32, context=128, init_std=0.2
)


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory):
    """A policy with large random weights, so that every mistake shows; its weights never move."""
    folder = make_nano(tmp_path_factory.mktemp("tiny") / "model", ["a b c"], [], SIZES, seed=1)
    policy = load_policy("main", PolicyConfig(model=str(folder), device="cpu"))
    use(policy.base)
    return policy


def play(policy, *, visits=3, samples=3, turns=3, seed=0) -> tuple[list[Episode], dict]:
    """Return episodes whose prompts hold the whole past, with advantages and old probabilities.

    Replies of one visit begin alike, lengths differ, and the behaviour's log-probabilities are off
    the policy's own by some tenths of a nat, so that no ratio is 1.
    """
    rng = np.random.default_rng(seed)
    vocab = policy.model.config.vocab_size
    episodes, advantages = [], {}
    for visit in range(visits):
        opening = rng.integers(0, vocab, 6).tolist()
        agreed = rng.integers(0, vocab, 8).tolist()
        for sample in range(samples):
            ids, played = list(opening), []
            for number in range(1 + (visit + sample) % turns):
                same = int(rng.integers(0, 3))
                own = rng.integers(0, vocab, int(rng.integers(2, 6))).tolist()
                said = tuple(agreed[:same] + own)
                played.append(_turn(TurnId(episode=EpisodeId(iteration=0, visit=visit,
                task=f"t{visit}", member=sample), role="player", turn=number),
                                    tuple(ids), said))  # fmt: skip
                ids += [*said, *rng.integers(0, vocab, 3).tolist()]
            episodes.append(_episode(visit, sample, tuple(played)))
            advantages |= {turn.id: {"": float(rng.normal())} for turn in played}
    return _with_logprobs(policy, episodes, advantages, rng), advantages


def _turn(identity, prompt, said) -> Turn:
    return Turn(
        order=identity.turn,
        id=identity,
        policy="main",
        policy_version=0,
        prompt_ids=prompt,
        completion_ids=said,
        logprobs=(0.0,) * len(said),
        sampling=Sampling(temperature=(1.0, 0.7)[identity.episode.member % 2]),
        finish_reason="stop",
        text="",
    )


def _episode(visit, sample, turns) -> Episode:
    return Episode(
        id=EpisodeId(iteration=0, visit=visit, task=f"t{visit}", member=sample),
        task=Task(id=f"t{visit}", env="e", seed=0, data={}),
        trajectories=(Trajectory(role="player", seat="player", turns=turns),),
        terminated=True,
        truncated=False,
        score=0.0,
    )


def _with_logprobs(policy, episodes, advantages, rng) -> list[Episode]:
    """Give each turn its true log-probabilities plus noise."""
    from dataclasses import replace

    flat = FlatScorer(config=ForestConfig())
    out = []
    for episode in episodes:
        turns = []
        for turn in episode.turns:
            alone = replace(
                episode, trajectories=(Trajectory(role="player", seat="player", turns=(turn,)),)
            )
            rows = samples_from_episodes([alone], advantages)
            true = score_column(policy.model, flat, rows)[-len(turn.completion_ids) :]
            noisy = true + rng.normal(0, 0.3, len(true))
            turns.append(replace(turn, logprobs=tuple(noisy.tolist())))
        out.append(
            replace(
                episode,
                trajectories=(Trajectory(role="player", seat="player", turns=tuple(turns)),),
            )
        )
    return out


@pytest.fixture(scope="session")
def make_episodes(tiny_policy):
    """`make_episodes(...)`: see `play`."""
    return lambda **options: play(tiny_policy, **options)


def gradient(policy, batch, loss, *, scorer=None, rows=None):
    """Return each tensor's gradient after one step that is too short to move any weight."""
    still = OptimizerConfig(lr=1e-30, max_grad_norm=float("inf"))
    optimizer = make_optimizer(policy, still, 1)
    scorer = scorer or FlatScorer(config=ForestConfig())
    metrics = optimise(policy, optimizer, scorer, batch, loss, rows=rows)
    found = {
        name: parameter.grad.clone()
        for name, parameter in policy.model.named_parameters()
        if parameter.grad is not None
    }
    optimizer.zero()
    return found, metrics


def distance(one, other) -> float:
    """Return the largest difference of any tensor, relative to its norm."""
    assert one.keys() == other.keys()
    return max(float((one[n] - other[n]).norm() / one[n].norm().clamp(min=1e-12)) for n in one)


@pytest.fixture(scope="session")
def gradients():
    """The functions above, and the ways to lay rows out, as one object."""

    class Gradients:
        pass

    Gradients.of, Gradients.distance = staticmethod(gradient), staticmethod(distance)
    Gradients.batch = staticmethod(make_batch)
    Gradients.tree = staticmethod(lambda **budget: TreeScorer(config=ForestConfig(**budget)))
    Gradients.flat = staticmethod(lambda **budget: FlatScorer(config=ForestConfig(**budget)))
    return Gradients


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors are slower on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
