"""The options of `sweep`. The standard library is enough: `pod manifest` reads them on a laptop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from data.corpus.paths import is_remote
from pretrain.settings.arguments import (
    Overrides,
    format_optional,
    format_path,
    list_arguments,
)
from pretrain.settings.grid import list_members
from pretrain.settings.verb_options import CONFIG_HELP, VerbOptions, option


def list_choices(overrides: Overrides) -> list[str]:
    """Return `path=a,b` arguments: the given ones, or one for each item of {path: values}.

    A list has the values of a member each; anything else is the value of all members.
    """
    if not isinstance(overrides, Mapping):
        return list_arguments(overrides)
    arguments = []
    for path, values in overrides.items():
        listed = values if isinstance(values, list) else [values]
        texts = [
            word.partition("=")[2] for value in listed for word in list_arguments({path: value})
        ]
        texts = [f"({text})" if "," in text and text[:1] not in "([" else text for text in texts]
        arguments.append(f"{path}={','.join(texts)}")
    return arguments


class SweepOptions(VerbOptions):
    """The options of `sweep`."""

    config: str = option(CONFIG_HELP, "config", kw_only=False, converter=format_path)
    folder: str = option(
        "folder of the sweep, with a workdir for each member; an existing sweep is resumed, and "
        "may have more values then",
        kw_only=False,
        converter=format_path,
    )
    overrides: list[str] = option(
        "changed fields; one with several values, such as optimizer.learning_rate=1e-4,3e-4, "
        "varies. A value that has commas stands in brackets",
        "overrides",
        default=(),
        converter=list_choices,
        kw_only=False,
        nargs="*",
        metavar="path=a,b",
    )
    pretrained: str | None = option(
        "begin each member with the parameters of this run or Hugging Face folder, as by "
        "`train --from`",
        "--from",
        default=None,
        converter=format_optional,
        metavar="PLACE",
    )
    random: int | None = option(
        "train N members drawn at random from all combinations", default=None, metavar="N"
    )
    seed: int = option("seed of --random (default: %(default)s)", default=0)
    jobs: int = option(
        "members that train at the same time on this machine's devices; 0 only compares "
        "(default: %(default)s)",
        default=1,
        metavar="J",
    )
    metric: str | None = option(
        "held-out score that compares the members (default: checkpoint.best, or loss)",
        default=None,
    )
    export: str | None = option(
        "export the best member to this new folder",
        default=None,
        converter=format_optional,
        metavar="FOLDER",
    )
    overwrite: bool = option("replace an earlier export in the folder of --export", default=False)

    def check(self) -> None:
        """Raise ValueError for a number out of range."""
        if self.jobs < 0:
            raise ValueError(f"--jobs {self.jobs}: must be at least 0")
        if is_remote(self.folder) and self.jobs:
            raise ValueError(
                f"--folder {self.folder}: members train below a folder of this machine. On a "
                "cluster `pod manifest` starts each of them; --jobs 0 compares them"
            )

    def list_members(self) -> dict[str, list[str]]:
        """Return {name: overrides} of the members; raise ConfigError as `grid.list_members`."""
        return list_members(self.overrides, self.random, self.seed)

    def list_commands(self, members: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return {name: the verb and the arguments that train a member}."""
        begin = ["--from", self.pretrained] if self.pretrained else []
        return {
            name: ["train", self.config, "--workdir", f"{self.folder}/{name}", *begin, *overrides]
            for name, overrides in members.items()
        }
