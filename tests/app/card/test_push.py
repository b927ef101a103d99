"""The upload of a card: what a hub receives, and what is refused before it is asked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from turnwise.app.card.files import published_scores
from turnwise.app.card.push import plan_upload, push
from turnwise.cli.main import app
from turnwise.errors import ConfigError, RunError
from turnwise.runs import RunScores, write_scores

from .hub import TOKEN, hub

README = '---\nlibrary_name: peft\n---\n\n```python\nhere = "."  # this folder\n```\n'


@pytest.fixture
def card(tmp_path):
    """A folder with the files of a card."""
    folder = tmp_path / "card"
    (folder / "base").mkdir(parents=True)
    (folder / "README.md").write_text(README)
    (folder / "recipe.toml").write_text('name = "lake"\n')
    (folder / "base" / "model.safetensors").write_bytes(bytes(range(256)))
    return folder


@pytest.fixture
def server(monkeypatch):
    """A hub on this machine that this process's client talks to, with a token."""
    with hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield found


def test_the_hub_receives_the_files_of_the_card(card, server):
    upload = plan_upload(card, "ann/lake", private=True)
    address = push(upload)
    assert address == f"{server.address}/ann/lake"
    (created,) = server.created
    assert (created["name"], created["organization"], created["type"]) == ("lake", "ann", "model")
    assert created["visibility"] == "private"
    assert set(server.files) == {"README.md", "recipe.toml", "base/model.safetensors"}
    assert server.files["base/model.safetensors"] == bytes(range(256))
    assert b'here = snapshot_download("ann/lake")' in server.files["README.md"]
    assert (card / "README.md").read_text() == README, "the folder itself stays as it is"
    assert any(path.startswith("/api/models/ann/lake/commit/") for path in server.paths)


def test_the_command_uploads_to_the_endpoint_of_the_environment(card):
    with hub() as found:
        command = ["-m", "turnwise", "push", str(card), "--repo", "ann/lake"]
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | {"HF_ENDPOINT": found.address, "HF_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    assert "256  base/model.safetensors" in done.stdout
    assert f"uploaded: {found.address}/ann/lake" in done.stdout
    assert found.created[0].get("visibility") in (None, "public")
    assert len(found.files) == 3 and TOKEN not in done.stdout + done.stderr


def test_a_data_set_goes_to_a_repository_of_data(tmp_path, server):
    (tmp_path / "README.md").write_text("---\nconfigs: []\n---\n")
    (tmp_path / "train.jsonl").write_text('{"prompt": "a"}\n')
    assert push(plan_upload(tmp_path, "ann/rows")) == f"{server.address}/datasets/ann/rows"
    assert server.created[0]["type"] == "dataset"
    assert set(server.files) == {"README.md", "train.jsonl"}


def test_files_of_models_that_the_repository_holds_besides_are_named(card, server):
    push(plan_upload(card, "ann/lake"), note=pytest.fail)
    server.files |= dict.fromkeys(("ant/adapter_config.json", "LICENSE", "notes/a/vocab.txt"), b"")
    notes = []
    push(plan_upload(card, "ann/lake"), note=notes.append)
    (told,) = notes
    assert "'ann/lake' also holds ant/adapter_config.json, which" in told
    assert "ant/adapter_config.json" in server.files


def test_a_wrong_token_is_told(card, server, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        RunError, match="does not take the upload to 'ann/lake': .*look at the token"
    ):
        push(plan_upload(card, "ann/lake"))
    assert server.files == {}


def test_a_hub_that_is_not_there_is_told(card, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(RunError, match=r"http://127\.0\.0\.1:9 does not take the upload"):
        push(plan_upload(card, "ann/lake"))


def test_without_a_token_nothing_is_asked(card, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"no token .*: set HF_TOKEN .* or log in with `hf auth"):
        push(plan_upload(card, "ann/lake"))


@pytest.mark.parametrize("name", ["lake", "a/b/c", "ann/la ke", "ann/lake.git", "ann/-lake"])
def test_a_bad_name_is_refused(card, name):
    with pytest.raises(ConfigError, match=r"is no name of a repository \(.*expected USER/NAME"):
        plan_upload(card, name)


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        "optimizers/main.pt",
        "episodes/train-000001.jsonl",
        "checkpoints/000001-train-1/policies/main/model.safetensors",
        "base/README.md",
        "notes.txt",
    ],
)
def test_a_file_that_is_no_part_of_a_card_is_refused(card, name):
    (card / name).parent.mkdir(parents=True, exist_ok=True)
    (card / name).write_text("x")
    with pytest.raises(RunError, match=f"holds {name}, which is no part of a model card: move it"):
        plan_upload(card, "ann/lake")


def test_a_link_out_of_the_folder_is_refused(card):
    (card / "model.safetensors").symlink_to("/etc/hostname")
    with pytest.raises(RunError, match=r"holds model\.safetensors"):
        plan_upload(card, "ann/lake")


def test_a_link_to_a_folder_is_refused(card, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (card / "adapter").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="holds adapter, which is no part of a model card"):
        plan_upload(card, "ann/lake")


def test_what_is_no_plain_file_is_refused(card):
    os.mkfifo(card / "eval.json")  # reading it would wait for ever
    with pytest.raises(RunError, match=r"holds eval\.json, which is no part of a model card"):
        plan_upload(card, "ann/lake")


def test_weights_of_other_names_are_refused(card):
    (card / "base" / "optimizer.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match=r"holds base/optimizer\.safetensors, which is no part"):
        plan_upload(card, "ann/lake")


def test_a_secret_in_a_text_that_is_not_utf_8_is_refused(card):
    (card / "recipe.toml").write_bytes(b"# \xff\n" + f'token = "{TOKEN}"\n'.encode())
    with pytest.raises(RunError, match="seems to hold a Hugging Face token"):
        plan_upload(card, "ann/lake")


def test_a_public_repository_is_not_taken_for_a_private_one(card, server):
    server.public.add("ann/lake")
    with pytest.raises(RunError, match="'ann/lake' is on the hub already and public"):
        push(plan_upload(card, "ann/lake", private=True))
    assert server.files == {}
    push(plan_upload(card, "ann/lake"))
    assert len(server.files) == 3


@pytest.mark.parametrize("odd", ["\x01", " ", "\u20ac"])
def test_a_token_with_odd_characters_is_not_repeated(card, server, monkeypatch, odd):
    monkeypatch.setenv("HF_TOKEN", f"hf_abc{odd}def")
    with pytest.raises(ConfigError, match="has characters that no token has") as refused:
        push(plan_upload(card, "ann/lake"))
    assert "abc" not in str(refused.value) and server.paths == []


def test_a_card_of_earlier_scores_is_not_uploaded_for_the_run(card, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    card.rename(run / "card")
    (run / "recipe.toml").write_text('name = "lake"\n')
    scores = RunScores(
        env="lake", tasks=9, seed=0, score=0.5, stderr=0.1, score_sampled=0.4,
        score_sampled_stderr=0.1, baselines={}, baselines_stderr={},
    )  # fmt: skip
    write_scores(run / "eval.json", scores)
    (run / "card" / "eval.json").write_text(published_scores(scores))
    assert plan_upload(run, "ann/lake").folder == run / "card"
    write_scores(run / "eval.json", scores.model_copy(update={"score": 0.75}))
    with pytest.raises(RunError, match="card' has other scores than run .*: delete that folder"):
        plan_upload(run, "ann/lake")
    assert plan_upload(run / "card", "ann/lake").folder == run / "card"


def test_a_secret_in_a_file_is_refused(card):
    (card / "recipe.toml").write_text(f'token = "{TOKEN}"\n')
    with pytest.raises(RunError, match="seems to hold a Hugging Face token") as refused:
        plan_upload(card, "ann/lake")
    assert TOKEN not in str(refused.value)


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_refuses_in_a_sentence(tmp_path, card):
    for given, said in (
        ((tmp_path / "none",), "is not there: expected the folder that `turnwise card RUN`"),
        ((card / "README.md",), "is a file: expected the folder"),
        ((tmp_path,), "has no README.md: expected the folder"),
    ):
        done = invoke("push", *given, "--repo", "ann/lake")
        assert done.exit_code == 2 and said in done.output.replace("\n", " "), done.output


def test_a_dry_run_shows_the_files_and_uploads_nothing(card, server):
    done = invoke("push", card, "--repo", "ann/lake", "--private", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "256  base/model.safetensors" in done.output
    assert "in 3 files of" in done.output and "as private model 'ann/lake'" in done.output
    assert server.paths == []
