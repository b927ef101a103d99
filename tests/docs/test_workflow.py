"""The workflow of docs/teams.md plays the env of docs/envs.md: asked twice, then it acts."""

from __future__ import annotations

import json

import turnwise as tw
from turnwise.runs.episodes import read_episodes

from .conftest import in_language
from .test_python import FEW, NEW


def first_python(page):
    return next(block.text for block in in_language("python") if block.page.name == page)


def test_the_workflow_asks_before_each_action_and_the_plan_is_in_the_prompt(tmp_path, monkeypatch):
    env = first_python("envs.md").replace('said: str = ""', 'said: str = ""\n    plan: str = ""')
    shown = env.replace('text=f"safe door {state.safe}"', 'text=f"safe {state.safe} {state.plan}"')
    assert env != shown
    (tmp_path / "guide.py").write_text(shown)
    (tmp_path / "plans.py").write_text(first_python("teams.md"))
    monkeypatch.chdir(tmp_path)
    few = {key: value for key, value in FEW.items() if not key.startswith("agents.")}
    agents = {f"agents.{role}.max_tokens": 16 for role in ("guide", "walker")}
    outcome = tw.train(
        "nano",
        env="guide.py:Guide",
        settings=few
        | NEW
        | agents
        | {"credit.scheme": "grpo"}
        | {"workflow": {"kind": "plans.py:Plans", "options": {"questions": 2}}},
    )
    (file,) = (outcome.run / "episodes").glob("train-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [line["text"] for line in lines if line["kind"] == "prompt"]
    assert any("guide: what is your plan?" in text for text in told)
    episodes = read_episodes(file).episodes
    assert len(episodes) == 4
    for episode in episodes:
        turns = sorted(episode.turns, key=lambda turn: turn.order)[:3]
        assert [(turn.id.role, turn.phase) for turn in turns] == [
            ("guide", "ask"), ("guide", "ask"), ("guide", "act"),
        ]  # fmt: skip
        assert any(turns[1].text.strip() in text for text in told)
