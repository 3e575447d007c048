"""What seal keeps of layers goes once no image has them: the oldest first, nothing else."""

import os
from pathlib import Path

from kbench_build.model.layers import KeptLayer
from kbench_build.rim.layer_scan import LayerContents
from kbench_build.rim.layers import SCAN_VERSION, LayerStore
from kbench_build.rules.clean import SETTLED_SEC, Wish
from kbench_build.rules.clean_layers import LayerChoice, choose_layers

NOW = 1_000_000.0
A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
TEXTS = "0" * 64


def kept(name: str, *, size: int = 10, age: float = 9e5) -> KeptLayer:
    return KeptLayer(name=name, files=(f"file of {name}",), size=size, written=NOW - age)


def chosen(*layers: KeptLayer, present: tuple[str, ...] = (), **wishes: float) -> LayerChoice:
    return choose_layers(layers, present, Wish(**wishes), now=NOW)  # type: ignore[arg-type]


def going(choice: LayerChoice) -> list[str]:
    return [each.name for each in choice.going]


def test_what_an_image_has_stays_and_the_rest_goes_oldest_first() -> None:
    choice = chosen(kept(A, age=5), kept(B, age=7), kept(C, age=900), present=(C,))
    assert going(choice) == [B, A]
    assert choice.frees == 20
    assert choice.staying == {"in an image": 1}


def test_age_and_enough_count() -> None:
    layers = [kept(A, age=50), kept(B, age=70), kept(C, age=90)]
    choice = chosen(*layers, older_than=60)
    assert going(choice) == [C, B]
    assert choice.staying == {"too new": 1}
    choice = chosen(*layers, free=15)
    assert going(choice) == [C, B]
    assert choice.staying == {"not needed for what is to be freed": 1}
    assert going(chosen(*layers, free=0)) == []


def test_what_nothing_reads_goes_first_once_nobody_can_be_writing_it() -> None:
    assert going(chosen(kept(A), kept("", age=2 * SETTLED_SEC))) == ["", A]
    assert going(chosen(kept(A), kept("", age=SETTLED_SEC / 2))) == [A]


def test_what_is_kept_is_told_by_the_names_that_the_store_gives(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    assert store.kept() == []
    for layer in (A, B):
        store.keep(layer, LayerContents())
        store.keep_hits(layer, TEXTS, {b"a place": [1]})
    digits = A.partition(":")[2]
    stale = f"{digits}.v{SCAN_VERSION + 1}.contents.zst"
    half = f".{digits}.v{SCAN_VERSION}.contents.zst.abc123"
    others = ("lock", "notes.txt", f"{digits}.zst")
    for name in (stale, half, *others):
        (store.folder / name).write_bytes(b"x")
    (store.folder / f"{'c' * 64}.v{SCAN_VERSION}.contents.zst").symlink_to(tmp_path / "elsewhere")
    (store.folder / f"{'d' * 64}.v{SCAN_VERSION}.contents.zst").mkdir()
    os.utime(store.folder / f"{digits}.v{SCAN_VERSION}.contents.zst", (7, 7))

    found = {each.name: each for each in store.kept()}
    assert {*found} == {"", A, B}
    assert set(found[""].files) == {stale, half}
    assert len(found[A].files) == 2
    assert found[A].size > 0
    assert found[A].written > NOW

    assert store.has(A, TEXTS)
    for name in ("", A):
        store.forget(found[name])
    assert not store.has(A, TEXTS)
    assert store.has(B, TEXTS)
    left = {path.name for path in store.folder.iterdir()}
    assert {*others} <= left
    assert not {stale, half} & left
