"""`turnwise bench step`: the workload with tools, the settings of TRL, and the ratios.

The tests of TRL's side need the extra `bench`.
"""

import inspect
import json
import re
import sys

import numpy as np
import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from turnwise.bench.envs import RandomWords, words_config, words_of
from turnwise.bench.flops import Shape
from turnwise.bench.peers import Against, Rollout, describe, peers_of
from turnwise.bench.step import _prompts, _result, compare
from turnwise.bench.tools import RandomTools, tool_schemas
from turnwise.bench.worker import Worker
from turnwise.bench.workloads import CONTEXT, WORKLOADS, Workload, count_words, make_model
from turnwise.cli.bench import _draw_comparisons
from turnwise.cli.main import app
from turnwise.errors import ConfigError
from turnwise.types import Task

DIALOGUE = Workload(
    name="dialogue", model="pico", prompts=2, group=2, prompt_tokens=1200, completion_tokens=5,
    turns=4, observed_tokens=20, observed_spread=15, system_tokens=1170, micro_rows=(4, 2),
)  # fmt: skip


@pytest.fixture(scope="module")
def dialogue(tmp_path_factory):
    """The model of `DIALOGUE`, the numbers of words, and the rows of its prompts."""
    folder = tmp_path_factory.mktemp("dialogue")
    model = make_model(DIALOGUE, folder / "model")
    words = count_words(DIALOGUE, model)
    rows = _prompts(DIALOGUE, words, folder / "rows.jsonl").read_text().splitlines()
    return model, words, [json.loads(row) for row in rows]


def no_result(index: int, turn: int) -> str:
    return ""


def test_prompts_have_their_length_and_begin_with_the_same_system_message(dialogue):
    model, _, rows = dialogue
    tokenizer = AutoTokenizer.from_pretrained(model)
    # TRL gives the template the methods themselves, in the order of `getmembers`.
    names = [name for name, _ in inspect.getmembers(RandomTools, inspect.isfunction)]
    tools = [getattr(RandomTools(no_result), n) for n in names if n != "reset" and n[0] != "_"]
    one, other = (
        tokenizer.apply_chat_template(row["prompt"], tools=tools, add_generation_prompt=True)[
            "input_ids"
        ]
        for row in rows
    )
    assert len(one) == len(other) == DIALOGUE.prompt_tokens
    assert one[: DIALOGUE.system_tokens] == other[: DIALOGUE.system_tokens]
    ids = tokenizer.apply_chat_template(rows[0]["prompt"][:1], tools=tools)["input_ids"]
    assert len(ids) == DIALOGUE.system_tokens
    assert one != other
    assert [schema["function"]["name"] for schema in tool_schemas()] == ["read_file", "search"]


def test_observations_have_the_lengths_that_are_counted(dialogue):
    model, words, _ = dialogue
    tokenizer = AutoTokenizer.from_pretrained(model)
    env = RandomWords(words_config(DIALOGUE, words))
    tools = RandomTools(lambda index, turn: words_of(env.config, index, turn))
    lengths, rng = [], np.random.default_rng(0)
    for index in range(DIALOGUE.prompts):
        state = env.reset(Task(id="0", env="talk", seed=0, data={"index": index}))
        tools.reset(index=index)
        for turn in range(1, DIALOGUE.turns):
            state = env.step(state, "player", "x", rng).state
            shown = env.observe(state, "player")
            (result,) = shown.messages
            assert result.role == "tool"
            assert result.content == tools.search("x")
            # An end token and a newline stand before the message, which the prompt ends.
            message = [{"role": "tool", "content": result.content}]
            found = tokenizer.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
            lengths.append(len(found) + 2)
            assert lengths[-1] == DIALOGUE.heard(index)[turn]
    assert all(20 <= length <= 35 for length in lengths)
    assert len(set(lengths)) > 1


def test_too_few_tokens_for_the_tools_are_refused(dialogue):
    from dataclasses import replace

    short = replace(DIALOGUE, prompt_tokens=130, system_tokens=100)
    with pytest.raises(ConfigError, match="the schemas of the tools need"):
        count_words(short, dialogue[0])


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_no_workload_exceeds_the_context_of_its_model(workload):
    assert workload.row_tokens <= CONTEXT


@pytest.mark.parametrize(
    ("name", "against", "peers"),
    [
        ("nano-short", "tuned", ["tuned: one turn"]),
        ("nano-short", "both", ["tuned: one turn", "documented: one turn"]),
        ("turns", "both", ["tuned, kept: kept", "tuned, own loop: anew", "documented: anew"]),
        ("dialogue", "both", ["tuned, kept: kept", "tuned, own loop: tools", "documented: tools"]),
        ("dialogue", "documented", ["documented: tools"]),
    ],
)
def test_peers(name, against, peers):
    found = peers_of(WORKLOADS[name], Against(against))
    assert [f"{peer.name}: {peer.rollout}" for peer in found] == peers


def test_every_variant_of_trl_is_described_differently():
    for workload in WORKLOADS.values():
        for peer in peers_of(workload, Against.BOTH):
            said = [describe(variant) for variant in peer.variants(workload)]
            assert len(set(said)) == len(said)


def seen_by(worker_threads, folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    code = (
        "import json, os\n"
        "print(json.dumps({k: v for k, v in os.environ.items() if k.endswith('_NUM_THREADS')}))"
    )
    with Worker("shown", [sys.executable, "-c", code], folder, worker_threads) as worker:
        return worker.answer()


def test_without_a_number_threads_are_left_to_torch(tmp_path, monkeypatch):
    assert set(seen_by(3, tmp_path, monkeypatch).values()) == {"3"}
    assert seen_by(None, tmp_path, monkeypatch) == {}


def answers(sampling, update):
    times = {"seconds": sampling + update, "sampling": sampling, "update": update}
    return times | {"peak_mb": 100.0 * sampling, "metrics": {}}


def test_ratios_are_medians_over_pairs_and_are_drawn_beside_the_counted_work(capsys):
    peer = peers_of(DIALOGUE, Against.TUNED)[1]
    taken = [(answers(1, 1), answers(x, 2 * x)) for x in (2, 4, 6, 8, 10)]
    variant = {**peer.variants(DIALOGUE)[0]}
    shape = Shape(linear=1.0, pair=0.0, logits=0.0)
    result = _result(
        DIALOGUE, peer, shape, taken, 1e-6, variant, {}, {"ours": 1, "theirs": 2}
    ).as_dict()
    assert result["ratio"] == {"seconds": 9.0, "sampling": 6.0, "update": 12.0}
    assert (result["low"]["sampling"], result["high"]["sampling"]) == (4.0, 8.0)
    assert result["theirs"]["update"] == 12.0
    heard = [DIALOGUE.heard(index) for index in range(2)]
    own = sum(sum(each[1:]) + 4 * 5 - 1 for each in heard)
    distinct = 1170 + 2 * 30 + 2 * own
    assert result["counts"]["ours"]["sampling"]["tokens"] == distinct
    # a turn reads everything before it again, and computes all but the last token that it says
    again = sum(sum(each[: turn + 1]) + 5 * turn + 4 for each in heard for turn in range(4))
    assert result["counts"]["theirs"]["sampling"]["tokens"] == 2 * again
    assert result["counted"]["sampling"] == pytest.approx(2 * again / distinct)
    assert result["efficiency"]["sampling"] == pytest.approx(6.0 * distinct / (2 * again))
    _draw_comparisons([result])
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "6.00x" in shown
    assert "4.00 to 8.00" in shown
    assert "TRL's own loop over an environment" in shown
    assert "threads: TRL's 2, turnwise's 1" in shown
    assert f"{2 * again:,} tokens" in shown


def test_trl_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("turnwise.bench.step.find_spec", lambda name: None)
    said = CliRunner().invoke(app, ["bench", "step"]).output
    assert "TRL is not installed" in said


@pytest.mark.slow
def test_a_rollout_that_keeps_keys_and_values_plays_the_same_episodes(dialogue):
    """With equal draws. Observations of unequal lengths are padded inside the history."""
    pytest.importorskip("trl")
    import torch

    from turnwise.bench.run_trl import TrlRollout, load_model
    from turnwise.render import Renderer
    from turnwise.types import Message, Prompt

    folder, words, rows = dialogue
    tokenizer, played = AutoTokenizer.from_pretrained(folder), {}
    for cached in (True, False):
        rollout = TrlRollout(DIALOGUE, words_config(DIALOGUE, words), Renderer(tokenizer), cached)
        firsts = [
            Prompt(messages=tuple(Message(**m) for m in row["prompt"]), tools=rollout.tools)
            for row in rows
        ]
        begun = [list(rollout.renderer.prompt_ids(first)) for first in firsts]
        torch.manual_seed(0)
        played[cached] = rollout.play(load_model(str(folder)).eval(), firsts, begun)
    assert played[True] == played[False]
    rests, masks = played[True]
    own = [DIALOGUE.tokens_of(index) - DIALOGUE.prompt_tokens for index in range(2)]
    assert [len(rest) for rest in rests] == own
    assert own[0] != own[1]
    assert [sum(mask) for mask in masks] == [4 * 5, 4 * 5]


@pytest.mark.slow
def test_both_rollouts_without_tools_compute_the_same_first_gradient():
    pytest.importorskip("trl")
    turns = Workload(
        name="turns", model="pico", prompts=2, group=2, prompt_tokens=30, completion_tokens=6,
        turns=3, observed_tokens=15, micro_rows=(4,),
    )  # fmt: skip
    found = compare(
        turns, against=Against.TUNED, pairs=1, threads=1, checkpointing=False, note=lambda _: None
    )
    assert [result.settings["rollout"] for result in found] == [Rollout.KEPT, Rollout.ANEW]
    assert max(result.gradient for result in found) < 1e-5


@pytest.mark.slow
def test_all_peers_compute_the_same_first_gradient():
    pytest.importorskip("trl")
    found = compare(
        DIALOGUE, against=Against.BOTH, pairs=1, threads=1, checkpointing=False, note=lambda _: None
    )
    assert [result.against for result in found] == ["tuned, kept", "tuned, own loop", "documented"]
    kept, own, documented = (result.gradient for result in found)
    assert max(kept, own) < 1e-5
    assert documented < 0.1  # bfloat16
    assert [result.settings["rollout"] for result in found] == [
        Rollout.KEPT, Rollout.TOOLS, Rollout.TOOLS,
    ]  # fmt: skip
