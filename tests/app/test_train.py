"""`turnwise.train` as a library: rows and a reward, an env of one's own, going on with a run."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import turnwise as tw
from turnwise.app.lifecycle import _how_to_go_on
from turnwise.cli.main import app
from turnwise.errors import ConfigError, DataError, RewardError, RunError
from turnwise.policies import NanoConfig, PolicyConfig
from turnwise.runs import Run, read_episodes, read_metrics
from turnwise.utils import user_code

TINY = NanoConfig(
    hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, intermediate=64, context=128
)
NANO = PolicyConfig(nano=TINY, device="cpu")
FAST = {
    "trainer.iterations": 2,
    "trainer.group_size": 4,
    "trainer.tasks_per_iteration": 4,
    "agents.player.max_tokens": 4,
    "warmup.steps": 0,
    "engine.probe_tokens": 64,
    "forest.probe_tokens": 64,
}
ROWS = [{"prompt": f"item {a} {b} :", "first": a} for a in "abcdefgh" for b in "klmnop"]
REWARDS = """
def length(completions, **kwargs):
    return [float(len(text)) for text in completions]


def first(completions, first, log_extra, **kwargs):
    log_extra("wanted", first)
    return [float(text.startswith(letter)) for text, letter in zip(completions, first)]
"""


class Watcher(tw.Silent):
    """Keeps the notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def judge(tmp_path):
    """The path of a file with the reward functions `length` and `first`."""
    (tmp_path / "judge.py").write_text(REWARDS)
    return str(tmp_path / "judge.py")


def go(tmp_path, rows=ROWS, *, settings=FAST, **given):
    """Train a tiny model in a run folder of its own."""
    return tw.train(NANO, rows, settings=settings, run=tmp_path / "run", **given)


def table(tmp_path):
    """Return all records of a run, without the clock and the memory."""
    return [
        {k: v for k, v in record.items() if not k.startswith(("time/", "mem/"))}
        for record in read_metrics(tmp_path / "run" / "metrics.jsonl")
    ]


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_run_folder_has_all_that_the_command_line_needs(tmp_path, judge):
    names = [f"{judge}:length", f"{judge}:first"]
    watcher = Watcher()
    outcome = go(tmp_path, reward=names, reward_weights=[0.5, 2.0], progress=watcher)
    assert outcome.finished
    assert watcher.notes[0] == "rows: 34 to train on, 5 for validation, 9 for the test"
    assert (outcome.scores.tasks, outcome.scores.seen) == (9, False)
    assert set(outcome.scores.baselines) == {"warmup"}
    kept = [json.loads(line) for line in (outcome.run / "rows.jsonl").read_text().splitlines()]
    assert kept == ROWS
    recipe = tw.load_recipe(str(outcome.run / "recipe.toml"))
    assert recipe.credit.rewards == {"length": 0.5, "first": 2.0}
    assert 'path = "rows.jsonl"' in (outcome.run / "recipe.toml").read_text()

    moved = (tmp_path / "run").rename(tmp_path / "moved")
    found = json.loads(command("eval", moved, "--json").stdout)
    assert found["score"] == outcome.scores.score
    assert command("report", moved).exit_code == 0


def test_the_score_is_the_weighted_sum_of_the_rewards(tmp_path, judge):
    names = [f"{judge}:length", f"{judge}:first"]
    outcome = go(tmp_path, reward=names, reward_weights=[-0.5, 2.0])
    (file, *_) = sorted((outcome.run / "episodes").iterdir())
    episodes = read_episodes(file).episodes
    assert len(episodes) == 16
    for episode in episodes:
        (turn,) = episode.turns
        assert turn.rewards["length"] == len(turn.text)
        assert episode.score == -0.5 * turn.rewards["length"] + 2.0 * turn.rewards["first"]
        assert episode.notes == {"wanted": episode.task.data["first"]}
    assert {e.task.data["prompt"] for e in episodes} <= {row["prompt"] for row in ROWS}
    assert min(e.score for e in episodes) < 0
    assert table(tmp_path)[0]["rollout/score"] == pytest.approx(sum(e.score for e in episodes) / 16)


def test_resume_from_the_command_line_gives_the_same_numbers(tmp_path, judge):
    each = {**FAST, "evaluation.every": 1}  # both choose from the same validated weights
    whole = go(tmp_path / "a", settings=each, reward=f"{judge}:length")
    half = {**each, "trainer.iterations": 1}
    go(tmp_path / "b", settings=half, reward=f"{judge}:length")
    recipe = tmp_path / "b" / "run" / "recipe.toml"
    recipe.write_text((whole.run / "recipe.toml").read_text())
    done = command("resume", recipe.parent, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["scores"]["score"] == whole.scores.score
    one, other = table(tmp_path / "a"), table(tmp_path / "b")
    assert one[-1]["rollout/score"] == other[-1]["rollout/score"]


def test_a_function_without_a_file_goes_on_from_python_only(tmp_path):
    def short(completions, **kwargs):
        return [-float(len(text)) for text in completions]

    watcher = Watcher()
    first = go(tmp_path, reward=short, progress=watcher)
    assert (
        "short is in no file that can be imported: the run can go on from Python only"
        in (watcher.notes[1])
    )
    assert watcher.notes[-1] == f"report: {first.run / 'report.md'}"
    assert [n for n in watcher.notes if n.startswith("warning: ")] == [
        f"warning: {finding}".replace("**", "") for finding in first.findings
    ]
    said = f"go on from Python, with turnwise.resume('{first.run}')"
    assert _how_to_go_on(Run(first.run), resumed=True) == said
    user_code._HANDED.clear()  # as in another process
    with pytest.raises(ConfigError, match=r"give it again, as turnwise\.resume"):
        tw.resume(first.run, progress=False)
    with pytest.raises(RunError, match=r"are \['session:short'\], got \['session:lambda'\]"):
        tw.resume(first.run, reward=lambda completions, **_: [0.0] * len(completions))
    again = tw.resume(first.run, reward=short, progress=False)
    assert again.scores.score == first.scores.score


def test_a_finished_run_trains_further(tmp_path, judge):
    first = go(tmp_path, reward=f"{judge}:length", progress=False)
    watcher = Watcher()
    with pytest.raises(ConfigError, match=r"trainer\.iterations = 1, but the run has finished 2"):
        tw.resume(first.run, {"trainer.iterations": 1})
    with pytest.raises(ConfigError, match="seed cannot change in a resumed run"):
        tw.resume(first.run, {"seed": 5})
    more = tw.resume(first.run, {"trainer.iterations": 3}, progress=watcher)
    assert more.finished
    assert [record["step"] for record in table(tmp_path)] == [1, 2, 3]
    said = "changed after 2 iterations: trainer.iterations from 2 to 3"
    assert said in watcher.notes
    assert any("linear schedule of the learning rate now spans 3" in n for n in watcher.notes)
    text = (first.run / "recipe.toml").read_text()
    assert text.startswith(f"# {said}\n")
    assert 'path = "rows.jsonl"' in text
    moved = first.run.rename(tmp_path / "moved")
    assert tw.load_recipe(str(moved / "recipe.toml")).trainer.iterations == 3


def test_a_function_that_raises_stops_the_run_in_one_sentence_and_loses_nothing(tmp_path, judge):
    calls = {"count": 0, "broken": True}

    def judge_of(completions, first, **kwargs):
        calls["count"] += 1
        if calls["broken"] and calls["count"] == 2:
            return [{"a": 1.0}[letter] for letter in first]
        return [float(len(text)) for text in completions]

    with pytest.raises(
        RewardError, match=r"'judge_of' raised KeyError: '.' \(.*test_train\.py:\d+\)"
    ):
        go(tmp_path, reward=judge_of)
    assert len(table(tmp_path)) == 1  # the first iteration is kept
    calls["broken"] = False
    assert tw.resume(tmp_path / "run", reward=judge_of, progress=False).finished
    assert [record["step"] for record in table(tmp_path)] == [1, 2]


def test_a_function_is_called_once_with_the_whole_batch(tmp_path):
    seen = []

    async def watch(prompts, completions, completion_ids, first, trainer_state, **kwargs):
        seen.append((trainer_state.global_step, prompts, completions, first))
        assert all(len(ids) <= 4 for ids in completion_ids)
        return [float(len(text)) for text in completions]

    go(tmp_path, reward=watch, settings={**FAST, "evaluation.every": 2})
    assert [len(batch[1]) for batch in seen[:2]] == [16, 16]
    step, prompts, completions, letters = seen[1]
    assert step == 1
    assert len(completions) == 16
    for place in range(16):
        assert prompts[place] == prompts[place // 4 * 4]  # groups follow one another
        assert prompts[place].split()[1] == letters[place]


def test_conversations_go_through_the_chat_template(tmp_path):
    chats = [{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]

    def brief(prompts, completions, **kwargs):
        assert prompts[0][0]["role"] == "user"
        return [-float(len(reply[0]["content"])) for reply in completions]

    texts = {}
    for name, rows in (("chat", chats), ("raw", ROWS)):
        reward = brief if name == "chat" else (lambda completions, **_: [0.0] * len(completions))
        outcome = go(tmp_path / name, rows, reward=reward)
        (file, *_) = sorted((outcome.run / "episodes").iterdir())
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        texts[name] = [line["text"] for line in lines if line["kind"] == "prompt"]
    assert all(text.startswith("user\nitem") for text in texts["chat"])
    assert all(text.startswith("item") for text in texts["raw"])


def test_rows_come_from_files_and_any_iterable(tmp_path, judge):
    (tmp_path / "rows.csv").write_text("prompt,first\nitem a,a\nitem b,b\n")
    watcher = Watcher()
    outcome = go(tmp_path / "csv", tmp_path / "rows.csv", reward=f"{judge}:first", progress=watcher)
    assert outcome.scores.seen
    assert watcher.notes[0] == "rows: 2 to train on, 2 for validation, 2 for the test, the same"
    assert any("problems that training meets too" in note for note in watcher.notes)
    assert "which training met too" in (outcome.run / "report.md").read_text()
    few = {"eval_rows": [{"prompt": "item z", "first": "z"}], "reward": f"{judge}:first"}
    assert not go(tmp_path / "lazy", (row for row in ROWS), **few).scores.seen


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"rows": None}, ConfigError, "got a model, 'nano', and no rows: give rows and a reward"),
        ({"reward": None}, ConfigError, "and no reward: give rows and a reward, or an env"),
        ({"reward_weights": [1.0, 2.0]}, ConfigError, "has 2 weights for 1 rewards"),
        ({"reward_weights": 1.0}, ConfigError, "reward_weights = 1.0: expected a list of numbers"),
        ({"rows": []}, DataError, "rows is empty"),
        ({"rows": {"train": []}}, DataError, "one split of a dataset"),
        ({"rows": ["a"]}, DataError, r"rows\[0\] is str: expected a dict"),
        ({"rows": [{"q": 1}]}, DataError, r"rows\[0\]: has no column 'prompt'"),
        ({"rows": [{"prompt": "a", "x": {int}}]}, DataError, r"\[0\], column 'x': a value of type"),
        ({"reward": "some/reward-model"}, ConfigError, "a reward model is not taken"),
        ({"env": "frozen-lake"}, ConfigError, "rows does not go with env"),
        ({"settings": {"trainer.iteration": 3}}, ConfigError, "did you mean 'trainer.iterations'"),
        ({"settings": {"agents.player.system": "Hi"}}, ConfigError, "has no place: the prompt is"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, judge, given, error, sentence):
    call = {"rows": ROWS, "reward": f"{judge}:length", "settings": FAST, "root": tmp_path / "runs"}
    call |= given | ({"settings": {**FAST, **given["settings"]}} if "settings" in given else {})
    with pytest.raises(error, match=sentence):
        tw.train(NANO, call.pop("rows"), **call)


def test_a_recipe_says_it_all(tmp_path):
    with pytest.raises(ConfigError, match="reward does not go with a recipe"):
        tw.train(tw.load_recipe("frozen-lake"), reward=len)
    with pytest.raises(ConfigError, match="model is Linear: expected a directory"):
        tw.train(__import__("torch").nn.Linear(1, 1), ROWS, reward=len)
    with pytest.raises(ConfigError, match=r"settings = \['seed=1'\]: expected a dict, such as"):
        tw.train(NANO, ROWS, reward=len, settings=["seed=1"])
    with pytest.raises(ConfigError, match=r"settings = \{3: 4\}: expected a dict, such as"):
        tw.train(NANO, ROWS, reward=len, settings={3: 4})
    with pytest.raises(ConfigError, match="setting 3 = 4: expected a name"):
        tw.load_recipe("frozen-lake", {3: 4})
    with pytest.raises(ConfigError, match=r"trainer.minutes = 1e\+308: .*1000000000"):
        tw.load_recipe("frozen-lake", {"trainer.minutes": 1e308})
    with pytest.raises(ConfigError, match="progress = 'yes': expected True, False or a turnwise"):
        tw.train(NANO, ROWS, reward=len, progress="yes")
    with pytest.raises(RunError, match="there is no run folder at"):
        tw.resume("nowhere")
    with pytest.raises(RunError, match="there is no run folder at"):
        tw.evaluate_run("nowhere")


def test_a_folder_that_is_taken_is_refused_before_the_env_is_measured(tmp_path):
    class Unmeasured(tw.Env):
        name = "unmeasured"
        components = {}  # noqa: RUF012
        reset = observe = step = score = None

        def generate(self, rng):
            raise AssertionError("the env was asked")

    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match="is not empty: give --run a folder that is new or empty"):
        tw.train("nano", env=Unmeasured, run=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_script_that_trains_when_it_is_imported_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import turnwise as tw\n{REWARDS}\n"
        f"tw.train('nano', [{{'prompt': 'a'}}], reward=length, root={str(tmp_path)!r})\n"
    )
    with pytest.raises(ConfigError, match="trains while it is imported .* __name__"):
        tw.train(NANO, ROWS, reward=f"{script}:length", settings=FAST)


RECIPE = """
name = "mine"

[env]
name = "rows"
options = { path = "rows.jsonl", reward = ["judge.py:length"] }

[agents.player]
reply = "whole"
max_tokens = 4

[policies.main]
model = "nano"
nano = { hidden = 32, layers = 1, heads = 2, kv_heads = 1, head_dim = 16, intermediate = 32 }
device = "cpu"

[trainer]
iterations = 1
tasks_per_iteration = 2
group_size = 2

[credit]
scheme = "rloo"
rewards = { length = 1.0 }

[evaluation]
target = 50.0
"""


def test_a_recipe_names_rows_beside_it(tmp_path, judge, monkeypatch):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "mine.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)  # code is found from the working directory, data beside the recipe
    done = command("train", tmp_path / "mine.toml", "--run", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recipe = tw.load_recipe(
        str(tmp_path / "mine.toml"),
        [
            f"env.options.reward=['{judge}:first']",
            "credit.rewards={first=1.0}",
            "credit.rewards.length=none",
        ],
    )
    assert recipe.env.options["path"] == str(tmp_path / "rows.jsonl")


def test_a_target_that_no_score_reaches_is_refused():
    with pytest.raises(ConfigError, match=r"evaluation\.target = 50\.0: scores of 'frozen-lake'"):
        tw.load_recipe("frozen-lake", ["evaluation.target=50.0"])


ENV = '''
import turnwise as tw
from turnwise.settings import Settings


class Options(Settings):
    """Options."""

    colours: tuple[str, ...] = ("red", "blue")
    """The words."""


class Echo(tw.Env):
    name = "echo"
    components = {"same": "agent"}
    config_class = Options

    def reset(self, task):
        return (task.data["seed"], None)

    def observe(self, state, role):
        colours = self.config.colours
        return tw.Observation(text=f"say {colours[state[0] % len(colours)]}", legal_actions=colours)

    def step(self, state, role, action, noise):
        same = float(self.observe(state, role).text == f"say {action}")
        return tw.Step(state=(state[0], same), rewards={"same": same}, terminated=True,
                       truncated=False)

    def score(self, state):
        return state[1] or 0.0
'''


@pytest.mark.parametrize("kind", ["name", "class", "instance", "made"])
def test_an_env_of_ones_own_trains(tmp_path, kind, monkeypatch):
    (tmp_path / "echo.py").write_text(ENV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "echo", raising=False)
    import echo  # pyright: ignore[reportMissingImports]

    class Made(echo.Echo):
        def __init__(self):
            super().__init__(echo.Options(colours=("green", "grey")))

    envs = {
        "name": f"{tmp_path / 'echo.py'}:Echo",
        "class": echo.Echo,
        "instance": echo.Echo(echo.Options(colours=("green", "grey"))),
        "made": Made(),
    }
    fast = FAST | {"warmup.steps": 2, "warmup.eval_every": 1, "warmup.perception_tasks": 4}
    fast |= {"evaluation.test_tasks": 8, "evaluation.validation_tasks": 4}
    fast |= {"trainer.minibatches": 2}
    outcome = go(tmp_path, None, env=envs[kind], settings=fast)
    assert set(outcome.scores.baselines) == {"random", "warmup"}
    recipe = tw.load_recipe(str(outcome.run / "recipe.toml"))
    assert recipe.credit.rewards == {"same": 1.0}
    assert recipe.credit.invalid_below_worst
    words = recipe.env.make("evaluation").observe((0, None), "player").legal_actions
    assert words == (("red", "blue") if kind in ("name", "class") else ("green", "grey"))


@pytest.mark.slow
def test_a_nano_model_learns_what_it_is_rewarded_for(tmp_path):
    def share_of_a(completions, **kwargs):
        return [text.count("a") / max(len(text), 1) for text in completions]

    settings = {"trainer.iterations": 60, "agents.player.max_tokens": 8}
    small = PolicyConfig(nano=NanoConfig(hidden=64, layers=2), device="cpu")
    outcome = tw.train(small, ROWS, reward=share_of_a, settings=settings, root=tmp_path)
    scores = outcome.scores
    lead = scores.lead_over("warmup")
    assert scores.baselines["warmup"] < 0.1
    assert lead.difference > 0.4
    assert scores.score_sampled > 0.2
