"""The house: imports go down only, and functions stay small enough to be named by a sentence."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kbench_build"
WORDS = {"model", "errors", "digest", "toml"}
FLOORS = {"runtime": 1, "rules": 3, "rim": 3, "steps": 4}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def floor_of(module: str) -> int:
    """The floor of a module named below `kbench_build`, for instance `rules.lock`."""
    top = module.partition(".")[0]
    return FLOORS.get(top, 2 if top in WORDS or not top else 5)


def imports_of(source: Path) -> set[str]:
    """The modules of the house that a file imports, below `kbench_build`."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else str(node.module) for name in names}
    ours = (name for name in found if name.partition(".")[0] == "kbench_build")
    return {name.removeprefix("kbench_build").lstrip(".") for name in ours} - {""}


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of the house rather than a value in one."""
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def name_of(source: Path) -> str:
    parts = source.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_no_import_runs_upward(source: Path) -> None:
    own = name_of(source)
    for imported in imports_of(source):
        assert floor_of(imported) <= floor_of(own), f"{own} imports {imported}"


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_rules_and_rim_never_import_each_other(source: Path) -> None:
    own = name_of(source).partition(".")[0]
    for imported in imports_of(source):
        assert {own, imported.partition(".")[0]} != {"rules", "rim"}, imported


@pytest.mark.parametrize("source", sorted((PACKAGE / "steps").glob("*.py")), ids=name_of)
def test_steps_never_import_steps(source: Path) -> None:
    others = {i for i in imports_of(source) if i.startswith("steps.")}
    assert not others, f"{source.name} imports {others}"


@pytest.mark.parametrize("source", sorted((PACKAGE / "runtime").glob("*.py")), ids=name_of)
def test_the_runtime_imports_nothing_of_ours(source: Path) -> None:
    assert not imports_of(source)


def test_doit_has_one_importer() -> None:
    importers = {
        name_of(s)
        for s in SOURCES
        for node in ast.walk(ast.parse(s.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and any(
            name.partition(".")[0] == "doit"
            for name in (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
        )
    }
    assert importers == {"graph"}


def test_there_are_modules_on_every_floor() -> None:
    assert {floor_of(name_of(s)) for s in SOURCES} == {1, 2, 3, 4, 5}
