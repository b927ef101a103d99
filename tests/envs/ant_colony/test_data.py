"""Demonstrations of the ant colony as a file: their rows, and that a warm-up can read them."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
from huggingface_hub import DatasetCard
from typer.testing import CliRunner

from turnwise.app.card.files import published_files
from turnwise.cli.main import app
from turnwise.envs.datasets import AntColonyDemonstrations
from turnwise.formats import REPLY_FORMATS
from turnwise.seeding import generator
from turnwise.tasks.files import sft_rows


def rows(count, **options):
    return list(islice(AntColonyDemonstrations(**options).rows(np.random.default_rng(0)), count))


def test_rows_show_what_is_seen_and_what_the_heuristic_does():
    found = rows(400)
    assert found == rows(400) != rows(400, noise=0.5)
    assert {row["tier"] for row in found} == {"0", "1"}
    lines = REPLY_FORMATS["lines"]
    for row in found:
        action = lines.parse(row["completion"], ())
        assert action.split("\n")[0].split()[0] in ("MOVE", "PICK_UP", "DEPOSIT")
        assert lines.thought(row["completion"]).startswith(("empty food ", "loaded food "))
        assert row["prompt"].startswith(f"tier {row['tier']} turn ")
    last = [row["prompt"].split("\n")[3] for row in found]
    assert any("bumped" in each for each in last)  # random moves, whose recovery is shown


def test_a_warm_up_reads_the_file(tmp_path):
    for name in ("rows.jsonl", "rows.csv"):
        out = tmp_path / name
        command = ["data", "ant-colony-demonstrations", "--out", str(out), "--rows", "50"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert len(sft_rows(out)) == 50
    assert sft_rows(tmp_path / "rows.csv") == sft_rows(tmp_path / "rows.jsonl")


def test_a_folder_is_a_data_set_of_the_hub(tmp_path):
    """`datasets.load_dataset` reads the files that `configs` names, each line a JSON object."""
    out = tmp_path / "ants"
    command = ["data", "ant-colony-demonstrations", "--rows", "50", "--set", "tier=0"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert [str(file) for file in published_files(out, data=True)] == ["README.md", "train.jsonl"]
    card = DatasetCard.load(out / "README.md")
    (config,) = card.data.to_dict()["configs"]
    ((split,),) = [config["data_files"]]
    assert (config["config_name"], split) == ("default", {"split": "train", "path": "train.jsonl"})
    found = [json.loads(line) for line in (out / split["path"]).read_text().splitlines()]
    assert found == list(islice(rows_of_seed(0, tier=0), 50))
    assert {tuple(row) for row in found} == {("prompt", "completion", "tier")}
    assert len(sft_rows(out / "train.jsonl")) == 50
    told = "turnwise data ant-colony-demonstrations --out ants --rows 50 --seed 0 --set tier=0"
    assert told in card.text and str(tmp_path) not in card.text
    assert json.dumps(found[0]["prompt"]) in card.text


def rows_of_seed(seed, **options):
    return AntColonyDemonstrations(**options).rows(
        generator(seed, "data", "ant-colony-demonstrations")
    )


def test_other_endings_and_folders_that_exist_are_refused(tmp_path):
    for out, said in ((tmp_path / "a.txt", "have no ending, which makes"), (tmp_path, "exists:")):
        done = CliRunner().invoke(app, ["data", "ant-colony-demonstrations", "--out", str(out)])
        assert done.exit_code == 2 and said in done.output.replace("\n", " "), done.output
