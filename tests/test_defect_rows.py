"""Each kind of defect met in real datasets is found, and its sound twin is let be."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from tests import defects
from tests.defects.kit import KINDS, Row, findings, small


def all_rows() -> list[Row]:
    """The rows of every module of the package; `ROWS` may be missing in one that only helps."""
    modules = (
        import_module(f"{defects.__name__}.{m.name}") for m in iter_modules(defects.__path__)
    )
    return [row for module in modules for row in getattr(module, "ROWS", ())]


ROWS = all_rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.row}: {row.rule}")
def test_a_defect_is_found_and_its_twin_is_let_be(tmp_path: Path, row: Row) -> None:
    find = row.find or findings
    broken, sound = tmp_path / "broken", tmp_path / "sound"
    for folder, make in ((broken, row.defect), (sound, row.twin)):
        folder.mkdir()
        make(folder)
    assert row.rule in {f.rule for f in find(broken)}
    assert [str(f) for f in find(sound) if f.rule == row.rule or f.severity == "error"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_defect_has_a_row(kind: str) -> None:
    assert kind in {row.row for row in ROWS}


def test_every_row_is_of_a_kind() -> None:
    assert {row.row for row in ROWS} <= set(KINDS)


@pytest.mark.parametrize("form", ["own", "shipped", "plain"])
def test_the_dataset_that_rows_break_is_sound(tmp_path: Path, form: str) -> None:
    small(tmp_path, form=form)
    assert [str(f) for f in findings(tmp_path) if f.severity != "note"] == []
