"""The documents of turnwise, from the installed wheel or from a checkout.

Error messages refer to them as `turnwise docs NAME`, which works in both.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.errors import ConfigError, unknown_name

PACKAGE = Path(__file__).parents[1]


def document_names() -> dict[str, str]:
    """Return the names of the documents and their titles.

    Example:
        >>> document_names()["why-is-it-not-learning"]
        'Why is it not learning?'
    """
    return {path.stem: _title(path) for path in sorted(_folder().glob("*.md"))}


def read_document(name: str) -> str:
    """Return the text of a document, named as in `document_names` or as "docs/NAME.md".

    Raises:
        UnknownNameError: if there is no such document.
    """
    plain = Path(name).name.removesuffix(".md")
    if plain not in document_names():
        raise unknown_name("document", name, document_names())
    return (_folder() / f"{plain}.md").read_text(encoding="utf-8")


def _folder() -> Path:
    shipped, checkout = PACKAGE / "docs", PACKAGE.parents[1] / "docs"
    for folder in (shipped, checkout):
        if folder.is_dir():
            return folder
    raise ConfigError(f"no documents in '{shipped}': install turnwise again")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
