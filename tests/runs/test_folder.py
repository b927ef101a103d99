import multiprocessing
import os
import re
import tomllib

import pytest
import tomli_w

from turnwise.errors import RunError
from turnwise.runs.folder import Run


def test_a_run_is_called_after_recipe_and_time_and_is_unique(tmp_path):
    runs = [Run.create(tmp_path, "frozen-lake", "seed = 1\n") for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert all(re.match(r"frozen-lake-\d{8}-\d{6}", run.name) for run in runs)
    assert runs[0].recipe.read_text() == "seed = 1\n"
    assert runs[0].episodes.is_dir() and runs[0].checkpoints.is_dir()
    assert Run.open(runs[0].path) == runs[0]


def test_a_given_directory_must_be_new_or_empty(tmp_path):
    run = Run.create(tmp_path, "lake", "", tmp_path / "mine")
    assert run.path == tmp_path / "mine"
    with pytest.raises(RunError, match="already holds a run: go on with it by `turnwise resume"):
        Run.create(tmp_path, "lake", "", tmp_path / "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="not empty"):
        Run.create(tmp_path, "lake", "", tmp_path / "other")
    with pytest.raises(RunError, match="is a file"):
        Run.create(tmp_path, "lake", "", tmp_path / "other" / "thesis.tex")


def test_opening_what_is_not_there_names_the_nearest_run(tmp_path):
    with pytest.raises(RunError, match="turnwise train RECIPE"):
        Run.open(tmp_path / "lake-1")
    Run.create(tmp_path, "lake", "", tmp_path / "lake-1")
    with pytest.raises(RunError, match=r"did you mean '.*lake-1'\?"):
        Run.open(tmp_path / "lake-2")
    with pytest.raises(RunError, match="the latest beside it is"):
        Run.open(tmp_path / "zzzzzzzz")


def test_a_run_is_found_by_the_name_of_its_recipe(tmp_path):
    names = ("orchard-20261125-140326", "orchard-20261125-130821", "two-back-20261125-131645")
    for order, name in enumerate(names):
        run = Run.create(tmp_path, "", "", tmp_path / name)
        os.utime(run.recipe, (order, order))
    for given in ("orchard", "orchrad"):
        with pytest.raises(RunError, match=r"did you mean '.*/orchard-20261125-130821'\?"):
            Run.open(tmp_path / given)  # of several, the latest
    os.utime(tmp_path / names[0] / "recipe.toml", (9, 9))
    with pytest.raises(RunError, match=r"did you mean '.*/orchard-20261125-140326'\?"):
        Run.open(tmp_path / "orchard")
    with pytest.raises(RunError, match=r"the latest beside it is '.*/orchard-20261125-140326'"):
        Run.open(tmp_path / "zzzzzzzz")


def test_an_incomplete_folder_is_refused(tmp_path):
    (tmp_path / "lake-1").mkdir()
    with pytest.raises(RunError, match=r"no recipe\.toml"):
        Run.open(tmp_path / "lake-1")


def hold(run: Run, held, leave) -> None:
    with run.lock():
        held.set()
        leave.wait()


def test_a_folder_in_use_is_refused_with_the_process_and_free_after_a_kill(tmp_path):
    run = Run.create(tmp_path, "lake", "")
    context = multiprocessing.get_context("fork")
    held, leave = context.Event(), context.Event()
    child = context.Process(target=hold, args=(run, held, leave))
    child.start()
    assert held.wait(20)
    with pytest.raises(RunError, match=f"in use by process {child.pid}"), run.lock():
        pass
    child.kill()
    child.join()
    with run.lock():
        assert (run.path / "run.lock").read_text().strip() == str(os.getpid())
    with run.lock():
        pass


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0c"])
def test_a_kept_setting_leaves_all_texts_as_they_are(tmp_path, end):
    text = tomli_w.dumps({"name": "lake", "agents": {"player": {"system": f"a{end}b"}}})
    run = Run.create(tmp_path, "lake", text, tmp_path / "run")
    before = run.recipe.read_text(encoding="utf-8")
    run.keep_setting("processes", 2, "a second core was free")
    run.keep_setting("threads", 1, "measured")
    after = run.recipe.read_text(encoding="utf-8")
    kept = {"processes": 2, "threads": 1}
    assert tomllib.loads(after) == tomllib.loads(before) | kept
    assert "# processes = 2: a second core was free\n# threads = 1: measured\n" in after
