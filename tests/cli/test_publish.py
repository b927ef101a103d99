"""`turnwise card` and `turnwise push` at the command line, on a run of all weights."""

from __future__ import annotations

import re
import subprocess
import sys

from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from turnwise.cli.main import app


def test_a_run_of_all_weights_becomes_a_model(turnwise, smoke_run, tmp_path):
    out = tmp_path / "card"
    done = turnwise("card", smoke_run, "--out", out, "--license", "mit")
    assert done.exit_code == 0, done.output
    assert "model.safetensors" in done.output
    assert done.output.splitlines()[-1].endswith("README.md")
    text = (out / "README.md").read_text()
    assert "library_name: transformers" in text and "base_model" not in text
    assert 'license: "mit"' in text and "all weights, trained from a model that the run" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "peft" not in code and "from_pretrained(here)" in code
    blocked = "import sys\nsys.modules['turnwise'] = None\n"
    ran = subprocess.run(
        [sys.executable, "-c", blocked + code], cwd=out, capture_output=True, text=True, timeout=250
    )
    assert ran.returncode == 0 and ran.stdout, ran.stderr
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.generation_config.eos_token_id is not None

    shown = turnwise("push", out, "--repo", "ann/lake", "--dry-run")
    assert shown.exit_code == 0 and "as model 'ann/lake'" in shown.output
    refused = turnwise("push", smoke_run / "checkpoints", "--repo", "ann/lake")
    assert refused.exit_code == 2 and "has no README.md" in refused.output.replace("\n", " ")


def test_a_card_of_no_run_is_refused(turnwise, tmp_path, is_one_sentence):
    is_one_sentence(turnwise("card", tmp_path / "none"), "there is no run folder at")
    is_one_sentence(turnwise("card", tmp_path), "is not a complete run folder")


def test_both_commands_have_help():
    for name, words in (("card", "--license"), ("push", "--dry-run")):
        done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
        assert done.exit_code == 0 and words in done.output
