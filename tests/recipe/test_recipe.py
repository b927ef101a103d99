"""Recipes: what is shipped loads and survives TOML; what is wrong fails in one sentence."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.app.stages import without_adapters
from turnwise.credit.schemes import SCHEMES
from turnwise.envs import ENVS
from turnwise.errors import ConfigError, UnknownNameError
from turnwise.recipe.schema import (
    TRL_NAMES,
    Recipe,
    load_recipe,
    parse_override,
    recipe_names,
    recipe_summary,
)

LAKE = "frozen-lake"


def presets_of(name):
    text = (resources.files("turnwise") / "recipes" / f"{name}.toml").read_text()
    return tomllib.loads(text).get("presets", {})


SHIPPED = [(name, preset) for name in recipe_names() for preset in ("", *presets_of(name))]


@pytest.mark.parametrize(("name", "preset"), SHIPPED)
def test_every_shipped_recipe_resolves_to_toml_and_back(tmp_path, name, preset):
    recipe = load_recipe(name, [f"preset={preset}"] if preset else [])
    assert recipe.name == name
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml())
    again = load_recipe(str(path))
    assert again == recipe
    assert again.to_toml() == recipe.to_toml()


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_has_a_smoke_preset_and_a_summary(name):
    assert "smoke" in presets_of(name)
    summary = recipe_summary(name)
    assert summary["name"] == name
    assert summary["env"] in ENVS
    assert summary["presets"] == sorted(presets_of(name))


@pytest.mark.parametrize(
    "overrides",
    [
        ["credit.scheme=rloo", "credit.gamma=none", "credit.state_weight=none"],
        ["credit.std=group"],
        ["loss.kind=gspo", "loss.kl=loss_k3", "loss.kl_weight=0.1"],
        ["loss.aggregation=constant", "loss.constant_length=64"],
        ["policies.main.lora={rank=4,targets=['q_proj','v_proj']}"],
        ["warmup=none", "evaluation.target=0.5"],
        ["optimizer.max_grad_norm=inf"],
        [
            "env.options.map=['SF','FG']",
            "env.options.size=none",
            "env.training=none",
            "env.warmup=none",
        ],
        ["agents.player.system=Play \"well\", 'always'.", "trainer.dynamic_sampling=true"],
    ],
)
def test_overridden_recipes_survive_toml(tmp_path, overrides):
    recipe = load_recipe(LAKE, [*overrides, "credit.segments=none", "credit.std_floor=none"])
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml())
    assert load_recipe(str(path)) == recipe


@pytest.mark.parametrize(
    ("override", "pair"),
    [
        ("trainer.iterations=3", ("trainer.iterations", 3)),
        ("optimizer.lr = 2e-4", ("optimizer.lr", 2e-4)),
        ("trainer.dynamic_sampling=true", ("trainer.dynamic_sampling", True)),
        ("device=cuda", ("device", "cuda")),
        ("device='cuda'", ("device", "cuda")),
        ("credit.rewards={goal=1.0}", ("credit.rewards", {"goal": 1.0})),
        ("env.options.map=['SF','FG']", ("env.options.map", ["SF", "FG"])),
        ("warmup=none", ("warmup", None)),
        ("credit.std='none'", ("credit.std", "none")),
        ("agents.player.system=a = b", ("agents.player.system", "a = b")),
        ("agents.player.system=", ("agents.player.system", "")),
    ],
)
def test_overrides_are_toml_or_plain_text(override, pair):
    assert parse_override(override) == pair


@pytest.mark.parametrize("override", ["seed", "=3", " =3", ""])
def test_an_override_without_key_or_value_is_refused(override):
    with pytest.raises(ConfigError, match=r"must look like section\.key=value"):
        load_recipe(LAKE, [override])


def test_overrides_that_are_one_text_are_refused():
    with pytest.raises(ConfigError, match=r"overrides = 'seed=1': expected a list, as in"):
        load_recipe(LAKE, "seed=1")


@given(st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_plain_value_is_read_as_itself(value):
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    assert parse_override(f"a.b={text}") == ("a.b", value)


@given(st.text())
def test_no_override_crashes_the_parser(text):
    try:
        key, _ = parse_override(text)
    except ConfigError:
        assert not text.partition("=")[1] or not text.partition("=")[0].strip()
    else:
        assert key


def test_overrides_apply_in_order_over_the_preset_wherever_it_stands():
    recipe = load_recipe(LAKE, ["trainer.group_size=3", "preset=smoke", "seed=1", "seed=2"])
    assert recipe.trainer.group_size == 3
    assert recipe.trainer.iterations == load_recipe(LAKE, ["preset=smoke"]).trainer.iterations
    assert recipe.seed == 2


def test_none_takes_a_key_out_and_tables_merge():
    base = load_recipe(LAKE)
    assert load_recipe(LAKE, ["warmup=none"]).warmup is None
    assert load_recipe(LAKE, ["trainer=none"]).trainer == Recipe.model_fields["trainer"].default
    more = load_recipe(LAKE, ["credit.rewards={expert=0.5}"]).credit.rewards
    assert more == base.credit.rewards | {"expert": 0.5}
    only = load_recipe(LAKE, ["credit.rewards=none", "credit.rewards={expert=0.5}"]).credit.rewards
    assert only == {"expert": 0.5}
    less = load_recipe(LAKE, ["credit.rewards.progress=none"]).credit.rewards
    assert less == {name: w for name, w in base.credit.rewards.items() if name != "progress"}


@pytest.mark.parametrize("phase", ["options", "training", "warmup"])
def test_an_unknown_option_of_the_env_is_refused_without_a_value_too(phase):
    with pytest.raises(ConfigError, match="frozenprobability"):
        load_recipe(LAKE, [f"env.{phase}.frozenprobability=none"])


@pytest.mark.parametrize(
    ("key", "section"),
    [("trainer.hindsight.most", "hindsight"), ("trainer.hindsight.weight", "hindsight")],
)
def test_a_section_does_not_come_in_by_a_key_without_a_value(key, section):
    without = load_recipe("arc-draw-solve", ["preset=grpo", f"{key}=none"])
    assert getattr(without.trainer, section) is None
    there = load_recipe("arc-draw-solve", ["preset=hybrid", f"{key}=none"])
    assert getattr(there.trainer, section) is not None
    assert load_recipe(LAKE, ["pretrain.steps=none"]).pretrain is None


def test_none_is_the_value_of_that_name_where_an_option_has_one():
    def drawing(*overrides):
        return load_recipe("arc-draw-solve", ["preset=hindsight", *overrides])

    assert drawing("trainer.relabel=none").trainer.relabel == "none"
    assert drawing("trainer.relabel=shuffled", "trainer.relabel=none").trainer.relabel == "none"
    assert load_recipe(LAKE, ["credit.scheme=grpo", "credit.std=none"]).credit.std == "none"
    assert load_recipe(LAKE, ["credit.std=none", "credit.scheme=grpo"]).credit.std == "none"
    assert load_recipe(LAKE, ["credit.scheme=grpo"]).credit.std != "none"
    assert load_recipe(LAKE, ["engine.cache=none"]).engine.cache == "none"
    published = load_recipe("frozen-lake-published", ["env.options.examples=none"])
    assert published.env.options["examples"] == "none"
    shown = ["env.options.examples=right", "env.training.examples=none"]
    assert load_recipe("frozen-lake-published", shown).env.training["examples"] == "none"
    # a scheme without the option, and Python's None, take the key out
    load_recipe(LAKE, ["credit.scheme=rloo", "credit.std=none"])
    assert load_recipe(LAKE, {"engine.cache": None}).engine.cache == "auto"


WRONG = {
    "a misspelt player of the mix": ("sft_mix.player=optimol", "did you mean 'optimal'"),
    "a player of a mix of rows": (
        "sft_mix={data='rows.jsonl',player='optimal'}", "chooses what demonstrations show",
    ),
    "a misspelt key": ("trainer.iteratoins=3", "did you mean 'trainer.iterations'"),
    "a misspelt key without value": ("trainer.grop_size=none", "did you mean 'trainer.group_size'"),
    "a misspelt section": ("trianer.iterations=3", "did you mean 'trainer'"),
    "an unknown key of an agent": ("agents.player.temprature=1", "'agents.player.temperature'"),
    "a misspelt env": ("env.name=frozen-lak", "did you mean 'frozen-lake'"),
    "a misspelt env option": ("env.options.sise=4", "did you mean 'size'"),
    "a misspelt warm-up option": ("env.warmup.solvible=false", "did you mean 'solvable'"),
    "a misspelt preset": ("preset=smok", "did you mean 'smoke'"),
    "a misspelt scheme": ("credit.scheme=gigop", "did you mean 'gigpo'"),
    "a misspelt workflow": ("workflow=trns", "did you mean 'turns'"),
    "a truth value for a number": ("seed=true", "seed = True: input should be a valid integer"),
    "a text for a number": ("optimizer.lr='1'", "input should be a valid number"),
    "a number for a truth value": ("trainer.dynamic_sampling=1", "a valid boolean"),
    "a truth value for an env's number": ("env.options.size=true", "a valid integer"),
    "a misspelt reward": ("credit.rewards.progres=1", "did you mean 'progress'"),
    "a misspelt span of the SFT mix": ("sft_mix.spans={thnk=1.0}", "did you mean 'think'"),
    "a misspelt span": ("loss={entropy_weight=1,entropy_span='actoin'}", "did you mean 'action'"),
    "a number for an adapter": (
        "policies.main.lora=8",
        "policies.main.lora = 8: expected a table, such as {rank = 8}",
    ),
    "a switch for a table": ("policies.main.lora=true", "a table, with any of rank, alpha"),
    "a misspelt segment": ("credit.segments.thnk=perception", "did you mean 'think'"),
    "a misspelt segment reward": ("credit.segments.think=perceptoin", "did you mean 'perception'"),
    "an unknown kind of policy": ("policies.main.kind=remot", "did you mean 'remote'"),
    "a key of no scheme": ("credit.gama=0.5", "unknown key 'credit.gama'"),
    "a key of another scheme": (
        ("credit.scheme=rloo", "credit.state_weight=1.0"), "does not apply to scheme = 'rloo'",
    ),
    "an unknown workflow": ("workflow=tuns", "did you mean 'turns'"),
    "options of a workflow without any": ("workflow.options.n=1", "takes no options"),
    "a stage twice": ("stages=['warmup','warmup']", "names a stage twice"),
    "a base after training": ("stages=['trainer','pretrain']", "put it first"),
    "no stages": ("stages=[]", "trains nothing"),
    "nothing trained": ("policies.main.trainable=false", "nothing would be trained"),
    "a rate of a frozen policy": (
        ("policies.main.trainable=false", "policies.main.lr=0.1"), "leave one out",
    ),
    "an unknown loss": ("loss.kind=ppo", "unknown loss.kind 'ppo': did you mean 'gspo'"),
    "a word for a number": ("trainer.iterations=many", "trainer.iterations = 'many'"),
    "a number for a word": ("device=3", "device = 3"),
    "a fraction for a count": ("trainer.group_size=2.5", "trainer.group_size = 2.5"),
    "a table for a number": ("seed={a=1}", "seed = "),
    "a number for a table": ("optimizer=3", "optimizer = 3"),
    "too small": ("optimizer.lr=0", "greater than 0"),
    "an unknown role": ("agents.referee.max_tokens=3", "has the roles"),
    "an unknown policy": (
        "agents.player.policy=mian",
        "agents.player.policy: unknown policy 'mian': did you mean 'main'",
    ),
    "two policies": ("policies.other.model=nano", "plays no role"),
    "no rewards": ("credit.rewards=none", "every return would be 0"),
    "more mini-batches than groups": ("trainer.minibatches=99", "lower minibatches"),
    "refills without refilling": ("trainer.max_refills=2", "needs dynamic_sampling"),
    "a best of too many": (
        ["credit.scheme=max_at_k", "credit.k=8", "trainer.group_size=8"],
        "set credit.k to 7 or less",
    ),
    "a lone episode": ("trainer.group_size=1", "nothing to compare"),
    "the trainer's own ratio from the engine": (
        ("trainer.old_logprobs=behaviour", "loss.kind=gspo"), "need the trainer's own",
    ),
    "a truncated weight of one": (
        ("trainer.old_logprobs=behaviour", "loss.tis_cap=2"), "need the trainer's own",
    ),
    "refilling one batch": (
        ("credit={scheme='reinforce'}", "credit.gamma=none", "credit.state_weight=none",
         "credit.std_floor=none", "credit.segments=none", "trainer.dynamic_sampling=true"),
        "refills groups",
    ),
    "a long rise": ("optimizer.warmup_steps=99999", "outlasts"),
    "a long rise of the warm-up": ("warmup.optimizer.warmup_steps=99999", "outlasts"),
    "nothing to do": (("warmup=none", "trainer.iterations=0"), "trains nothing"),
    "a bonus for a span without a bonus": (
        ("loss.entropy_weight=0", "loss.entropy_span=action"), "without a bonus",
    ),
    "a weight for no distance": ("loss.kl_weight=0.1", "kl = 'none'"),
    "a model and sizes": (("policies.main.model=x/y", "policies.main.nano.layers=1"), "`nano`"),
    "a map and a size": (("env.options.map=['SF','FG']", "env.options.size=5"), "leave one out"),
    "an impossible map": (("env.options={map=['SH','HG']}", "env.options.size=none"), "no way"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_recipe_fails_in_a_sentence_with_the_cure(case):
    overrides, words = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        load_recipe(LAKE, [overrides] if isinstance(overrides, str) else overrides)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


GIVES_WAY = {
    "credit.scheme=grpo": "credit.scheme = 'grpo': left out the recipe's credit.gamma = 0.5, "
    "credit.state_weight = 8.0",
    "trainer.tasks_per_iteration=2": "trainer.tasks_per_iteration = 2: lowered the recipe's "
    "trainer.minibatches from 4 to 2",
    "trainer.iterations=1": "training takes 4 optimizer steps: lowered the recipe's "
    "optimizer.warmup_steps from 10 to 4",
    "warmup.steps=5": "warmup.steps = 5: lowered the recipe's warmup.optimizer.warmup_steps from "
    "20 to 5",
    "env.options.map=['SF','FG']": "env.options.map: left out the recipe's env.options.size = 4, "
    "env.training.frozen_probability = 0.5, env.training.traps = 0.3, "
    "env.warmup.frozen_probability = 0.6",
}


@pytest.mark.parametrize("override", GIVES_WAY)
def test_a_recipe_gives_way_to_a_setting_and_says_so(override):
    notes = []
    load_recipe(LAKE, [override], notes.append)
    assert notes == [GIVES_WAY[override]]
    with pytest.warns(UserWarning) as warned:
        load_recipe(LAKE, [override])
    assert [str(each.message) for each in warned] == notes


@pytest.mark.parametrize("name", recipe_names())
def test_every_scheme_and_loss_goes_with_every_recipe(name):
    kinds = ["clipped", "gspo", "cispo"]
    small = ["trainer.tasks_per_iteration=1", "trainer.iterations=1", "policies.main.lora=none"]
    of_episodes = [name for name, scheme in SCHEMES.items() if not scheme.by_sibling]
    if load_recipe(name, [], lambda text: None).topology.kind != "independent":
        small.append("preset=grpo")  # such a recipe has a preset that compares episodes
    for number, scheme in enumerate(of_episodes):
        kind = kinds[number % 3]
        sets = [f"credit.scheme={scheme}", f"loss.kind={kind}", "loss.kl=none", *small]
        recipe = load_recipe(name, sets, lambda text: None)
        assert (recipe.credit.scheme, recipe.loss.kind) == (scheme, kind)
        assert recipe.trainer.minibatches == 1


def test_what_a_user_gives_twice_is_never_left_out():
    for both in (
        ["credit.scheme=grpo", "credit.gamma=0.9"],
        ["loss.kind=cispo", "loss.clip_low=0.1"],
        ["trainer.tasks_per_iteration=2", "trainer.minibatches=3"],
        ["trainer.iterations=1", "optimizer.warmup_steps=9"],
        ["policies.main.model=x/y", "policies.main.nano={layers=1}"],
    ):
        with pytest.raises(ConfigError):
            load_recipe(LAKE, both)


def test_another_env_takes_its_own_options_and_rewards():
    notes = []
    recipe = load_recipe(LAKE, ["env.name=treasure"], notes.append)
    assert recipe.env.options == {}
    assert set(recipe.credit.rewards) == {"right", "looked", "invalid"}
    assert any("credit.rewards.goal" in note for note in notes)


FULL = {
    "iterations": "did you mean 'trainer.iterations'",
    "trainer.lr": "did you mean 'optimizer.lr'",
    "temperature": "did you mean 'agents.player.temperature'",
    "group_sise": "did you mean 'trainer.group_size'",
    "size": "which is env.options.size here",
    "num_generations": "which is trainer.group_size here",
    "learning_rate": "which is optimizer.lr here",
    "beta": "which is loss.kl_weight (with loss.kl) here",
    "max_completion_length": "which is agents.player.max_tokens here",
    "lora_r": "which is policies.main.lora.rank here",
}


@pytest.mark.parametrize("key", FULL)
def test_the_full_key_is_named(key):
    with pytest.raises(ConfigError) as caught:
        load_recipe(LAKE, [f"{key}=3"])
    assert FULL[key] in str(caught.value)


def test_the_keys_that_stand_for_trls_exist():
    data = load_recipe("frozen-lake-lora").model_dump(exclude_none=False)
    for meant in TRL_NAMES.values():
        for key in re.findall(r"[a-z]+\.[a-z_.]+", meant):
            here = data
            for part in key.split("."):
                assert part in here, key
                here = here[part]


def test_an_unknown_recipe_and_a_missing_file_are_named():
    with pytest.raises(UnknownNameError, match="did you mean 'frozen-lake'"):
        load_recipe("frozen-lak")
    with pytest.raises(ConfigError, match=r"no recipe file at 'nowhere/run\.toml'"):
        load_recipe("nowhere/run.toml")


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("name = ")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_recipe(str(path))


def test_what_is_missing_is_said(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('name = "short"\n')
    with pytest.raises(ConfigError) as caught:
        load_recipe(str(path))
    for key in ("env", "policies", "credit"):
        assert f"{key!r} is missing" in str(caught.value)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        load_recipe(LAKE, ["trainer.iteratoins=3", "seed=-1"])
    assert "iteratoins" in str(caught.value)
    assert "seed = -1" in str(caught.value)


def test_recipes_made_in_python_are_checked_too():
    recipe = load_recipe(LAKE)
    with pytest.raises(ValueError, match="nothing to compare"):
        Recipe(**{**recipe.model_dump(), "trainer": {"group_size": 1}})
    assert Recipe(**recipe.model_dump()) == recipe


def test_phases_differ_where_the_recipe_says_so():
    recipe = load_recipe(LAKE, ["env.training.start='random'", "env.warmup.solvable=false"])
    judged, training = recipe.env.make("evaluation").config, recipe.env.make("training").config
    assert (judged.start, training.start) == ("corner", "random")
    assert (judged.solvable, recipe.env.make("warmup").config.solvable) == (True, False)


def test_a_single_episode_may_be_compared_with_itself_as_published():
    single = ["trainer.group_size=1", "credit.own_episode='include'"]
    assert load_recipe(LAKE, single).trainer.group_size == 1
    plain = ["credit={scheme='reinforce'}", "credit.gamma=none", "credit.state_weight=none",
             "credit.std_floor=none", "credit.segments=none"]  # fmt: skip
    assert load_recipe(LAKE, [*plain, "trainer.group_size=1"]).credit.scheme == "reinforce"


def test_a_listing_makes_no_env_and_says_what_the_recipe_says(monkeypatch):
    whole = load_recipe("taxi")
    monkeypatch.setattr(
        "turnwise.recipe.sections.make_guarded", lambda *_: pytest.fail("made an env")
    )
    found = recipe_summary("taxi")
    assert found["env"] == whole.env.name and found["iterations"] == whole.trainer.iterations
    assert found["models"] == {name: policy.model for name, policy in whole.policies.items()}
    assert found["scheme"] == whole.credit.scheme and "smoke" in found["presets"]


def test_scores_that_are_computed_do_not_go_with_another_try():
    for setting in ("evaluation.exact=1", "evaluation.validation=exact"):
        over = ["agents.player.invalid_reply=continue", "env.name=frozen-lake-published", setting]
        with pytest.raises(ConfigError, match="invalid_reply = 'continue' does not go with"):
            load_recipe("frozen-lake", over)
    asked = load_recipe("frozen-lake", ["agents.player.invalid_reply=continue"])
    assert asked.agents["player"].invalid_reply == "continue"


def test_files_of_code_are_looked_for_beside_the_recipe_first(tmp_path, monkeypatch):
    """Data files are, too; what is not there is looked for in the working directory."""
    home, here = tmp_path / "home", tmp_path / "here"
    for folder, names in ((home, ("order", "judge")), (here, ("order", "other"))):
        folder.mkdir()
        for name in names:
            text = f"async def {name}(agents, state): ...\ndef say(completions): ...\n"
            (folder / f"{name}.py").write_text(text)
    (home / "rows.jsonl").write_text('{"prompt": "a"}\n')
    (home / "mine.toml").write_text(
        'name = "mine"\nworkflow = "order.py:order"\npolicies.main = {}\n'
        "credit.rewards = { say = 1.0 }\n[env]\nname = 'rows'\n"
        "options = { path = 'rows.jsonl', reward = ['judge.py:say'] }\n"
    )
    monkeypatch.chdir(here)
    recipe = load_recipe("../home/mine.toml")
    assert recipe.workflow.kind == f"{home / 'order.py'}:order"
    assert recipe.env.options["reward"] == [f"{home / 'judge.py'}:say"]
    other = load_recipe("../home/mine.toml", ["workflow=other.py:other"])
    assert other.workflow.kind == "other.py:other"
    (home / "order.py").unlink()
    assert load_recipe("../home/mine.toml").workflow.kind == "order.py:order"
    monkeypatch.chdir(home)
    (home / "order.py").write_text("async def order(agents, state): ...\n")
    assert load_recipe("mine.toml").env.options["reward"] == ["judge.py:say"]


def test_roles_of_one_policy_reply_in_one_format_where_the_sft_mix_has_spans():
    """Spans name the parts of one format; policies of their own may have different ones."""
    formats = ["agents.scout.reply=lines", "agents.digger.reply=tags"]
    with pytest.raises(ConfigError, match=r"roles of policy 'main' reply as lines and tags"):
        load_recipe("relay", formats)
    load_recipe("relay", [*formats, "sft_mix.spans=none"])
    apart = load_recipe("relay", ["preset=models", *formats])
    assert apart.sft_mix.spans
    assert {role: agent.reply for role, agent in apart.agents.items()} == {
        "scout": "lines",
        "digger": "tags",
    }


def test_one_of_several_policies_may_be_frozen_but_not_all():
    frozen = ["preset=models", "policies.scout.trainable=false"]
    assert load_recipe("relay", frozen).policies["digger"].trainable
    with pytest.raises(ConfigError, match="nothing would be trained"):
        load_recipe("relay", [*frozen, "policies.digger.trainable=false"])


@pytest.mark.parametrize(
    ("overrides", "base"),
    [
        ((), "scout"),
        (("policies.digger.lr=1e-4",), "scout"),
        (("policies.digger.lora.rank=4",), "scout"),
        (("policies.digger.nano.hidden=64",), "digger"),
        (("policies.digger.lora=none", "pretrain=none"), "digger"),
        (("policies.digger.trainable=false",), "digger"),
    ],
)
def test_adapters_stand_on_one_base_where_their_models_are_the_same(overrides, base):
    recipe = load_recipe("relay", ["preset=lora", *overrides])
    assert (recipe.base_of("scout"), recipe.base_of("digger")) == ("scout", base)
    whole = without_adapters(recipe)
    assert list(whole.policies) == list(dict.fromkeys(("scout", base)))
    assert all(policy.lora is None for policy in whole.weights.values())
    assert {role: agent.policy for role, agent in whole.agents.items()} == {
        "scout": "scout",
        "digger": base,
    }


def test_an_empty_table_over_another_is_told_to_change_nothing():
    notes = []
    recipe = load_recipe(LAKE, ["agents={}", "metrics={}"], notes.append)
    assert notes == ["agents = {} changes nothing, as tables are merged; agents = none removes it"]
    assert recipe == load_recipe(LAKE)


def test_presets_that_replace_the_same_are_refused_by_name():
    with pytest.raises(ConfigError, match="'turns' after preset = 'grpo'.*'topology'.*choose one"):
        load_recipe("sokoban-two-policy", ["preset=grpo", "preset=turns"])
