"""The text of `dataset.toml`, Harbor's list of a dataset's tasks with their digests.

Harbor reads it only in the folder that holds the task folders, and needs a name for every task.
What a maintainer wrote there by hand (authors, keywords, files, metadata) is kept.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbench_build.rules import harbor

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table

NAME = "dataset.toml"


class DatasetTomlError(ValueError):
    """A hand-written `dataset.toml` isn't one."""


def dataset_toml(
    template: str,
    *,
    name: str,
    version: str,
    description: str,
    tasks: Mapping[str, str],
    files: Mapping[str, str],
) -> str:
    """The file, from a hand-written one (or an empty text).

    `tasks` are Harbor's digests by Harbor's names, `files` the digests of files beside it by name:
    those that the hand-written one lists get theirs filled in. Raises `DatasetTomlError`.
    """
    if not template:
        return _new(name, version, description) + _references(tasks)
    import tomlkit  # noqa: PLC0415 - few datasets have a hand-written one

    document = _parsed(template)
    about = _table(document, "dataset")
    about["name"] = about.get("name") or name
    about["version"] = version
    if description and not about.get("description"):
        about["description"] = description
    document.pop("tasks", None)
    _fill_in(document, files)
    return tomlkit.dumps(document).rstrip("\n") + "\n" + _references(tasks)


def listed_files(template: str) -> tuple[str, ...]:
    """The files beside `dataset.toml` that a hand-written one lists. Raises `DatasetTomlError`."""
    entries = _parsed(template).get("files", []) if template else []
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise DatasetTomlError("files: must be written as [[files]] tables")
    return tuple(str(entry.get("path", "")) for entry in entries)


def dataset_digest(template: str, tasks: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Harbor's digest of the dataset that `dataset_toml` describes."""
    listed = {name: files[name] for name in listed_files(template) if name in files}
    return harbor.dataset_digest(tasks.values(), listed)


def _new(name: str, version: str, description: str) -> str:
    about = {"name": name, "version": version, "description": description}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in about.items() if value]
    return "".join(["[dataset]\n", *lines])


def _parsed(text: str) -> "TOMLDocument":
    import tomlkit  # noqa: PLC0415 - see above
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise DatasetTomlError(str(error)) from error


def _table(document: "TOMLDocument", key: str) -> "Table":
    import tomlkit  # noqa: PLC0415 - see above
    from tomlkit.items import Table  # noqa: PLC0415

    if key not in document:
        document[key] = tomlkit.table()
    table = document[key]
    if not isinstance(table, Table):
        raise DatasetTomlError(f"{key}: must be a table")
    return table


def _references(digests: Mapping[str, str]) -> str:
    """The tables at the end; as text, since thousands of tomlkit's take a second and 20 MB."""
    return "".join(
        f"\n[[tasks]]\nname = {json.dumps(name)}\ndigest = {json.dumps(value)}\n"
        for name, value in sorted(digests.items())
    )


def _fill_in(document: "TOMLDocument", files: Mapping[str, str]) -> None:
    for entry in document.get("files", []):
        name = str(entry.get("path", ""))
        if name not in files:
            raise DatasetTomlError(f"files: {name!r} isn't beside it")
        entry["digest"] = files[name]
