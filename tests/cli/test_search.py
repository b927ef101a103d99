"""`turnwise search` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

SMALL = ("budget.warmup=0", "budget.fresh=10", "budget.recheck=4", "budget.best=1")


def test_a_method_searches_and_prints_its_scores(turnwise, sets, is_one_sentence, tmp_path):
    words = ("search", "frozen-lake", "--method", "hill-climbing", "--iterations", 8)
    words = (*words, "--episodes", 4, "--folder", tmp_path / "a", *sets(*SMALL))
    result = turnwise(*words)
    assert result.exit_code == 0, result.output
    for part in ("exact", "fresh episodes", "published: ProPS, GPT-4o", "0.57 +- 0.17", "32 ep"):
        assert part in result.stdout
    told = json.loads(turnwise(*words, "--json").stdout)
    assert told["folder"] == str(tmp_path / "a")
    assert (told["episodes"], told["evaluations"], len(told["params"])) == (32, 8, 16)
    again = json.loads(turnwise("search", "--resume", tmp_path / "a", "--json").stdout)
    assert again == told
    said = f"`turnwise search --resume {tmp_path / 'a'}` goes on"
    is_one_sentence(turnwise("resume", tmp_path / "a"), said)


def test_a_folder_is_named_by_the_task_and_the_method(turnwise, sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("search", "cart-pole", "--method", "random", "--iterations", 6, "--episodes", 2)
    result = turnwise(*words, "--seed", 3, *sets(*SMALL))
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("search-cart-pole-random-")
    assert {path.name for path in folder.iterdir()} >= {
        "search.toml", "history.jsonl", "result.json",
    }  # fmt: skip


def test_mistakes_are_one_sentence(turnwise, sets, is_one_sentence, tmp_path):
    for words, said in (
        (("search",), "no task is given"),
        (("search", "frozen-lak", "--method", "cem"), "did you mean 'frozen-lake'"),
        (("search", "frozen-lake"), "one of method, endpoint and run"),
        (("search", "frozen-lake", "--method", "cen"), "did you mean 'cem'"),
        (("search", "frozen-lake", "--model", "m"), "give --endpoint URL"),
        (("search", "frozen-lake", "--endpoint", "http://localhost/v1"), "needs --model"),
        (("search", "frozen-lake", "--endpoint", "localhost", "--model", "m"), "must begin with"),
        (("search", "frozen-lake", "--method", "cem", "--set", "budget.epsiodes=3"), "episodes"),
        (("search", "frozen-lake", "--resume", tmp_path), "leave all else out"),
        (("search", "--resume", tmp_path), "is no folder of a search"),
        (("search", "Blackjack-v1", "--method", "cem"), "a search needs discrete observations"),
    ):
        is_one_sentence(turnwise(*words), said)


def test_a_key_that_is_not_set_is_named(turnwise, is_one_sentence, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    words = ("search", "frozen-lake", "--endpoint", "http://localhost/v1", "--model", "m")
    is_one_sentence(turnwise(*words, "--key-env", "NO_SUCH_KEY"), "this environment variable")


def test_the_report_of_a_search_is_written_again(turnwise, sets, tmp_path):
    words = ("search", "maze", "--method", "random", "--iterations", 6, "--episodes", 2)
    result = turnwise(*words, "--folder", tmp_path / "a", *sets(*SMALL))
    assert result.exit_code == 0, result.output
    report = tmp_path / "a" / "report.md"
    text = report.read_text()
    report.unlink()
    again = turnwise("report", tmp_path / "a")
    assert again.exit_code == 0, again.output
    assert report.read_text() == text


def test_an_env_of_a_module_in_the_working_directory_is_found(tmp_path):
    (tmp_path / "hidden_lake.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.toy_text import FrozenLakeEnv\n"
        "gymnasium.register('Hidden-v0', entry_point=FrozenLakeEnv, max_episode_steps=9)\n"
    )
    words = ["search", "hidden_lake:Hidden-v0", "--method", "random", "--iterations", "6"]
    words += ["--episodes", "2", *(word for each in SMALL for word in ("--set", each))]
    entry = "from turnwise.__main__ import main; main()"  # as the console script does
    command = [sys.executable, "-P", "-c", entry, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "hidden_lake:Hidden-v0 by random" in done.stdout
