import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.envs import Measure
from turnwise.errors import ConfigError, RunError
from turnwise.report import curve
from turnwise.report.curve import LABEL_GAP, _draw_baselines, _spread, draw_curve, png
from turnwise.report.findings import Facts, find_findings
from turnwise.report.report import write_report
from turnwise.report.verdict import verdict
from turnwise.runs.checkpoints import Checkpoints
from turnwise.runs.folder import Run
from turnwise.runs.metrics import MetricsLog
from turnwise.runs.results import RunScores, read_scores, write_scores

HEALTHY = {
    "rollout/score": 0.5,
    "policy/entropy": 0.3,
    "credit/zero_variance_share": 0.4,
    "credit/mixed_share": 0.6,
    "rollout/cut_share": 0.0,
    "rollout/failed_share": 0.0,
    "optim/skipped": 0.0,
}


def scores(**changes) -> RunScores:
    values = {
        "env": "frozen-lake",
        "tasks": 500,
        "seed": 3,
        "score": 0.735,
        "stderr": 0.0123,
        "score_sampled": 0.701,
        "score_sampled_stderr": 0.0131,
        "baselines": {"random": 0.016, "always DOWN": 0.04, "optimal": 0.74},
        "baselines_stderr": {"random": 0.004, "always DOWN": 0.006, "optimal": 0.012},
    }
    if "score" in changes:
        values["score_sampled"] = changes["score"]
    return RunScores(**(values | changes))


def found_in(records, found=None) -> list[str]:
    """Return the sentences of the findings."""
    return [each.sentence for each in find_findings(Facts(records=records, scores=found))]


def played(steps=20, **changes) -> list[dict]:
    return [{"phase": "train", "step": step, **HEALTHY, **changes} for step in range(1, steps + 1)]


@pytest.fixture
def run(tmp_path) -> Run:
    run = Run.create(tmp_path, "frozen-lake", "seed = 3\n", tmp_path / "lake")
    log = MetricsLog(run.metrics)
    costs = {"total/sampled_tokens": 0.0, "total/trained_tokens": 5000.0, "time/total": 20.0}
    log.append(
        "warmup", 25, {"warmup/perception": 0.9, **costs, "total/warmup_optimizer_steps": 25.0}
    )
    for step in range(1, 13):
        costs["total/sampled_tokens"] += 1000
        costs["time/total"] += 10
        steps = {"total/warmup_optimizer_steps": 25.0, "total/optimizer_steps": float(step)}
        log.append("train", step, HEALTHY | costs | steps | {"rollout/score": step / 16})
    log.close()
    return run


def with_warmup(found: RunScores) -> RunScores:
    return scores(
        baselines=found.baselines | {"warmup": 0.021},
        baselines_stderr=found.baselines_stderr | {"warmup": 0.005},
        paired={"warmup": {"difference": 0.714, "stderr": 0.0111}},
        checkpoint="train 12",
    )


def test_the_report_has_results_costs_curve_and_the_way_on(run):
    write_scores(run.evaluation, with_warmup(scores()))
    store = Checkpoints(run.checkpoints)
    store.save("train", 12, lambda folder: None, {}, score=0.75)
    text = write_report(run, command="turnwise train frozen-lake")
    assert run.report.read_text() == text
    for line in (
        "turnwise train frozen-lake",
        "500 tasks of the test split, seed 3, checkpoint train 12",
        "| **trained, greedy** | 0.735 ± 0.012 |  |",
        "| trained, at training temperature | 0.701 ± 0.013 |  |",
        "| before training, greedy | 0.021 ± 0.005 | +0.714 ± 0.011 |",
        "| baseline: optimal | 0.740 ± 0.012 | -0.005 ± 0.017 |",
        "| tokens sampled | 0 | 12,000 | 12,000 |",
        "| optimizer steps | 25 | 12 | 37 |",
        "| seconds | 20 | 120 | 140 |",
        "`checkpoints/000001-train-12` validated best, 0.750",
        "](curve.png)",
    ):
        assert line in text
    assert text.index("optimal") < text.index("always DOWN") < text.index("random")
    assert "Findings" not in text
    assert "tokens prefilled" not in text
    assert run.curve.read_bytes().startswith(b"\x89PNG")


def test_the_report_has_a_table_of_measures(run):
    write_scores(run.evaluation, scores())
    assert "## Measures" not in write_report(run)
    fell = {"falls": Measure(mean=0.25, stderr=0.013, episodes=500)}
    write_scores(run.evaluation, scores(measures=fell, baselines_measures={"random": fell}))
    text = write_report(run)
    assert "| policy | falls |" in text
    assert "| trained, greedy | 0.250 ± 0.013 |" in text
    assert "| random | 0.250 ± 0.013 |" in text
    assert read_scores(run.evaluation).as_metrics()["test/falls"] == 0.25


def test_a_run_that_was_not_tested_says_how_far_it_came(run):
    text = write_report(run)
    assert "Not tested after 12 iterations; training episodes score 0.750" in text


def parts(steps=20, scored=(), **changes) -> list[dict]:
    """Return iterations whose episodes were left; those in `scored` happened to have whole ones."""
    records = played(steps, **changes)
    for record in records:
        record["validation/score"] = record["step"] / (2 * steps)
        record["rollout/episodes"] = 16.0
        if record["step"] not in scored:
            del record["rollout/score"]
    return records


def test_a_run_whose_episodes_are_left_is_judged_by_its_validation():
    facts = Facts(records=parts(), scores=None)
    assert facts.score == "0.05 at the start, 0.487 now (validation/score)"
    assert facts.bounded and facts.risen and not facts.solved
    assert Facts(records=played(), scores=None).score.endswith("(rollout/score)")


def test_a_few_iterations_whose_episodes_all_ended_do_not_stand_for_the_run():
    facts = Facts(records=parts(scored=(3, 4)), scores=None)
    assert facts.score.endswith("(validation/score)")


def test_a_run_of_parts_says_how_far_it_came(tmp_path):
    run = Run.create(tmp_path, "frozen-lake", "seed = 3\n", tmp_path / "lake")
    log = MetricsLog(run.metrics)
    for record in parts(12):
        log.append("train", record["step"], {k: v for k, v in record.items() if "/" in k})
    log.close()
    (line,) = [line for line in write_report(run).splitlines() if line.startswith("Not tested")]
    assert line.startswith("Not tested after 12 iterations; the best validation is 0.500 at 12")


def test_equal_returns_of_parts_are_no_finding_where_returns_differ_otherwise():
    """What episodes that were left go on with is not in their returns."""
    few = {"credit/mixed_share": 0.0, "credit/return_std": 0.5}
    recipe = {"trainer": {"max_turns": 8}}

    def found(recipe, **changes):
        facts = Facts(records=parts(**few | changes), scores=None, recipe=recipe)
        return [each.sentence[:11] for each in find_findings(facts)]

    assert "Only 0% of " not in found(recipe)
    assert "Only 0% of " in found(recipe, **{"credit/return_std": 0.0})
    assert "Only 0% of " in found({})


def axes_of(monkeypatch, tmp_path, records, found=None):
    """Return the panels of the picture: title or label of the y axis -> labels of its lines."""
    kept = []
    monkeypatch.setattr(curve, "png", lambda figure: kept.append(figure) or b"")
    curve.draw_curve(tmp_path / "curve.png", "t", records, found)
    (figure,) = kept
    return {axes.get_title(loc="left") or axes.get_ylabel(): axes for axes in figure.axes}


@pytest.mark.parametrize(
    ("name", "label"),
    [("warmup/perception", "exact descriptions"), ("warmup/readable", "readable replies")],
)
def test_the_picture_says_what_the_warm_up_measured_on_an_axis_of_shares(
    monkeypatch, tmp_path, name, label
):
    warmup = [{"phase": "warmup", "step": n, name: n / 40} for n in range(10, 40, 10)]
    panels = axes_of(monkeypatch, tmp_path, warmup + played())
    labels = panels["score"].get_legend_handles_labels()[1]
    assert labels == [f"warm-up: {label}", "training episodes"]
    assert len(panels) == 4
    returns = played(**{"rollout/score": -4.0})
    panels = axes_of(monkeypatch, tmp_path, warmup + returns)
    assert panels["score"].get_legend_handles_labels()[1] == ["training episodes"]
    own = panels[f"warm-up: {label}"]
    assert own.get_ylim() == (curve.BOTTOM, curve.TOP)
    assert own.lines[0].get_ydata().tolist() == [0.25, 0.5, 0.75]
    assert len(axes_of(monkeypatch, tmp_path, returns)) == 4  # without a warm-up


def test_an_empty_run_has_a_report_and_a_picture(tmp_path):
    run = Run.create(tmp_path, "lake", "")
    assert "no training iteration is finished" in write_report(run)
    assert run.curve.read_bytes().startswith(b"\x89PNG")


def test_without_a_score_of_the_start_the_first_iteration_stands_in(run):
    write_scores(run.evaluation, scores())
    row = "| before training (its first iteration, on training tasks) | 0.062 |  |"
    assert row in write_report(run)


def test_scores_survive_the_file_and_a_wrong_file_is_refused(tmp_path):
    path = tmp_path / "eval.json"
    assert read_scores(path) is None
    write_scores(path, scores())
    assert read_scores(path) == scores()
    path.write_text(json.dumps(scores().model_dump() | {"scor": 1}))
    with pytest.raises(ConfigError, match="unknown key 'scor', did you mean 'score'"):
        read_scores(path)
    for text in ("{", "[]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(RunError, match="is not a JSON object"):
            read_scores(path)


def test_a_healthy_run_has_no_findings():
    assert found_in(played(), scores()) == []
    assert found_in([], None) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy/entropy": 0.001}, "The entropy collapsed before the score rose: 0.001 nats"),
        ({"credit/mixed_share": 0.05}, "Only 5% of the latest groups"),
        ({"rollout/cut_share": 0.5}, "50% of the completions were cut"),
        ({"rollout/failed_share": 0.2}, "20% of the episodes failed"),
        ({"optim/skipped": 1.0}, "20 optimizer steps were skipped"),
    ],
)
def test_each_sickness_is_one_finding_with_its_number(change, words):
    found = found_in(played(**change), scores(score=0.5))
    assert len(found) == 1
    assert found[0].startswith(words)


def test_a_solved_task_needs_no_exploration():
    levels = {"random": 0.1, "optimal": 1.0}
    certain = played(**{"policy/entropy": 0.0, "credit/mixed_share": 0.0})
    assert found_in(certain, scores(score=0.99, stderr=0.01, baselines=levels)) == []
    found = found_in(certain, scores(score=0.5, stderr=0.01, baselines=levels))
    assert [sentence[:11] for sentence in found] == ["The entropy", "Only 0% of "]


def test_the_entropy_of_each_policy_is_judged():
    """The mean over policies stays high while one of them hardly explores."""
    own = {"hands/optim/lr": 1e-3, "eyes/optim/lr": 1e-3}
    own |= {"hands/policy/entropy": 0.001, "eyes/policy/entropy": 0.9, "policy/entropy": 0.45}
    (found,) = found_in(played(**own), scores(score=0.5))
    assert found.startswith(
        "The entropy of policy 'hands' collapsed before the score rose: 0.001 nats"
    )


def test_broken_episodes_are_the_gravest_finding():
    found = found_in(played(**{"policy/entropy": 0.0}), scores(broken=3))
    assert found[0].startswith("3 test episodes were ended by the env or the engine and count 0")


def test_a_score_no_better_than_a_constant_is_the_first_finding():
    found = found_in(played(**{"policy/entropy": 0.0}), scores(score=0.05, stderr=0.01))
    assert "is not clearly above the baseline 'always DOWN' at 0.040" in found[0]
    assert len(found) == 2


def test_a_lead_paired_by_task_counts_where_the_scores_alone_would_not_tell():
    assert len(found_in(played(), scores(score=0.05, stderr=0.01))) == 1
    paired = {"always DOWN": {"difference": 0.01, "stderr": 0.002}}
    assert found_in(played(), scores(score=0.05, stderr=0.01, paired=paired)) == []


def test_reaching_the_optimum_is_no_finding_even_if_a_heuristic_reaches_it_too():
    levels = {"random": 0.1, "shortest-path": 0.99, "optimal": 1.0}
    assert found_in(played(), scores(score=0.99, stderr=0.01, baselines=levels)) == []
    (found,) = found_in(played(), scores(score=0.9, stderr=0.01, baselines=levels))
    assert "'shortest-path' at 0.990" in found


SAMPLED = {"decoding": "sampled", "score": 0.25, "stderr": 0.01, "score_greedy": 0.07,
           "score_greedy_stderr": 0.01, "score_sampled": 0.25, "score_sampled_stderr": 0.01,
           "baselines": {"random": 0.23}, "baselines_stderr": {"random": 0.01}}  # fmt: skip


def test_the_way_of_playing_that_counts_stands_first_and_leads(run):
    records = [{"validation/greedy": 0.1, "validation/sampled": 0.2}]
    log = MetricsLog(run.metrics)
    log.append("train", 13, records[0])
    log.close()
    write_scores(run.evaluation, scores(**SAMPLED, checkpoint="train 0"))
    text = write_report(run)
    first = text.index("| **trained, at training temperature** | 0.250 ± 0.010 |  |")
    assert first < text.index("| trained, greedy | 0.070 ± 0.010 |  |")
    assert "| baseline: random | 0.230 ± 0.010 | +0.020 ± 0.014 |" in text
    assert "The lead is the sampled score minus the row's" in text
    assert "Validation chose the sampled decoding: sampling led by more than its error." in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "Played greedily the policy scores 0.070, below random play's 0.230"),
        ({"score": 0.1, "score_sampled": 0.1}, "**The score 0.100 is below random play's 0.230**"),
        (
            {"decoding": "greedy", "score": 0.5, "score_greedy": 0.5, "score_sampled": 0.1},
            "Sampled at the training temperature the policy scores 0.100, below random play's",
        ),
    ],
)
def test_play_below_random_is_a_finding_in_either_way(change, words):
    first, *_ = found_in(played(), scores(**(SAMPLED | change)))
    assert first.startswith(words)


def test_play_at_the_level_of_random_play_is_not_said_to_be_below_it():
    level = {"score_greedy": 0.21, "score_sampled": 0.22, "score": 0.22}
    assert not any("below random" in each for each in found_in(played(), scores(**SAMPLED | level)))


def test_a_run_that_ends_with_the_weights_of_its_start_is_said_not_to_have_learned():
    same = {"warmup": {"difference": 0.0, "stderr": 0.0}}
    said = verdict(scores(checkpoint="train 0", paired=same))
    assert said.startswith("not learned: no iteration had a better validation score than the start")
    assert verdict(scores(checkpoint="train 0", paired=same), Facts(records=played())) == said


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"trainer": {"minutes": 4.0}}, "as trainer.minutes = 4 were over before the first: raise"),
        (
            {"trainer": {"minutes": 5.0}, "evaluation": {"target": 0.9}},
            "as the start had reached evaluation.target",
        ),
        ({"trainer": {"iterations": 0}}, "raise trainer.iterations"),
    ],
)
def test_a_run_without_an_iteration_is_not_said_to_have_had_one(recipe, words):
    records = [{"phase": "train", "step": 0, "validation/score": 0.5, "time/total": 247.0}]
    said = verdict(scores(checkpoint="train 0"), Facts(records=records, recipe=recipe))
    assert said.startswith("not learned: no iteration was made") and words in said


TRIVIAL = {"warmup": 0.28, "random": 0.341, "always-fir": 0.35, "always-oak": 0.305, "optimal": 1.0}
LEADS = {
    "warmup": 0.066,
    "random": 0.004,
    "always-fir": -0.005,
    "always-oak": 0.04,
    "optimal": -0.6,
}


def beside_trivial(score, **leads) -> RunScores:
    """Return scores whose lead over the warm-up is clear, beside those of trivial policies."""
    paired = {
        name: {"difference": lead, "stderr": 0.02}
        for name, lead in (
            LEADS | {key.replace("_", "-"): lead for key, lead in leads.items()}
        ).items()
    }
    errors = dict.fromkeys(TRIVIAL, 0.02)
    return scores(score=score, baselines=TRIVIAL, baselines_stderr=errors, paired=paired)


def test_a_score_above_the_start_that_a_trivial_policy_has_too_is_not_learned():
    said = verdict(beside_trivial(0.345))
    assert said.startswith(
        "not shown to have learned: 0.07 above warmup (± 0.02, paired), but not clearly above "
        "always-fir (0.350); see"
    )
    said = verdict(beside_trivial(0.4, always_fir=0.05))
    assert "but not clearly above random (0.341)" in said
    above = {"random": 0.16, "always_fir": 0.15, "always_oak": 0.2}
    assert verdict(beside_trivial(0.5, **above)) == "learned: 0.07 above warmup (± 0.02, paired)"


def test_a_constant_that_is_the_optimum_is_no_bar():
    best = {"warmup": 0.2, "constant": 1.0, "optimal": 1.0}
    paired = {"warmup": {"difference": 0.8, "stderr": 0.02}}
    found = scores(
        score=1.0, stderr=0.0, baselines=best, baselines_stderr=dict.fromkeys(best, 0.0),
        paired=paired,
    )  # fmt: skip
    assert verdict(found).startswith("learned: 0.80 above warmup")
    del best["optimal"]
    assert "not clearly above constant (1.000)" in verdict(
        found.model_copy(update={"baselines": best})
    )


def test_a_fall_after_the_best_validation_is_a_finding():
    records = played()
    records[4]["validation/score"], records[-1]["validation/score"] = 0.8, 0.6
    (found,) = found_in(records, scores())
    assert found.startswith("Validation fell by 0.200 after its best at iteration 5")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted))
def test_labels_keep_their_order_and_distance(heights):
    placed = _spread(heights, LABEL_GAP)
    assert all(b - a >= LABEL_GAP - 1e-9 for a, b in pairwise(placed))
    assert placed[-1] <= 1.0


def test_an_env_that_does_not_end_is_named_first_and_the_format_is_not_blamed():
    ends_not = {"rollout/capped_share": 0.4, "rollout/failed_share": 0.6}
    first, *others = found_in(played(**ends_not), scores())
    assert first.startswith("**40% of the episodes were cut at the cap on turns")
    assert "the env 'frozen-lake' does not end them" in first
    assert not any("optimizer.lr" in each or "format" in each for each in (first, *others))
    (lost,) = found_in(played(**{"rollout/failed_share": 0.6}), None)
    assert "has not learned the reply format" in lost


def test_a_name_with_dollars_can_be_drawn(tmp_path):
    """Text between dollars is mathematics to matplotlib, and fails where it is none."""
    from matplotlib.figure import Figure

    draw_curve(tmp_path / "curve.png", r"pay $\foo$ now", [], None)
    figure = Figure()
    axes = figure.add_subplot()
    _draw_baselines(axes, {r"pay $\foo$ now": 0.5}, (0.0, 1.0))
    assert png(figure).startswith(b"\x89PNG")


def test_a_decoding_that_was_not_chosen_and_is_clearly_better_is_named():
    (found,) = found_in(played(), scores(score=0.5, score_sampled=0.701))
    assert found.startswith("The same weights score 0.701 with the sampled decoding")
    for near in (0.5, 0.53, 0.3):
        assert not found_in(played(), scores(score=0.5, score_sampled=near))
