"""Write docs/reference.md: every option of a recipe and of every env, from the config classes.

    python .ci/make_reference.py            # write docs/reference.md
    python .ci/make_reference.py --check    # exit with 1 if it is out of date

The classes are walked from `Recipe`, so a new section or option appears by itself. A table that may
be one of several classes (a discriminated union) has its default kind, then the options of each
kind. Imports no torch.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from turnwise.envs import ENVS, find_env
from turnwise.option_paths import Choice, members_of
from turnwise.recipe.schema import Recipe

TARGET = Path(__file__).parents[1] / "docs" / "reference.md"
COMMAND = "make reference"
FREE_KEYS = {"agents": "<role>"}
"""Table -> what its free keys are; `<name>` in others."""
WORDS = {str: "string", int: "integer", float: "float", bool: "boolean", NoneType: "none"}
BOUNDS = {
    annotated_types.Ge: ("ge", ">="),
    annotated_types.Gt: ("gt", ">"),
    annotated_types.Le: ("le", "<="),
    annotated_types.Lt: ("lt", "<"),
}
HEAD = f"""# Reference

Every option of a recipe: its type, its default, its meaning, and the paper that a default or a
method comes from. `{COMMAND}` generates this page from the config classes. Do not edit it.

A recipe is a TOML file with one table for each section below. One option is overridden by
`turnwise train RECIPE --set trainer.group_size=16`, or in Python by
`settings={{"trainer.group_size": 16}}`. A value of `--set` is read as TOML (`0.5`, `true`,
`["warmup", "trainer"]`, `{{ rank = 8 }}`), and as plain text where it is none. The default `none`
means that the key is absent. `--set KEY=none` removes a key, or gives an option the value "none" if
it has one of that name. Unknown keys are errors.
[Published settings](published-settings.md) lists the values of papers, [Mathematics](math.md) the
formulas, and `turnwise recipes` the shipped recipes. `turnwise recipes frozen-lake`
prints a recipe, as a beginning of your own, and `turnwise envs frozen-lake` describes an env.

## Presets

A recipe may have tables of values that replace its own. `--set preset=NAME` applies one, before all
other values of `--set`:

```toml
[presets.adapters]
without = ["warmup"]                              # keys that are taken out first, dotted paths
policies.main = {{ lora = {{ rank = 8 }} }}
optimizer.lr = 1e-3
```
"""


Classes = tuple[type[BaseModel], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of the recipe: its key, its classes, and what the recipe puts there by default.

    `choice` is the key by which the recipe chooses one of several classes.
    """

    key: str
    classes: Classes
    text: str
    default: Any = None
    many: bool = False
    choice: Choice | None = None

    @property
    def title(self) -> str:
        """The heading: the table as TOML writes it."""
        return f"`[[{self.key}]]`" if self.many else f"`[{self.key}]`"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit status."""
    page = make_reference()
    if "--check" not in arguments:
        TARGET.write_text(page, encoding="utf-8")
    elif not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != page:
        print(f"docs/reference.md is out of date: run `{COMMAND}` and commit the file")
        return 1
    return 0


def make_reference() -> str:
    """Return the page."""
    parts = [HEAD, "## Top level\n", bullets(Recipe, fields_of(Recipe), "")]
    parts += tables(Recipe)
    parts.append(
        "## Options of the envs\n\nGive them under `[env]` as `options = { ... }`, and those that "
        "differ in training or warm-up as `training = { ... }` and `warmup = { ... }`.\n"
    )
    for name in sorted(ENVS):
        env = find_env(name)
        text = (inspect.getdoc(inspect.getmodule(env)) or "").split("\n\n")[0]
        parts.append(f"### Env {name}\n\n{linked(flat(text))}\n")
        parts.append(bullets(env.config_class, fields_of(env.config_class), "env.options"))
    return "\n".join(part for part in parts if part)


def tables(model: type[BaseModel]) -> list[str]:
    """Return the texts of all tables in a config class, in its order."""
    homes: dict[Classes, Section] = {}
    for section in sorted(walk(model, ""), key=lambda each: depth_of(each.key)):
        homes.setdefault(section.classes, section)
    return [part for section in below(model, "") for part in section_parts(section, homes)]


def walk(model: type[BaseModel], key: str) -> Iterator[Section]:
    """Yield the sections below the table `key`, at every depth."""
    for section in below(model, key):
        yield section
        for each in section.classes:
            yield from walk(each, section.key)


def section_parts(section: Section, homes: Mapping[Classes, Section]) -> Iterator[str]:
    """Yield the texts of a section and of those below it.

    Classes whose options are listed in another section, their home, are referred to.
    """
    yield f"{'#' * depth_of(section.key)} {section.title}\n"
    yield f"{linked(flat(section.text))}\n" if section.text else ""
    home = homes[section.classes]
    if home.key != section.key:
        changed = differences(section, home)
        but = f", with other defaults: {', '.join(changed)}" if changed else ""
        yield f"The options are those of {link(home.key)}{but}.\n"
        return
    if len(section.classes) > 1:
        yield from kind_parts(section, homes)
        return
    (model,) = section.classes
    yield described(model)
    yield bullets(model, fields_of(model), section.key, section.default)
    for inner in below(model, section.key):
        yield from section_parts(inner, homes)


def kind_parts(section: Section, homes: Mapping[Classes, Section]) -> Iterator[str]:
    """Yield the options that all classes of a section share, then those of each class."""
    shared = shared_fields(section.classes)
    choice = section.choice
    assert choice is not None, f"{section.key} has several classes and no key that chooses one"
    kinds = [each.model_fields[choice.by].default for each in section.classes]
    names = " or ".join(f"`{toml(kind)}`" for kind in kinds)
    head = f"- `{choice.by}`: {names}, default `{toml(choice.default)}`.\n"
    head += "  Decides which of the options below the table has.\n"
    yield head + bullets(section.classes[0], shared, section.key, section.default)
    for each, kind in zip(section.classes, kinds, strict=True):
        chosen = f"{section.title} with `{choice.by} = {toml(kind)}`"
        yield f"{'#' * (depth_of(section.key) + 1)} {chosen}\n"
        yield described(each)
        own = {k: v for k, v in fields_of(each).items() if k not in shared and k != choice.by}
        yield bullets(each, own, section.key, section.default)
        for inner in below(each, section.key):
            if inner.key.rsplit(".", 1)[-1] in own:
                yield from section_parts(inner, homes)


def depth_of(key: str) -> int:
    """Return the depth of a section's heading; free keys do not count."""
    return 2 + sum(not part.startswith("<") for part in key.split(".")[1:])


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a class by the key that a recipe gives them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def shared_fields(classes: Iterable[type[BaseModel]]) -> dict[str, FieldInfo]:
    """Return the fields that all classes have with the same type, default and text."""
    first, *others = (fields_of(each) for each in classes)
    return {
        key: field
        for key, field in first.items()
        if all(key in each and facts(each[key]) == facts(field) for each in others)
    }


def facts(field: FieldInfo) -> tuple[str, str, str]:
    """Return what the page says of a field."""
    return type_words(field), default_words(field), field.description or ""


def choice_in(annotation: Any) -> Choice | None:
    """Return the choice that an annotation or one of its parts declares."""
    if isinstance(annotation, Choice):
        return annotation
    found = (choice_in(each) for each in get_args(annotation) if each is not annotation)
    return next((each for each in found if each is not None), None)


def below(model: type[BaseModel], key: str) -> Iterator[Section]:
    """Yield the tables inside the table `key` that is of the class `model`."""
    for name, field in fields_of(model).items():
        classes, shape = tables_in(field.annotation)
        if not classes:
            continue
        free = f".{FREE_KEYS.get(name, '<name>')}" if shape == "dict" else ""
        yield Section(
            key=f"{key}.{name}{free}".lstrip("."),
            classes=classes,
            text=field.description or "",
            default=None if shape else default_of(field),
            many=shape == "list",
            choice=choice_in(Annotated[(field.annotation, *field.metadata, None)]),
        )


def tables_in(annotation: Any) -> tuple[Classes, str]:
    """Return the classes that a field's tables may be of, and "dict" or "list" of how many."""
    classes = [each for each in members_of(annotation) if inspect.isclass(each) and is_config(each)]
    if classes:
        return tuple(classes), ""
    for each in members_of(annotation):
        origin, inner = get_origin(each), get_args(each)
        if origin in (dict, Mapping) and tables_in(inner[1])[0]:
            return tables_in(inner[1])[0], "dict"
        if origin in (list, tuple) and inner and tables_in(inner[0])[0]:
            return tables_in(inner[0])[0], "list"
    return (), ""


def is_config(each: Any) -> bool:
    """Return whether a class is a config."""
    return isinstance(each, type) and issubclass(each, BaseModel)


def bullets(
    model: type[BaseModel], fields: Mapping[str, FieldInfo], key: str, default: Any = None
) -> str:
    """Return the list of a table's options; tables among them are links."""
    inner = {section.key: section for section in below(model, key)}
    lines = []
    for name, field in fields.items():
        keys = [k for k in inner if k.removeprefix(f"{key}.").split(".")[0] == name]
        if keys:
            needed = "a table, required" if field.is_required() else "a table"
            if not field.is_required() and default_of(field) is None:
                needed = "none or a table"
            lines.append(f"- `{name}`: {needed}, {link(keys[0])}.")
            continue
        given = getattr(default, name, None) if isinstance(default, model) else None
        words = toml(given) if given is not None and given != field.default else None
        said = linked(flat(field.description or ""))
        told = words or default_words(field)
        told = f"default `{told}`" if told else "required"
        lines.append(f"- `{name}`: {type_words(field)}, {told}.\n  {said}")
    return "\n".join(lines) + "\n" if lines else ""


def type_words(field: FieldInfo) -> str:
    """Return a field's type and bounds, as "integer >= 1 or none"."""
    return kind_words(
        Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    )


def kind_words(annotation: Any) -> str:
    """Return a type in TOML's words."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        metadata = [m for each in metadata for m in getattr(each, "metadata", [each])]
        bounds = [
            f"{sign} {getattr(bound, name)}"
            for bound in metadata
            for kind, (name, sign) in BOUNDS.items()
            if isinstance(bound, kind)
        ]
        words = [kind_words(each) for each in alternatives_kept(inner)]
        where = next((i for i, word in enumerate(words) if word in ("integer", "float")), 0)
        words[where] = " ".join([words[where], " and ".join(bounds)]).strip()
        return " or ".join(words)
    members = alternatives_kept(annotation)
    if len(members) > 1:
        return " or ".join(kind_words(each) for each in members)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{toml(value)}`" for value in inner)
    if origin in (dict, Mapping):
        value = kind_words(inner[1])
        return "table" if value == "any" else f"table of {value}"
    if origin is tuple and Ellipsis not in inner:
        return f"array of {len(inner)} x {kind_words(inner[0])}"
    if origin in (list, tuple):
        return f"array of {kind_words(inner[0])}"
    return WORDS.get(annotation, "any")


def alternatives_kept(annotation: Any) -> list[Any]:
    """Return the members of a union with their own bounds, or the annotation itself."""
    if get_origin(annotation) in (Union, UnionType):
        return [inner for each in get_args(annotation) for inner in alternatives_kept(each)]
    return [annotation]


def default_of(field: FieldInfo) -> Any:
    """Return a field's default; None too where it has none."""
    found = field.get_default(call_default_factory=True, validated_data={})
    return None if found is PydanticUndefined else found


def default_words(field: FieldInfo) -> str:
    """Return a field's default as TOML has it; nothing if it is required."""
    return "" if field.is_required() else toml(default_of(field))


def differences(section: Section, home: Section) -> list[str]:
    """Return the options whose default in `section` is not that in `home`."""
    if len(section.classes) > 1:
        return []
    (model,) = section.classes
    names = {name: field for name, field in model.model_fields.items() if not field.is_required()}
    own, listed = (
        {name: getattr(each.default, name, default_of(field)) for name, field in names.items()}
        for each in (section, home)
    )
    return [f"`{name} = {toml(value)}`" for name, value in own.items() if value != listed[name]]


def toml(value: Any) -> str:
    """Return a value as TOML has it, on one line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {toml(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(each) for each in value)}]"
    return f"{value:g}" if isinstance(value, float) and value != int(value) else str(value)


def described(model: type[BaseModel]) -> str:
    """Return a class's docstring up to its first Google section, as paragraphs."""
    text = re.split(r"\n\n(?:Example|Args|Raises|Returns|Note):\n", inspect.getdoc(model) or "")[0]
    return "\n\n".join(linked(flat(each)) for each in text.split("\n\n")) + "\n"


def flat(text: str) -> str:
    """Return `text` on one line."""
    return re.sub(r"\s+", " ", text).strip()


def linked(text: str) -> str:
    """Return `text` with papers and pages of docs/ as links, and placeholders as code."""
    text = re.sub(r"https?://[^\s),;]*\w", r"<\g<0>>", text)
    text = re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    text = re.sub(r"\bdocs/([a-z-]+\.md)((?: \d+)?)", r"[\1\2](\1)", text)
    return re.sub(r"(?<!`)(<[a-z_]+>)(?![^`]*`)", r"`\1`", text)


def link(key: str) -> str:
    """Return a link to the section of a table."""
    return f"[`[{key}]`](#{re.sub(r'[^a-z0-9_-]', '', key.lower())})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
