"""Find the files of a dataset's configuration and split among the names of its repository.

The README's YAML front matter decides where it has `configs`; else the names do, as the library
`datasets` reads them: `data/SPLIT-00000-of-00001.parquet`, a folder with the name of a split, a
file with the name of a split, or all files as the training split. Without `configs`, a
configuration is a folder.
"""

import fnmatch
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DEFAULT_CONFIG, DEFAULT_SPLIT = "default", "train"
MAX_FRONT_MATTER = 1 << 20  # bytes
SHARD = re.compile(r"(?P<split>[\w.-]+?)-\d{5}-of-\d{5}[^/]*")
WORDS = {  # {split: words that name it}
    "train": "train|training",
    "validation": "validation|valid|dev|val",
    "test": "test|testing|eval|evaluation",
}
BOUNDED = r"(?<![^-._ 0-9])(?:{})(?![^-._ 0-9])"
IGNORED = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"}


def choose_files(
    place: str, names: Iterable[str], readme: bytes, config: str, split: str, ends: Sequence[str]
) -> list[str]:
    """Return the names of the files of a configuration and a split, in order.

    Args:
      place: what errors begin with.
      names: all files of the repository.
      readme: the content of README.md; b"" if there is none.
      config: name of the configuration; "": the one that the dataset takes by default.
      ends: the ends of the names of the files that are read.

    Raises:
      ValueError: there is no such configuration or split, which lists those that there are; or no
        file is of a form that is read.
    """
    known = [name for name in sorted(names) if _is_visible(name)]
    configs = _read_configs(place, readme)
    if configs:
        entry = _find_config(place, configs, config)
        root = f"{str(entry.get('data_dir') or '').strip('/')}/".lstrip("/")
        files = entry.get("data_files")
        splits = _match_patterns(known, root, files) if files else _infer_splits(known, root, ends)
    else:
        root = _find_folder(place, known, config, ends)
        splits = _infer_splits(known, root, ends)
        folder = [name for name in known if name.startswith(f"{root}{split}/")]
        if split not in splits and folder:
            splits = {split: folder}
    if not splits.get(split):
        listed = ", ".join(name for name, found in splits.items() if found)[:300]
        within = f" of the configuration {config}" if config else ""
        raise ValueError(f"{place}: no split {split!r}{within}; it has {listed or 'none'}")
    return _choose_form(place, splits[split], ends)


# ---- configurations ----------------------------------------------------------


def _read_configs(place: str, readme: bytes) -> dict[str, Mapping[str, Any]]:
    """Return {name: entry} of the configurations in the front matter of a README."""
    match = re.match(rb"\s*---[ \t]*\r?\n(.*?)\r?\n---", readme, re.DOTALL)
    if not match:
        return {}
    if len(match[1]) > MAX_FRONT_MATTER:
        raise ValueError(
            f"{place}: the front matter of README.md has {len(match[1]):,} bytes; at most "
            f"{MAX_FRONT_MATTER:,} are read"
        )
    yaml = importlib.import_module("yaml")  # which huggingface_hub requires
    try:
        # Values stay texts, and merges, of which a few lines can make a billion, are not made.
        matter = yaml.load(match[1].decode("utf-8", "replace"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{place}: the front matter of README.md is no YAML ({reason})") from None
    entries = matter.get("configs") if isinstance(matter, dict) else None
    if not isinstance(entries, list):
        return {}
    return {
        str(entry.get("config_name", DEFAULT_CONFIG)): entry
        for entry in entries
        if isinstance(entry, dict)
    }


def _find_config(
    place: str, configs: Mapping[str, Mapping[str, Any]], name: str
) -> Mapping[str, Any]:
    """Return a configuration by name, or the default one for ""."""
    if name in configs:
        return configs[name]
    listed = ", ".join(configs)[:300]
    if name:
        raise ValueError(f"{place}: no configuration {name!r}; it has {listed}")
    chosen = [entry for entry in configs.values() if entry.get("default") == "true"]
    chosen += [configs[DEFAULT_CONFIG]] if DEFAULT_CONFIG in configs else []
    if not chosen and len(configs) > 1:
        raise ValueError(
            f"{place}: name one of its configurations, as in hf://datasets/USER/NAME/CONFIG: "
            f"{listed}"
        )
    return (chosen or list(configs.values()))[0]


def _find_folder(place: str, names: Sequence[str], config: str, ends: Sequence[str]) -> str:
    """Return the folder of a configuration, with a final /; "" for the whole repository."""
    if not config:
        return ""
    for folder in (f"{config}/", f"data/{config}/"):
        if any(name.startswith(folder) for name in names):
            return folder
    folders = {
        name.partition("/")[0] for name in names if "/" in name and name.endswith(tuple(ends))
    }
    listed = ", ".join(sorted(folders))[:300]
    raise ValueError(f"{place}: no configuration {config!r}; folders are {listed or 'none'}")


# ---- splits ------------------------------------------------------------------


def _match_patterns(names: Sequence[str], root: str, files: Any) -> dict[str, list[str]]:
    """Return {split: files} of `data_files`: patterns, a list of them, or either by split."""
    if isinstance(files, list) and any(isinstance(entry, dict) for entry in files):
        by_split = {
            str(entry.get("split")): entry.get("path") for entry in files if isinstance(entry, dict)
        }
    else:
        by_split = files if isinstance(files, dict) else {DEFAULT_SPLIT: files}
    return {
        str(split): list(
            dict.fromkeys(
                name
                for pattern in (patterns if isinstance(patterns, list) else [patterns])
                for name in names
                if isinstance(pattern, str) and _matches(name, root + pattern.removeprefix("./"))
            )
        )
        for split, patterns in by_split.items()
    }


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern, in which ** stands for any number of folders."""
    parts, reached = name.split("/"), {0}
    for segment in pattern.split("/"):
        if segment == "**":
            reached = set(range(min(reached, default=len(parts) + 1), len(parts) + 1))
        else:
            reached = {
                i + 1 for i in reached if i < len(parts) and fnmatch.fnmatchcase(parts[i], segment)
            }
    return len(parts) in reached


def _infer_splits(names: Sequence[str], root: str, ends: Sequence[str]) -> dict[str, list[str]]:
    """Return {split: files} of the names below a folder."""
    inner = [
        name.removeprefix(root)
        for name in names
        if name.startswith(root) and name.endswith(tuple(ends))
    ]
    for folder in ("data/", "") if not root.startswith("data/") else ("",):
        splits: dict[str, list[str]] = {}
        for name in inner:
            if name.startswith(folder) and (match := SHARD.fullmatch(name.removeprefix(folder))):
                splits.setdefault(match["split"], []).append(root + name)
        if splits:
            return splits
    for select in (lambda name: name.split("/")[:-1], lambda name: name.split("/")[-1:]):
        splits = {
            split: [
                root + name
                for name in inner
                if any(re.search(BOUNDED.format(words), part) for part in select(name))
            ]
            for split, words in WORDS.items()
        }
        if any(splits.values()):
            return splits
    return {DEFAULT_SPLIT: [root + name for name in inner]}


# ---- files -------------------------------------------------------------------


def _is_visible(name: str) -> bool:
    """Return whether a name may be one of data, and stays in its folder."""
    parts = name.split("/")
    hidden = any(not part or part.startswith((".", "__")) or "\\" in part for part in parts)
    return not hidden and parts[-1] not in IGNORED


def _choose_form(place: str, names: Sequence[str], ends: Sequence[str]) -> list[str]:
    """Return the names with the end that most of them have: one dataset has one form."""
    counts = {end: sum(name.endswith(end) for name in names) for end in ends}
    most = max(counts, key=lambda end: counts[end], default="")
    if not counts.get(most):
        raise ValueError(
            f"{place}: {names[0]} is no {', '.join(ends)} file; download the dataset (hf download "
            "--repo-type dataset NAME) and turn it into one of these"
        )
    return [name for name in names if name.endswith(most)]
