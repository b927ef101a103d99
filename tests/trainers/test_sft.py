"""The supervised phase: files and demonstrations, when it stops, and what a demonstration shows."""

from __future__ import annotations

import csv
import itertools
import json
import re
import resource
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from turnwise.agents import AgentConfig
from turnwise.app import build
from turnwise.errors import DataError
from turnwise.evaluation.perception import Seen
from turnwise.runs import comparable, read_metrics, recorded_iterations
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import Silent, resume, sft, train_grpo, warm_up
from turnwise.trainers.demonstrations import Alternating, Demonstrations
from turnwise.trainers.rows import FileRows, supervised_row
from turnwise.trainers.sft import IMITATION, rows_for
from turnwise.trainers.update import make_batch, score_column
from turnwise.types import TaskVisit

FAST = (
    "warmup.steps=40",
    "warmup.eval_every=20",
    "warmup.batch_size=16",
    "warmup.optimizer={lr=1e-2,warmup_steps=5}",
)


def as_csv(path, folder):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    out = folder / "rows.csv"
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "completion"])
        writer.writeheader()
        writer.writerows(rows)
    return out


def as_chats(path, folder):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    out = folder / "chats.jsonl"
    chats = [
        [
            {"role": "user", "content": r["prompt"]},
            {"role": "assistant", "content": r["completion"]},
        ]
        for r in rows
    ]
    out.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return out


@pytest.fixture(params=["jsonl", "csv", "chats"])
def file(request, rows_file, tmp_path):
    """The same rows in each form that is read."""
    makers = {"jsonl": lambda path, folder: path, "csv": as_csv, "chats": as_chats}
    return makers[request.param](rows_file, tmp_path)


def test_a_file_is_imitated_from_end_to_end(make_recipe, make_session, file):
    recipe = make_recipe(f"warmup.data={file}", *FAST)
    session = make_session(recipe)
    rows = rows_for(session, session.trained["main"], recipe.warmup.data).batch(0, 64)
    before = score_column(
        session.policies["main"].model, session.trained["main"].scorer, rows
    ).sum()
    assert warm_up(session, recipe.warmup, None)
    after = score_column(session.policies["main"].model, session.trained["main"].scorer, rows).sum()
    assert after > before / 4
    session.metrics.sync()
    records = read_metrics(session.run.metrics)
    assert [(record["phase"], record["step"]) for record in records] == [
        ("warmup", 20), ("warmup", 40),
    ]  # fmt: skip
    assert records[1]["loss/ce"] < records[0]["loss/ce"]
    assert records[1]["total/warmup_optimizer_steps"] == 40
    checkpoint = session.checkpoints.latest().checkpoint
    assert (checkpoint.phase, checkpoint.step, checkpoint.meta["exact_rounds"]) == (
        "warmup",
        40,
        0,
    )


def test_each_form_of_a_file_gives_the_same_rows(make_recipe, make_session, rows_file, tmp_path):
    session = make_session(make_recipe())
    forms = [rows_file, as_csv(rows_file, tmp_path), as_chats(rows_file, tmp_path)]
    sources = [FileRows(path, session.policies["main"].renderer, "main", 0) for path in forms]
    batches = [[row.token_ids.tolist() for row in source.batch(1, 10)] for source in sources]
    assert batches[0] == batches[1] == batches[2]


def test_a_file_is_passed_through_whole_in_a_new_order(make_session, make_recipe, rows_file):
    source = FileRows(rows_file, make_session(make_recipe()).policies["main"].renderer, "main", 0)
    passes = [[tuple(row.token_ids.tolist()) for row in source.batch(n, 64)] for n in range(3)]
    assert len(set(passes[0])) == 64
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert passes[0] != passes[1] != passes[2]
    by_tens = [tuple(row.token_ids.tolist()) for n in range(20) for row in source.batch(n, 10)]
    assert by_tens[:192] == [row for one in passes for row in one]
    wide = [tuple(row.token_ids.tolist()) for row in source.batch(0, 192)]
    assert wide == by_tens[:192]


def test_an_empty_file_is_refused(make_session, make_recipe, tmp_path):
    path = tmp_path / "none.jsonl"
    path.write_text("\n")
    with pytest.raises(DataError, match="has no rows"):
        FileRows(path, make_session(make_recipe()).policies["main"].renderer, "main", 0)


def test_only_the_completion_is_imitated(make_session, make_recipe):
    renderer = make_session(make_recipe()).policies["main"].renderer
    reply = renderer.completion_ids("<answer> UP </answer>")
    row = supervised_row("main", (5, 6, 7), reply)
    assert row.ce_weight.tolist() == [0, 0, 0] + [1] * len(reply)
    assert row.token_ids.tolist() == [5, 6, 7, *reply]
    assert reply[-1] in renderer.stop_ids
    assert not row.sampled_mask.any()
    assert not row.rl_weight.any()
    batch = make_batch([row, row], IMITATION)
    assert batch.columns["ce_weight"].sum() == pytest.approx(1)
    assert not batch.columns["rl_weight"].any()


@pytest.fixture
def demonstrations(make_recipe, make_session):
    """`demonstrations(seed)`: the rows of the tests' recipe, and the renderer that reads them."""
    session = make_session(make_recipe())
    env = session.warmup_env

    def make(seed=0):
        one = Demonstrations(
            env=env,
            tasks=GeneratedTasks(env, "train", seed),
            agent=AgentConfig(),
            renderer=session.policies["main"].renderer,
            policy="main",
            seed=seed,
        )
        return Alternating(sources=[one])

    make.decode, make.env = session.policies["main"].renderer.decode, env
    return make


def shown(demonstrations, row):
    """Return the prompt, the thought and the action that a row shows."""
    said = row.ce_weight > 0
    text = demonstrations.decode(row.token_ids[said].tolist())
    thought = text.partition("<think>")[2].partition("</think>")[0].strip()
    action = AgentConfig().reply_format.parse(text, ("LEFT", "DOWN", "RIGHT", "UP"))
    return demonstrations.decode(row.token_ids[~said].tolist()), thought, action


def test_demonstrated_actions_are_uniform_and_know_nothing(demonstrations):
    """Each action as often as any other, be it optimal, fatal or a bump into the edge."""
    source, count = demonstrations(), 1200
    seen = [shown(demonstrations, row) for row in source.batch(0, count)]
    actions = Counter(action for _, _, action in seen)
    expected = count / 4
    assert set(actions) == {"LEFT", "DOWN", "RIGHT", "UP"}
    chi2 = sum((actions[a] - expected) ** 2 / expected for a in actions)
    assert chi2 < 16.3  # 99.9th percentile at 3 degrees of freedom
    leads = Counter()
    for _, thought, action in seen:
        words = thought.split()
        ahead = words[words.index(action) + 1 : words.index(action) + 3]
        leads["edge" if ahead[0] == "edge" else ahead[1]] += 1
    offered = Counter()
    for _, thought, _ in seen:
        words = [word for word in thought.split() if not word.startswith("r")]
        offered.update(words[i + 1] for i in range(len(words) - 1) if words[i].isupper())
    for what, many in offered.items():
        share = leads[what] * 4 / many  # 1 if actions are blind to where they lead
        assert abs(share - 1) < 4 * np.sqrt(3 / many), what


def test_demonstrations_describe_truly(demonstrations):
    rows = demonstrations()
    (source,) = rows.sources
    for number, row in enumerate(rows.batch(0, 40)):
        state = source.env.reset(source.tasks.task(number))
        seen = source.env.observe(state, "player")
        prompt, thought, _ = shown(demonstrations, row)
        assert seen.text in prompt
        assert thought == seen.description


def test_demonstrations_are_functions_of_seed_and_step(demonstrations):
    def ids(source, step, count=8):
        return [row.token_ids.tolist() for row in source.batch(step, count)]

    again, other = demonstrations(), demonstrations(seed=1)
    assert ids(demonstrations(), 3) == ids(again, 3)
    assert ids(again, 3) != ids(again, 4)
    assert ids(again, 3) != ids(other, 3)
    assert ids(again, 0, 16) == ids(again, 0) + ids(again, 1)


def test_a_resumed_phase_after_training_keeps_the_episodes_of_training(
    speaking, make_session, make_recipe, tmp_path
):
    recipe = speaking("trainer.iterations=2")
    supervised = make_recipe("warmup.steps=1", "warmup.eval_every=1").warmup
    session = make_session(recipe, tmp_path / "run")
    session.save_start()
    assert train_grpo(session, build.plan_of(recipe), None)
    assert warm_up(session, supervised, None)
    session.metrics.close()
    before = recorded_iterations(session.run.episodes)
    again = make_session(recipe, tmp_path / "run")
    back = resume(again)
    assert back.phase == "warmup"
    assert recorded_iterations(again.run.episodes) == before == [0, 1]


def test_a_resumed_warm_up_sees_the_same_rows(make_recipe, make_session, tmp_path):
    """Two rounds and then two more are four rounds, to the last digit."""
    recipe = make_recipe("warmup.steps=4", "warmup.batch_size=8", "warmup.optimizer.lr=1e-3")

    def play_on(folder, steps):
        session = make_session(recipe, folder)
        back = resume(session)
        assert warm_up(session, recipe.warmup.model_copy(update={"steps": steps}), back)
        session.metrics.close()
        return session.policies["main"].digest(), comparable(read_metrics(session.run.metrics))

    whole = play_on(tmp_path / "whole", 4)
    half, _ = play_on(tmp_path / "parts", 2)
    assert half != whole[0]
    assert play_on(tmp_path / "parts", 4) == whole


class Notes(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


FOUR_CELLS = (
    *FAST,
    "warmup.steps=200",
    "warmup.eval_every=10",
    "warmup.stop_at_accuracy=0.4",
    "warmup.perception_tasks=16",
    "agents.player.max_tokens=24",
    "env.options={map=['SF','HG'],start='random'}",
    "env.options.size=none",
    "env.training=none",
    "env.warmup.frozen_probability=none",
)


def test_warm_up_stops_after_two_rounds_running_that_saw_enough(make_recipe, make_session):
    """On a lake of four cells a tiny policy learns to see in a few dozen steps."""
    recipe = make_recipe(*FOUR_CELLS)
    session = make_session(recipe)
    watcher = session.progress = Notes()
    assert warm_up(session, recipe.warmup, None)
    session.metrics.sync()
    (said,) = watcher.notes
    assert re.match(r"the warm-up ended after \d+ of at most 200 steps: states are described", said)
    seen = [record["warmup/perception"] >= 0.4 for record in read_metrics(session.run.metrics)]
    assert len(seen) < 20
    assert seen[-2:] == [True, True]
    assert not any(one and two for one, two in itertools.pairwise(seen[:-1]))


def test_a_warm_up_that_never_stops_takes_all_its_steps(make_recipe, make_session, monkeypatch):
    seen = Seen(share=1.0, described=True)
    monkeypatch.setattr(sft, "perception", lambda *_: seen)
    steps = ("warmup.steps=6", "warmup.eval_every=1", "warmup.batch_size=2", "warmup.cooldown=1")
    for stop, last in (("never", 6), ("1.0", 3)):  # two rounds are enough, and one cools down
        recipe = make_recipe(*steps, f"warmup.stop_at_accuracy={stop}")
        session = make_session(recipe)
        watcher = session.progress = Notes()
        assert warm_up(session, recipe.warmup, None)
        session.metrics.sync()
        assert [r["step"] for r in read_metrics(session.run.metrics)] == [*range(1, last + 1)]
        assert len(watcher.notes) == (last < 6)


@pytest.mark.parametrize("reply", ["lines", "program"])
def test_a_nano_model_learns_to_see_and_speak_in_other_formats(make_recipe, make_session, reply):
    recipe = make_recipe(*FOUR_CELLS, f"agents.player.reply={reply}")
    session = make_session(recipe)
    reply_format = recipe.agents["player"].reply_format
    for marker in reply_format.markers:
        assert len(session.policies["main"].renderer.tokenizer.encode(marker)) == 1
    assert warm_up(session, recipe.warmup, None)
    session.metrics.sync()
    assert list(read_metrics(session.run.metrics))[-1]["warmup/perception"] >= 0.4
    tasks = session.validation_states.take(16)
    visits = [TaskVisit(iteration=0, visit=n, task=task) for n, task in enumerate(tasks)]
    turns = [t for e in session.runner.collect(visits, "train") for t in e.turns]
    read = [turn for turn in turns if turn.action is not None]
    assert len(read) > len(turns) / 2
    assert all({"think", "answer", "action"} == {s.name for s in turn.spans} for turn in read[:4])


class StopAfter(Notes):
    """Asks a session to stop when a number of rounds is over."""

    def __init__(self, session, rounds):
        super().__init__()
        self.session, self.left = session, rounds

    def advance(self, done, metrics):
        self.left -= 1
        if self.left == 0:
            self.session.stop.requested = "a test"


def test_the_warm_up_cools_down_and_goes_on_cooling(make_recipe, make_session, tmp_path):
    """The rate falls to 0 in a straight line, whether or not the run is stopped on the way."""
    recipe = make_recipe(*FOUR_CELLS, "warmup.cooldown=25")
    session = make_session(recipe)
    assert warm_up(session, recipe.warmup, None)
    session.metrics.sync()
    whole = read_metrics(session.run.metrics)
    seen = [record["warmup/perception"] >= 0.4 for record in whole]
    enough = next(i for i in range(1, len(seen)) if seen[i] and seen[i - 1])
    assert [record["step"] for record in whole[enough + 1 :]] == [
        whole[enough]["step"] + more for more in (10, 20, 25)
    ]
    rates = [record["optim/lr"] for record in whole[enough:]]
    assert rates == pytest.approx([rates[0] * part for part in (1, 16 / 25, 6 / 25, 1 / 25)])

    folder = tmp_path / "stopped"
    session = make_session(recipe, folder)
    session.progress = StopAfter(session, enough + 2)
    assert not warm_up(session, recipe.warmup, None)
    session.metrics.close()
    session = make_session(recipe, folder)
    assert warm_up(session, recipe.warmup, resume(session))
    session.metrics.close()
    assert comparable(read_metrics(session.run.metrics)) == comparable(whole)


def test_dropout_acts_in_warm_up_and_nowhere_else(make_recipe, make_session, rows_file):
    """An adapter's dropout changes what supervision learns, and the model ends in eval mode."""
    digests = set()
    for dropout in (0.0, 0.5):
        recipe = make_recipe(
            f"warmup.data={rows_file}",
            "warmup.steps=3",
            f"policies.main.lora={{rank=4,dropout={dropout}}}",
        )
        session = make_session(recipe)
        assert warm_up(session, recipe.warmup, None)
        assert not any(module.training for module in session.policies["main"].model.modules())
        digests.add(session.policies["main"].digest())
    assert len(digests) == 2


def test_every_step_draws_its_own_dropout_by_seed_and_step(make_recipe, make_session):
    recipe = make_recipe("warmup.steps=4", "warmup.eval_every=2")
    seeds = {}
    for seed in (0, 0, 1):
        session = make_session(recipe.model_copy(update={"seed": seed}))
        drawn = seeds.setdefault(seed, [])
        embedding = next(
            m for m in session.policies["main"].model.modules() if isinstance(m, nn.Embedding)
        )
        embedding.register_forward_pre_hook(
            lambda module, _, drawn=drawn: (
                drawn.append(torch.initial_seed()) if module.training else None
            )
        )
        before = torch.random.get_rng_state()
        assert warm_up(session, recipe.warmup, None)
        assert torch.equal(torch.random.get_rng_state(), before)
    first, again = seeds[0][: len(seeds[1])], seeds[0][len(seeds[1]) :]
    assert first == again
    assert len(set(first)) == len(set(seeds[1])) == 4
    assert not set(first) & set(seeds[1])


def test_a_skipped_step_is_recorded(make_recipe, make_session):
    """A gradient that is not finite costs its step, and is counted where the round is written."""
    recipe = make_recipe("warmup.steps=1", "warmup.eval_every=1")
    session = make_session(recipe)
    session.policies["main"].trainable_parameters()[0].register_hook(lambda grad: grad * np.inf)
    before = session.policies["main"].digest()
    assert warm_up(session, recipe.warmup, None)
    session.metrics.sync()
    (record,) = read_metrics(session.run.metrics)
    assert record["optim/skipped"] == 1
    assert session.policies["main"].digest() == before


def test_a_record_has_the_peak_of_memory_in_megabytes(make_session, make_recipe):
    session = make_session(make_recipe())
    for step in (1, 2):  # the first one loads modules after it has measured
        session.record("warmup", step, {}, 0.0)
    session.metrics.sync()
    record = read_metrics(session.metrics.path)[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    assert record["mem/peak_mb"] == pytest.approx(peak / 1024, rel=5e-4)


def test_rows_of_a_role_are_shown_to_its_policy_alone(make_session, make_recipe, tmp_path):
    renderer = make_session(make_recipe()).policies["main"].renderer
    path = tmp_path / "rows.csv"
    path.write_text(
        "prompt,completion,role\nUP,<answer> UP </answer>,scout\n"
        "UP,<answer> DOWN </answer>,digger\nUP,<answer> LEFT </answer>,\n"
    )

    def shown(**roles):
        rows = FileRows(path, renderer, "main", 0, roles=roles).examples()
        return [renderer.decode(row.token_ids[row.ce_weight > 0].tolist()) for row in rows]

    for own, other in (("scout", "digger"), ("digger", "scout")):
        found = shown(**{own: True, other: False})
        assert [("UP" in f, "DOWN" in f, "LEFT" in f) for f in found] == [
            (own == "scout", own == "digger", False), (False, False, True)]  # fmt: skip
    with pytest.raises(DataError, match=r"row 2 has role = 'digger', which is not a role .*scout"):
        shown(scout=True)
    path.write_text("prompt,completion,role\nUP,<answer> UP </answer>,scout\n")
    with pytest.raises(DataError, match="has no row for policy 'main', which plays digger"):
        shown(scout=False, digger=True)
