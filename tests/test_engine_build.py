"""Images built by a real engine: what a build leaves, and how a failing one is told."""

import os
import stat
import tarfile
import time
from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim.engines import tars
from tests import engine_box
from tests.engine_box import engine, spec

IMAGE = f"{engine_box.NAMESPACE}/built:1"


def _untagged() -> list[str]:
    listed = engine._api.client.images(
        filters={"dangling": True, "label": f"{engine_box.STAGE_LABEL}={engine_box.NAMESPACE}"}
    )
    return [image["Id"] for image in listed]


@pytest.mark.engine
def test_a_build_is_tagged_labelled_and_logged(tiny: str, tmp_path: Path) -> None:
    text = f"FROM {tiny}\nCOPY a /a\nRUN cat /a\n"
    context = {"Dockerfile": text.encode(), "a": b"hello from the context\n"}
    labels = {"dev.kbench.recipe": "r1", engine_box.LABEL: engine_box.NAMESPACE}
    result = engine.build(spec(tmp_path, text, context=context, labels=labels))
    held = engine.images()[IMAGE]
    assert result.status == "built"
    assert (held.id, held.labels["dev.kbench.recipe"]) == (result.image_id, "r1")
    assert result.size > 0
    assert "hello from the context" in (tmp_path / "build.log").read_text()


@pytest.mark.engine
def test_a_failing_build_says_what_failed_and_keeps_the_old_tag(tiny: str, tmp_path: Path) -> None:
    assert engine.build(spec(tmp_path, f"FROM {tiny}\nRUN true\n")).status == "built"
    before = engine.images()[IMAGE].id
    result = engine.build(spec(tmp_path, f"FROM {tiny}\nRUN echo the reason >&2; exit 7\n"))
    assert result.status == "failed"
    assert "returned a non-zero code: 7" in result.error
    assert "\n" not in result.error
    assert "the reason" in result.output
    assert "the reason" in (tmp_path / "build.log").read_text()
    assert engine.images()[IMAGE].id == before


@pytest.mark.engine
def test_a_dockerfile_that_cannot_be_read_is_a_failing_build(tmp_path: Path) -> None:
    result = engine.build(spec(tmp_path, "FORM x\n"))
    assert result.status in ("failed", "engine-error")
    assert "FORM" in result.error


@pytest.mark.engine
def test_a_build_is_stopped_at_its_time_limit(tiny: str, tmp_path: Path) -> None:
    began = time.monotonic()
    result = engine.build(spec(tmp_path, f"FROM {tiny}\nRUN sleep 300\n", timeout_sec=2.0))
    assert (result.status, result.error) == ("timeout", "didn't end within 2 s")
    assert time.monotonic() - began < 20
    _wait_until_no_build_runs()


def _wait_until_no_build_runs() -> None:
    """The engine gives a build up when its client has gone; no container of it stays."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        listed = engine._api.client.containers(all=True)
        if not [c for c in listed if "sleep 300" in c["Command"]]:
            return
        time.sleep(0.2)
    raise AssertionError("the build's container is still there")


@pytest.mark.engine
def test_stage_images_do_not_pile_up(tiny: str, tmp_path: Path) -> None:
    label = f'LABEL {engine_box.STAGE_LABEL}="{engine_box.NAMESPACE}"'
    for turn in range(3):
        text = (
            f"FROM {tiny} AS first\nRUN echo {turn} >/work/x\n{label}\n"
            f"FROM {tiny}\nCOPY --from=first /work/x /x\n"
        )
        assert engine.build(spec(tmp_path, text)).status == "built"
        assert _untagged() == []


@pytest.mark.engine
def test_the_image_replaced_goes_unless_it_has_another_tag(tiny: str, tmp_path: Path) -> None:
    first = engine.build(spec(tmp_path, f"FROM {tiny}\nRUN echo 1 >/n\n")).image_id
    second = engine.build(spec(tmp_path, f"FROM {tiny}\nRUN echo 2 >/n\n")).image_id
    assert first not in _all_images()
    engine._api.client.tag(second, f"{engine_box.NAMESPACE}/kept", tag="1")
    assert engine.build(spec(tmp_path, f"FROM {tiny}\nRUN echo 3 >/n\n")).status == "built"
    assert engine.images()[f"{engine_box.NAMESPACE}/kept:1"].id == second


def _all_images() -> set[str]:
    return {image["Id"] for image in engine._api.client.images(all=True)}


@pytest.mark.engine
def test_a_rebuild_can_do_without_the_cache(tiny: str, tmp_path: Path) -> None:
    text = f"FROM {tiny}\nRUN head -c 8 /dev/urandom >/random\n"
    first = engine.build(spec(tmp_path, text)).image_id
    assert engine.build(spec(tmp_path, text)).image_id == first
    assert engine.build(spec(tmp_path, text, use_cache=False)).image_id != first


@pytest.mark.engine
def test_a_full_disk_is_said_and_is_not_the_recipes_fault(tiny: str, tmp_path: Path) -> None:
    # /dev/shm is a file system of 64 MB, full like any other.
    text = f"FROM {tiny}\nRUN dd if=/dev/zero of=/dev/shm/x bs=1M count=200\n"
    result = engine.build(spec(tmp_path, text))
    assert result.status == "engine-error"
    assert result.error.startswith("the disk is full")


@pytest.mark.engine
def test_without_buildx_the_line_that_needs_it_is_named(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = f"FROM {tiny}\nRUN --mount=type=cache,target=/c true\n"
    result = engine.build(spec(tmp_path, text, buildkit="Dockerfile: line 2: RUN --mount"))
    assert result.status == "failed"
    assert result.error.startswith("Dockerfile: line 2: RUN --mount needs BuildKit")


@pytest.mark.engine
def test_times_of_files_do_not_matter_to_the_build(tiny: str, tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("content")
    text = f"FROM {tiny}\nCOPY a /a\n"
    context = {"Dockerfile": text.encode(), "a": source}
    first = engine.build(spec(tmp_path, text, context=context)).image_id
    os.utime(source, (1, 1))
    assert engine.build(spec(tmp_path, text, context=context)).image_id == first
    source.write_text("Content")
    assert engine.build(spec(tmp_path, text, context=context)).image_id != first


def test_the_context_depends_on_names_modes_and_bytes_alone(tmp_path: Path) -> None:
    archives = []
    for turn, (order, umask) in enumerate([("ab", 0o022), ("ba", 0o077)]):
        folder = tmp_path / str(turn)
        old = os.umask(umask)
        folder.mkdir()
        for name in order:
            (folder / name).write_text(name)
            os.utime(folder / name, (turn * 1000, turn * 1000))
        (folder / "b").chmod((folder / "b").stat().st_mode | stat.S_IXUSR)
        (folder / "link").symlink_to("a")
        os.umask(old)
        archives.append(tars.pack_folder(folder))
    assert archives[0] == archives[1]
    path = tmp_path / "t.tar"
    path.write_bytes(archives[0])
    with tarfile.open(path) as tar:
        modes = {m.name: (m.mode, m.uid, m.mtime, m.linkname) for m in tar}
    date = tars.FIXED_DATE
    assert modes == {
        "a": (0o644, 0, date, ""),
        "b": (0o755, 0, date, ""),
        "link": (0o777, 0, date, "a"),
    }


def test_a_file_that_is_missing_from_the_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="gone: can't be read: No such file"):
        list(tars.stream({"x": tmp_path / "gone"}))


@pytest.mark.engine
def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KbenchError, match=r"build\.log: can't be written"):
        engine.build(spec(tmp_path, "FROM scratch\n", log=tmp_path / "file" / "build.log"))
