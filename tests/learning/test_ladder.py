"""Each step of the ladder adds one difficulty; a step that fails says where learning breaks.

The second step, all states of one map, is in test_mutations.py.
"""


def said(score, references):
    others = ", ".join(f"{name} {value:.2f}" for name, value in references.items())
    return f"scored {score:.3f}; {others}"


def test_one_state_is_learnt(learner, tmp_path):
    states = learner.states(("FSF", "FGF", "FFF"))[1:2]
    env = {"options": {"map": ("FSF", "FGF", "FFF"), "start": "corner"}}
    session = learner.train(
        learner.start(0), 0, tmp_path / "run", env=env, trainer={"iterations": 25}
    )
    score, references = learner.score(session, states), learner.constants(states)
    assert score > 0.9, said(score, references)
