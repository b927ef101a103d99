"""Each role's gradient through the whole pipeline is that of the enumerated expected return.

The game is `words.Words`: two words for the scout, two for the digger, so four outcomes. All 16
pairs of outcomes are played as groups of two, each is weighted by its probability under the model,
and the gradients of their losses are summed. The model is in float64, and all rewards and weights
are numbers that float32 holds exactly.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as hf

import turnwise.credit.assign
from turnwise.app import build
from turnwise.credit import make_credit
from turnwise.credit.schemes import SCHEMES
from turnwise.engines import ScriptedEngine
from turnwise.forest import FlatScorer, ForestConfig
from turnwise.losses import make_loss
from turnwise.policies.nano import make_tokenizer
from turnwise.recipe.schema import make_recipe
from turnwise.trainers.batches import batches_of, begin, kl_in_reward
from turnwise.trainers.grpo import credit_of
from turnwise.trainers.update import score_column
from turnwise.types import Task, TaskVisit

from .words import OWN, TEAM, WORDS

ENV = f"{Path(__file__).parent / 'words.py'}:Words"
OUTCOMES = tuple(TEAM)
PAIRS = tuple(itertools.product(OUTCOMES, repeat=2))
ROLES = ("scout", "digger")
LENGTH = 8
"""`constant_length`; a power of two, by which float32 divides exactly."""
LARGEST_BIAS = 1e-9
"""Measured: 4e-16."""
LAYOUTS = {
    "shared": (("main", "main"), {"main"}),
    "two policies": (ROLES, {"scout", "digger"}),
    "a frozen scout": (ROLES, {"digger"}),
}
"""Layout -> the policy of each role, and the policies that are trained."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a tiny GPT-2, none of whose layers computes in float32 by itself."""
    tokenizer = make_tokenizer(["scout digger begin heard"], WORDS)
    sizes = hf.GPT2Config(
        vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=2, n_positions=128,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, initializer_range=0.5,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    hf.GPT2LMHeadModel(sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def team(model, make_session):
    """`team(layout, scheme)`: the session of a team and its plan, policies being in float64."""

    def make(layout, scheme):
        names, trained = LAYOUTS[layout]
        policies = {
            name: {"model": str(model), "device": "cpu", "trainable": name in trained}
            for name in names
        }
        agents = {r: {"policy": n, "reply": "whole"} for r, n in zip(ROLES, names, strict=True)}
        data = {
            "name": "words",
            "env": {"name": ENV},
            "agents": agents,
            "policies": policies,
            "trainer": {"old_logprobs": "recompute"},
            "credit": {"scheme": scheme, "rewards": {"both": 1.0, "own": 1.0}},
            "loss": {"aggregation": "constant", "constant_length": LENGTH},
            "forest": {"layout": "flat"},
            "engine": {"probe_tokens": 64},
        }
        recipe = make_recipe(data)
        session = make_session(recipe)
        for number, (_, policy) in enumerate(sorted(session.policies.items())):
            prepare(policy, number)
        for each in session.trained.values():
            each.scorer = FlatScorer(config=ForestConfig())
        return session, build.plan_of(recipe)

    return make


def prepare(policy, number):
    """Make a policy compute in float64, differ from others, and say one of two words and an end."""
    generator = torch.Generator().manual_seed(number)
    model = policy.model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.05 * noise)
    allowed = torch.full((model.config.vocab_size,) * 2, -1e3, dtype=torch.float64)
    ids = [policy.renderer.completion_ids(word) for word in WORDS]
    allowed[:, [first for first, _ in ids]] = 0.0
    for first, end in ids:
        allowed[first] = -1e3
        allowed[first, end] = 0.0
    model.register_forward_hook(
        lambda module, args, kwargs, out: replace_logits(out, allowed[kwargs["input_ids"]]),
        with_kwargs=True,
    )


def replace_logits(output, more):
    output.logits = output.logits + more
    return output


def play(session):
    """Return the two episodes of every pair of outcomes."""
    renderer = next(iter(session.policies.values())).renderer
    ids = {word: renderer.completion_ids(word) for word in WORDS}

    def reply(request):
        outcome = PAIRS[request.id.episode.visit][request.id.episode.member]
        return ids[outcome[ROLES.index(request.id.role)]]

    session.runner.engine = ScriptedEngine(reply)
    visits = [
        TaskVisit(iteration=0, visit=number, task=Task(id="t", env="words", seed=0, data={}))
        for number in range(len(PAIRS))
    ]
    episodes = session.runner.collect(visits, "train", group_size=2)
    assert all(one.error is None for one in episodes)
    return [episodes[at : at + 2] for at in range(0, len(episodes), 2)]


def log_probabilities(session, groups):
    """Return outcome -> its log-probability, by forward passes of the models themselves."""
    found = {}
    for (outcome, _), (episode, _) in zip(PAIRS, groups, strict=True):
        if outcome not in found:
            found[outcome] = sum(of_turn(session.policies[t.policy], t) for t in episode.turns)
    return found


def of_turn(policy, turn):
    ids = torch.tensor([turn.prompt_ids + turn.completion_ids])
    logits = policy.model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1]
    own = torch.tensor(turn.completion_ids)[:, None]
    return logits.log_softmax(-1).gather(1, own).sum()


def enumerated(session, probabilities):
    """Return policy -> parameter -> gradient of the expected return."""
    expected = sum(
        logprob.exp() * (TEAM[outcome] + OWN * (outcome[0] == "bo"))
        for outcome, logprob in probabilities.items()
    )
    found = {}
    for name, trained in session.trained.items():
        named = dict(trained.policy.model.named_parameters())
        each = torch.autograd.grad(expected, list(named.values()), retain_graph=True)
        found[name] = dict(zip(named, each, strict=True))
    return found


def by_pipeline(session, plan, groups, probabilities, gradients):
    """Return policy -> parameter -> the expected gradient of minus the loss, scaled to returns."""
    chances = {outcome: float(logprob.detach().exp()) for outcome, logprob in probabilities.items()}
    found = {
        name: {n: torch.zeros_like(p) for n, p in each.policy.model.named_parameters()}
        for name, each in session.trained.items()
    }
    for (one, other), episodes in zip(PAIRS, groups, strict=True):
        credit = credit_of(session, plan, episodes)
        batches = batches_of(session, plan, episodes, credit, {}, 0)
        for name, batch in batches.items():
            trained = session.trained[name]
            units = len({(t.episode, t.role) for row in batch.samples for t in row.turns})
            scale = chances[one] * chances[other] * LENGTH * units / len(episodes)
            own, _ = gradients.of(trained.policy, batch, plan.loss, scorer=trained.scorer)
            for parameter, gradient in own.items():
                found[name][parameter] -= scale * gradient
    return found


def bias(team, gradients, layout, scheme):
    """Return the largest bias of any policy's gradient, and the size of the smallest gradient."""
    session, plan = team(layout, scheme)
    groups = play(session)
    probabilities = log_probabilities(session, groups)
    assert sum(map(torch.exp, probabilities.values())).item() == pytest.approx(1.0, abs=1e-12)
    true = enumerated(session, probabilities)
    found = by_pipeline(session, plan, groups, probabilities, gradients)
    pairs = [(found[n][p], true[n][p]) for n in true for p in true[n]]
    worst = max(float((one - other).abs().max()) for one, other in pairs)
    return worst, min(max(float(g.abs().max()) for g in each.values()) for each in true.values())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scheme", ["reinforce", "rloo"])
def test_each_roles_gradient_is_the_enumerated_one(team, gradients, layout, scheme):
    worst, size = bias(team, gradients, layout, scheme)
    assert size > 0.01
    assert worst <= LARGEST_BIAS


def twice(shares):
    """Let every seat gain a team reward of another's turn twice."""
    return lambda *args: {turn: 2 * value for turn, value in shares(*args).items()}


def not_for_the_scout(shares):
    """Let the scout gain no team reward."""
    return lambda *args: {t: v for t, v in shares(*args).items() if t.role != "scout"}


@pytest.mark.parametrize("layout", ["shared", "two policies"])
@pytest.mark.parametrize("mutant", [twice, not_for_the_scout])
def test_a_wrong_share_of_the_team_reward_is_found(team, gradients, monkeypatch, layout, mutant):
    """Measured: 0.1."""
    assign = turnwise.credit.assign
    monkeypatch.setattr(assign, "team_shares", mutant(assign.team_shares))
    assert bias(team, gradients, layout, "reinforce")[0] > 0.01


def test_both_roles_in_one_group_are_found(team, gradients, monkeypatch):
    """Measured: 0.17."""
    compare = SCHEMES["rloo"].compare

    def unit(*args):
        return [replace(one, role="team", opens=False) for one in compare.unit(*args)]

    def key(one):
        return replace(compare.key(one), seat=None)

    mixed = replace(compare, unit=unit, key=key)
    monkeypatch.setitem(SCHEMES, "rloo", replace(SCHEMES["rloo"], compare=mixed))
    assert bias(team, gradients, "shared", "rloo")[0] > 0.01


def shifted(policy, amount):
    """Move all weights of a policy a little, and leave the words that it may say."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += amount


@pytest.fixture
def with_kl(team):
    """A session of two policies whose rewards hold the KL to references that have moved apart."""
    session, plan = team("two policies", "rloo")
    loss = make_loss(aggregation="constant", constant_length=LENGTH, kl="reward_k1", kl_weight=0.5)
    plan = replace(plan, loss=loss)
    session.save_start()
    for trained in session.trained.values():
        begin(session, plan, trained)
    for amount, trained in zip((0.03, -0.02), session.trained.values(), strict=True):
        shifted(trained.policy, amount)
    return session, plan


def test_the_reference_of_each_policy_is_its_own_start(with_kl):
    session, _ = with_kl
    for name, trained in session.trained.items():
        assert trained.reference is not None
        start = trained.reference.digest()
        trained.policy.load_weights(session.run.start(name))
        assert trained.policy.digest() == start
    first, second = session.trained.values()
    assert first.reference.digest() != second.reference.digest()


def test_each_policy_pays_for_its_own_distance_to_its_own_reference(with_kl):
    session, plan = with_kl
    episodes = [one for group in play(session) for one in group]
    found = kl_in_reward(session, plan, episodes)
    assert list(found) == list(session.trained)
    for name, each in found.items():
        trained = session.trained[name]
        turns = [turn for one in episodes for turn in one.turns if turn.policy == name]
        assert set(each.penalties) == {turn.id for turn in turns}
        for turn in turns[:4]:
            with torch.no_grad():
                distance = of_turn(trained.policy, turn) - of_turn(trained.reference, turn)
            assert abs(distance) > 1e-4
            assert each.penalties[turn.id][""] == pytest.approx(0.5 * float(distance), abs=2e-5)
    credit = credit_of(session, plan, episodes, found)
    batches = batches_of(session, plan, episodes, credit, found, 0)
    assert list(batches) == list(session.trained)
    for name, batch in batches.items():
        assert {row.policy for row in batch.samples} == {name}
        trained = session.trained[name]
        own = score_column(trained.policy.model, trained.scorer, batch.samples)
        drawn = batch.columns["sampled"] != 0
        assert batch.columns["proximal_logprobs"][drawn] == pytest.approx(own[drawn], abs=1e-6)


def test_a_policy_without_a_signal_has_no_batch(team):
    """The scout alone earns something, so that the digger's advantages are all 0."""
    session, plan = team("two policies", "rloo")
    plan = replace(plan, credit=make_credit(scheme="rloo", rewards={"own": 1.0}))
    episodes = [one for group in play(session) for one in group]
    credit = credit_of(session, plan, episodes)
    assert list(batches_of(session, plan, episodes, credit, {}, 0)) == ["scout"]
