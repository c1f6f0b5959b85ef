"""Upload of an exported folder to a repository of the Hugging Face Hub, in one commit.

The files are sent first and the commit, which alone makes them visible, last. So an upload that
fails or is killed changes nothing that a reader of the repository sees.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from data.corpus.hub.address import MAIN, check_repository, check_revision
from data.corpus.hub.client import (
    HubError,
    check_online,
    find_owner,
    hiding_progress_bars,
    load_library,
    naming_hub_errors,
)
from data.corpus.hub.declared import compute_hash, read_declared
from pretrain.publish.export_files import (
    find_kind,
    list_export_files,
    list_foreign_weights,
    list_stale_files,
)

MESSAGE = "Upload a model"


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a model is uploaded to.

    Attributes:
      repository: its id, USER/NAME; it is created if there is none.
      branch: the branch of the commit, which is created if there is none.
      private: whether a new repository is private, and a public one refused.
      as_pull_request: whether the commit becomes a pull request, and the branch stays as it is.
      message: the first line of the commit.

    Raises:
      ValueError: a name is malformed.
    """

    repository: str
    branch: str = MAIN
    private: bool = False
    as_pull_request: bool = False
    message: str = MESSAGE

    def __post_init__(self) -> None:
        check_repository(self.repository, owned=True)
        check_revision(self.branch)
        if self.as_pull_request and self.branch != MAIN:
            raise ValueError(
                f"{self.repository}: a pull request begins at {MAIN}; name no other branch"
            )
        if not self.message.strip():
            raise ValueError("the message of a commit has at least one character")


@dataclasses.dataclass(frozen=True)
class Pushed:
    """An upload that the Hub has confirmed.

    Attributes:
      url: the page of the commit, or of the pull request.
      private: whether the repository is private.
      files: {name: bytes} of the export.
    """

    repository: str
    commit: str
    url: str
    private: bool
    files: Mapping[str, int]
    removed: tuple[str, ...] = ()


def check_target(target: Target) -> None:
    """Raise HubError or ValueError if a model cannot be uploaded to a repository; send nothing.

    It looks at the token, its owner, and the repository if it exists. An export takes minutes, so
    check first.
    """
    place = target.repository
    api = _open_api(place)
    owner, namespace = find_owner(api), place.partition("/")[0]
    if (info := _find_repository(api, target)) is not None:
        _check_permission(api, target)
        if target.branch == MAIN:
            _check_remote_files(place, info)
        return
    if target.as_pull_request:
        raise HubError(f"{place}: there is no such repository, so a pull request has no target")
    known = {name.lower(): name for name in (owner.name, *owner.organisations)}
    if namespace.lower() not in known and not owner.is_fine_grained:
        raise HubError(
            f"{place}: there is no such repository, and the token of {owner.name} cannot create it "
            f"under {namespace}; it can under {', '.join(known.values())}"
        )


def _check_permission(api: Any, target: Target) -> None:
    """Raise HubError if the token may not write to the repository; ask, and send no file."""
    probe = load_library().CommitOperationAdd("README.md", b"probe")
    with naming_hub_errors(target.repository):
        api.preupload_lfs_files(target.repository, [probe], create_pr=target.as_pull_request)


def push_folder(
    folder: str | os.PathLike[str], target: Target, report: Callable[[str], Any] = print
) -> Pushed:
    """Upload the files of an export in one commit.

    Files of an earlier export that the new one has not are removed in the same commit. Other files
    of the repository stay.

    Raises:
      FolderError: the folder is no export, or has other files.
      HubError: the Hub refuses, cannot be reached, or has other files in the commit than were sent.
    """
    paths = list_export_files(folder)
    check_target(target)
    return upload_files(paths, target, report)


def upload_files(
    paths: Mapping[str, pathlib.Path], target: Target, report: Callable[[str], Any] = print
) -> Pushed:
    """Upload the files of an export, as `push_folder`, to a target that was checked.

    Raises:
      HubError: as `push_folder`.
    """
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    place, library = target.repository, load_library()
    api = _open_api(place)
    is_new = _create_missing(api, target)
    with naming_hub_errors(place):
        before = api.model_info(place, revision=target.branch, files_metadata=True)
    remote = _check_remote_files(place, before)
    _check_kind(place, remote, paths)
    stale = list_stale_files(remote, paths)
    report(
        f"{place}: uploading {len(paths)} files of {sum(sizes.values()):,} bytes to a "
        f"{'private' if before.private else 'public'} repository"
    )
    operations = [
        *(library.CommitOperationAdd(name, str(path)) for name, path in paths.items()),
        *(library.CommitOperationDelete(name) for name in stale),
    ]
    try:
        with naming_hub_errors(place), hiding_progress_bars():
            made = api.create_commit(
                place,
                operations,
                commit_message=target.message,
                revision=None if target.as_pull_request else target.branch,
                create_pr=target.as_pull_request,
                parent_commit=before.sha,
            )
        commit, url = made.oid, (target.as_pull_request and made.pr_url) or made.commit_url
    except HubError as error:
        commit = _find_commit(api, target, str(before.sha), paths, error)
        if not commit:
            remedy = f"; {place} is new and has no model yet" if is_new else ""
            raise HubError(f"nothing was published{remedy}: {error}") from error
        url = f"{api.endpoint}/{place}/commit/{commit}"
    check_commit(api, place, commit, paths)
    return Pushed(place, commit, str(url), bool(before.private), sizes, tuple(stale))


def _find_commit(
    api: Any, target: Target, parent: str, paths: Mapping[str, pathlib.Path], error: HubError
) -> str:
    """Return the commit that was made although its answer was lost; "" if none was.

    Args:
      parent: the commit before.
    """
    try:
        with naming_hub_errors(target.repository):
            head = api.model_info(target.repository, revision=target.branch).sha
    except HubError as second:
        raise HubError(f"{error}. It is unknown whether a commit was made: {second}") from error
    if head == parent or target.as_pull_request:
        return ""
    try:
        check_commit(api, target.repository, head, paths)
    except HubError:  # the commit of somebody else
        return ""
    return head


def check_commit(api: Any, place: str, commit: str, paths: Mapping[str, pathlib.Path]) -> None:
    """Raise HubError unless a commit has the files, with their sizes and hashes."""
    with naming_hub_errors(place):
        info = api.model_info(place, revision=commit, files_metadata=True)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    for name, path in paths.items():
        if name not in siblings:
            raise HubError(
                f"{place}: the commit {commit} lacks {name}; does a .gitignore of the repository "
                "exclude it?"
            )
        declared = read_declared(place, siblings[name])
        same = declared.size == path.stat().st_size
        if not same or compute_hash(path, declared) != (declared.sha256 or declared.blob):
            raise HubError(f"{place}: {name} of the commit {commit} is not the file that was sent")


def _open_api(place: str) -> Any:
    """Return the library's `HfApi`. Raises HubError if HF_HUB_OFFLINE forbids its use."""
    library = load_library()
    check_online(place)
    return library.HfApi()


def _check_remote_files(place: str, info: Any) -> list[str]:
    """Return the names of the files of a repository. Raises HubError for weights of others."""
    names = [sibling.rfilename for sibling in info.siblings or ()]
    if foreign := list_foreign_weights(names):
        raise HubError(
            f"{place}: has {foreign[0]}, which no export writes, so a reader could load another "
            "model than this one; remove it there, or name another repository"
        )
    return names


def _check_kind(place: str, remote: list[str], paths: Mapping[str, pathlib.Path]) -> None:
    """Raise HubError if an adapter would replace a whole model in a repository, or the reverse."""
    if not any(name.endswith(".safetensors") for name in remote):
        return
    has_adapter, is_adapter = find_kind(remote) == "peft", find_kind(paths) == "peft"
    if has_adapter != is_adapter:
        one, other = ("an adapter", "a whole model")[:: 1 if has_adapter else -1]
        raise HubError(f"{place}: has {one}, which {other} would replace; name another repository")


def _find_repository(api: Any, target: Target) -> Any:
    """Return the library's description of the repository; None if there is none."""
    errors = load_library().errors
    place = target.repository
    with naming_hub_errors(place):
        try:
            info = api.model_info(place)
        except errors.RepositoryNotFoundError:
            return None
    if target.private and not info.private:
        raise HubError(
            f"{place}: exists and is public, so --private would not hold; make it private on its "
            "page, or name another repository"
        )
    return info


def _create_missing(api: Any, target: Target) -> bool:
    """Create the repository and the branch if there are none; return whether the first is new."""
    errors = load_library().errors
    place, is_new = target.repository, _find_repository(api, target) is None
    with naming_hub_errors(place):
        if is_new:
            api.create_repo(place, private=target.private or None, exist_ok=True)
        try:
            api.model_info(place, revision=target.branch)
        except errors.RevisionNotFoundError:
            api.create_branch(place, branch=target.branch, exist_ok=True)
    return is_new
