"""The report's table of policies, where several are trained."""

from turnwise.report.policies import policy_lines


def record(step, **metrics):
    """Return a record of training in which the named policies took a step."""
    found = {
        f"{policy}/{name}": value
        for policy, values in metrics.items()
        for name, value in values.items()
    }
    return {"phase": "train", "step": step, "optim/lr": 1e-3, **found}  # fmt: skip


def test_each_policy_has_its_own_steps_and_values():
    def values(entropy, norm):
        return {"optim/lr": 1e-3, "policy/entropy": entropy, "optim/grad_norm": norm}

    records = [
        record(1, scout=values(2.0, 1.0), digger=values(4.0, 0.5)),
        record(2, scout=values(1.0, 3.0)),
        record(3),
    ]
    assert policy_lines(records)[2:] == [
        "| policy | iterations with an update | entropy | gradient norm |",
        "|---|---:|---:|---:|",
        "| digger | 1 | 4.000 to 4.000 | 0.500 to 0.500 |",
        "| scout | 2 | 1.500 to 1.000 | 2.000 to 3.000 |",
    ]


def test_one_policy_needs_no_table():
    assert policy_lines([record(1), record(2)]) == []
