"""The wheel works away from the repository: recipes are in it, and its command trains."""

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
REPOSITORY = Path(__file__).parents[1]


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command with an empty home and no other turnwise on its path; return its output."""
    home = cwd / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = kept | {"HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return the folder of commands of an environment with turnwise's wheel.

    The dependencies are those of the running Python, added by a .pth file: nothing is downloaded,
    and the editable turnwise among them stays out, since .pth files are not followed from there.
    """
    work = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", work, REPOSITORY)
    run(*pip, *wheel, cwd=work)
    venv.create(work / "venv", with_pip=False, symlinks=True)
    python = work / "venv" / "bin" / "python"
    (built,) = work.glob("turnwise-*.whl")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", built, cwd=work)
    say_folder = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", say_folder, cwd=work).strip())
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    where = run(python, "-c", "import turnwise; print(turnwise.__file__)", cwd=work)
    assert Path(where.strip()).is_relative_to(work)
    return python.parent


def test_the_recipes_are_in_the_wheel(installed, tmp_path):
    listed = json.loads(run(installed / "turnwise", "recipes", "--json", cwd=tmp_path))
    assert "frozen-lake" in json.dumps(listed)


def test_the_documents_are_in_the_wheel(installed, tmp_path):
    text = run(installed / "turnwise", "docs", "why-is-it-not-learning", cwd=tmp_path)
    assert text.startswith("# Why is it not learning?")


def test_the_command_trains(installed, tmp_path):
    run(installed / "turnwise", "train", "frozen-lake", "--set", "preset=smoke", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("frozen-lake-")
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any(record["phase"] == "train" for record in records)
    assert list((folder / "checkpoints").iterdir())
    assert (folder / "report.md").read_text().startswith(f"# {folder.name}")
    assert (folder / "curve.png").stat().st_size > 0
