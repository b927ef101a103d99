"""The upload of a card's folder to the Hugging Face hub.

Provides `Upload`, `plan_upload`, `push` and `on_the_hub`. Only the files of a card are uploaded, in
one commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnwise.app.card.files import DATA, HERE, README, published_files
from turnwise.errors import ConfigError, RunError
from turnwise.runs import Run


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


def plan_upload(target: Path, repo: str, *, private: bool = False) -> Upload:
    """Return what an upload consists of, after all checks that need no network.

    Args:
        target: a card's folder, a data set's, or a run, whose card is written if it has none.
        repo: the name of the repository, "user/name".
        private: whether a new repository is private.

    Raises:
        ConfigError: if the name cannot be one of a repository.
        RunError: if the folder is no card's, or holds other files.
    """
    _check_name(repo)
    folder = _card_of(target) if _is_run(target) else target
    data = (folder / DATA).is_file()
    files = tuple(published_files(folder, data=data))
    kind = "dataset" if data else "model"
    return Upload(folder=folder, files=files, repo=repo, kind=kind, private=private)


def push(upload: Upload) -> str:
    """Upload the files in one commit and return the address of the repository.

    The repository is made if it is not there. In the hub's README.md the code takes the files from
    the repository.

    Raises:
        ConfigError: if there is no token.
        RunError: if the hub cannot be reached or refuses the upload.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import (
        HTTPError,  # pyright: ignore[reportPrivateImportUsage]
        OfflineModeIsEnabled,
    )

    if not get_token():
        raise ConfigError(
            "there is no token of the Hugging Face hub: set HF_TOKEN to one that may write, or log "
            "in with `hf auth login`"
        )
    api, repo = HfApi(), upload.repo
    try:
        kind, private = upload.kind, upload.private
        address = api.create_repo(repo, private=private, repo_type=kind, exist_ok=True)
        api.create_commit(
            repo,
            operations=_operations(upload),
            commit_message="Upload with turnwise",
            repo_type=kind,
        )
    except (HTTPError, OfflineModeIsEnabled, ValueError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()
        raise RunError(
            f"{api.endpoint} does not take the upload to '{repo}': {' '.join(said)[:300]}; look at "
            "the token's rights, the repository's owner and the network, then push again"
        ) from error
    return str(address)


def on_the_hub(code: str, repository: str) -> str:
    r"""Return code of a card that takes the files from a repository of the hub.

    Example:
        >>> on_the_hub(f"{HERE}\nload(here)", "ann/lake").splitlines()[-2:]
        ['here = snapshot_download("ann/lake")', 'load(here)']
    """
    download = "from huggingface_hub import snapshot_download\n\nhere = snapshot_download"
    return code.replace(HERE, f'{download}("{repository}")')


def _operations(upload: Upload) -> list:
    from huggingface_hub import CommitOperationAdd

    operations = []
    for file in upload.files:
        path = upload.folder / file
        content: str | bytes = str(path)
        if file == Path(README) and upload.kind == "model":
            content = on_the_hub(path.read_text(encoding="utf-8"), upload.repo).encode()
        operations.append(CommitOperationAdd(path_in_repo=file.as_posix(), path_or_fileobj=content))
    return operations


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


def _card_of(run: Path) -> Path:
    """Return the card of a run in its own folder, which is written if it is not there."""
    card = Run.open(run).card
    if card.is_dir():
        return card
    from turnwise.app.card.write import write_card  # it imports torch

    return write_card(run)
