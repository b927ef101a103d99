"""The upload of a card's folder to the Hugging Face hub.

Provides `Upload`, `plan_upload`, `push` and `on_the_hub`. Only the files of a card are uploaded, in
one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import warn

from turnwise.app.card.files import (
    DATA,
    HERE,
    README,
    is_published,
    listed,
    published_files,
    published_scores,
)
from turnwise.errors import ConfigError, RunError
from turnwise.runs import Run, read_scores
from turnwise.utils.redaction import without_secrets

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """What is uploaded: `files` of `folder`, as the repository `repo` of `kind` on the hub."""

    folder: Path
    files: tuple[Path, ...]
    repo: str
    kind: str
    private: bool

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum((self.folder / file).stat().st_size for file in self.files)


def plan_upload(
    target: Path, repo: str, *, private: bool = False, note: Callable[[str], None] = warn
) -> Upload:
    """Return what an upload consists of, after all checks that need no network.

    Args:
        target: a card's folder, a data set's, or a run, whose card is written if it has none.
        repo: the name of the repository, "user/name".
        private: whether the repository has to be private; a new one is made so.
        note: receives a sentence on the card of a run that is written, as for `write_card`.

    Raises:
        ConfigError: if the name cannot be one of a repository.
        RunError: if the folder is no card's, or holds other files, or the run has other scores
            than its card.
    """
    _check_name(repo)
    folder = _card_of(target, note) if _is_run(target) else target
    data = (folder / DATA).is_file()
    files = tuple(published_files(folder, data=data))
    kind = "dataset" if data else "model"
    return Upload(folder=folder, files=files, repo=repo, kind=kind, private=private)


def push(upload: Upload, note: Callable[[str], None] = warn) -> str:
    """Upload the files in one commit and return the address of the repository.

    The repository is made if it is not there. In the hub's README.md the code takes the files from
    the repository. Nothing is deleted there.

    Args:
        upload: what is uploaded.
        note: receives a sentence on files of models that the repository holds besides.

    Raises:
        ConfigError: if there is no token.
        RunError: if the hub cannot be reached or refuses the upload, or the repository is public
            and has to be private.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HTTPError,  # pyright: ignore[reportPrivateImportUsage]
        OfflineModeIsEnabled,
    )

    _check_token()
    api, repo = HfApi(), upload.repo
    try:
        kind, private = upload.kind, upload.private
        address = api.create_repo(repo, private=private, repo_type=kind, exist_ok=True)
        if private:
            _check_private(api, upload)
        api.create_commit(
            repo,
            operations=_operations(upload),
            commit_message="Upload with turnwise",
            repo_type=kind,
        )
    except (HTTPError, OfflineModeIsEnabled, ValueError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()
        told = f"{api.endpoint} does not take the upload to '{repo}': {' '.join(said)[:300]}"
        raise RunError(
            f"{without_secrets(told)}; look at the token's rights, the repository's owner and the "
            "network, then push again"
        ) from error
    if upload.kind == "model":
        _note_left(upload, api, note)
    return str(address)


def _check_token() -> None:
    """Refuse a missing token, and one that the client would repeat in its error."""
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        raise ConfigError(
            "there is no token of the Hugging Face hub: set HF_TOKEN to one that may write, or log "
            "in with `hf auth login`"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            "the token of the Hugging Face hub has characters that no token has, such as blanks: "
            "set HF_TOKEN again, or log in with `hf auth login`"
        )


def _check_private(api: HfApi, upload: Upload) -> None:
    """Refuse a public repository that was there before."""
    if not api.repo_info(upload.repo, repo_type=upload.kind).private:
        raise RunError(
            f"'{upload.repo}' is on the hub already and public, and --private makes only new "
            "repositories private: make it private in its settings there, or choose another name"
        )


def on_the_hub(code: str, repository: str) -> str:
    r"""Return code of a card that takes the files from a repository of the hub.

    Example:
        >>> on_the_hub(f"{HERE}\nload(here)", "ann/lake").splitlines()[-2:]
        ['here = snapshot_download("ann/lake")', 'load(here)']
    """
    download = "from huggingface_hub import snapshot_download\n\nhere = snapshot_download"
    return code.replace(HERE, f'{download}("{repository}")')


def _operations(upload: Upload) -> list[CommitOperationAdd]:
    from huggingface_hub import CommitOperationAdd

    operations: list[CommitOperationAdd] = []
    for file in upload.files:
        path = upload.folder / file
        content: str | bytes = str(path)
        if file == Path(README) and upload.kind == "model":
            content = on_the_hub(path.read_text(encoding="utf-8"), upload.repo).encode()
        operations.append(CommitOperationAdd(path_in_repo=file.as_posix(), path_or_fileobj=content))
    return operations


def _note_left(upload: Upload, api: HfApi, note: Callable[[str], None]) -> None:
    """Name the files of models in the repository that the upload does not have."""
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

    with suppress(HTTPError):  # the upload is done, whatever the listing says
        there = map(Path, api.list_repo_files(upload.repo, repo_type=upload.kind))
        left = [str(file) for file in there if file not in upload.files and is_published(file)]
        if left:
            note(
                f"'{upload.repo}' also holds {listed(left)}, which this upload does not have: "
                "delete what an earlier card left there, or loaders may mix two models up"
            )


def _check_name(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
        said = "" if repo.count("/") == 1 else "the owner is missing"
    except HFValidationError as error:
        said = str(error).rstrip(".")
    if said:
        raise ConfigError(
            f"--repo {repo!r} is no name of a repository ({said}): expected USER/NAME, such as "
            "'ann/ant-colony'"
        )


def _is_run(target: Path) -> bool:
    return (target / "recipe.toml").is_file() and not (target / README).is_file()


def _card_of(run: Path, note: Callable[[str], None]) -> Path:
    """Return the card of a run in its own folder, which is written if it is not there."""
    folder = Run.open(run)
    if not folder.card.is_dir():
        from turnwise.app.card.write import write_card  # it imports torch

        return write_card(run, note=note)
    scores, written = read_scores(folder.evaluation), folder.card / folder.evaluation.name
    before = written.read_text(encoding="utf-8") if written.is_file() else ""
    if before and scores is not None and before != published_scores(scores):
        raise RunError(
            f"'{folder.card}' has other scores than run '{run}', which was tested again since: "
            "delete that folder, so that the card is written anew, or push the folder"
        )
    return folder.card
