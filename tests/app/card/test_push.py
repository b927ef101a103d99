"""The upload of a card: what a hub receives, and what is refused before it is asked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from turnwise.app.card.push import plan_upload, push
from turnwise.cli.main import app
from turnwise.errors import ConfigError, RunError

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
