"""Jobs in real containers: how they end, what they get, what they leave."""

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbench_build.errors import EngineError, KbenchError
from kbench_build.model.jobs import Job, Upload
from kbench_build.rim.engines import connect, docker_changes, tars
from kbench_build.rim.engines import docker as docker_engine
from kbench_build.rim.engines.address import engine_address, no_answer
from kbench_build.rim.engines.docker import DockerEngine
from tests import engine_box
from tests.engine_box import engine, run, upload

needs_engine = pytest.mark.engine
_OWN = f"kbench-{os.getpid()}-"
pytestmark = pytest.mark.usefixtures("_no_container_left")


@pytest.fixture
def _no_container_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here leaves as many containers of ours as there were."""
    uses_engine = request.node.get_closest_marker("engine") is not None
    mine = f"kbench-{os.getpid()}-"
    yield
    if uses_engine:
        assert not [name for name in engine_box.containers() if name.startswith(mine)]


# --- How a job ends ---


@needs_engine
def test_a_job_ends_with_its_exit_code_and_output(tiny: str) -> None:
    result = run(tiny, "echo out; echo err >&2; exit 3")
    assert (result.status, result.exit_code) == ("exited", 3)
    assert sorted(result.output.split()) == ["err", "out"]
    assert 0 <= result.seconds < 30


@needs_engine
def test_a_time_limit_kills_everything_in_the_container(tiny: str) -> None:
    began = time.monotonic()
    result = run(tiny, "trap '' TERM; (trap '' TERM; sleep 300) & sleep 300", timeout_sec=1)
    assert (result.status, result.exit_code) == ("timeout", None)
    assert time.monotonic() - began < 20


@needs_engine
def test_memory_is_told_apart_from_failing(tiny: str) -> None:
    eat = "bash -c 'x=$(head -c 200000000 /dev/zero | tr \"\\0\" x)'"
    assert run(tiny, f"exec {eat}", memory_mb=32).status == "oom"
    inside = run(tiny, f"{eat}; exit 0", memory_mb=64)
    assert (inside.status, inside.exit_code) == ("exited", 0)
    assert inside.notes == ("a process inside was killed for memory",)


@needs_engine
def test_what_a_job_writes_has_a_limit(tiny: str) -> None:
    write = "head -c 40000000 /dev/zero > /work/big; sleep 60"
    began = time.monotonic()
    result = run(tiny, write, disk_mb=20)
    assert (result.status, result.exit_code) == ("disk", None)
    assert time.monotonic() - began < 30
    assert run(tiny, "head -c 4000000 /dev/zero > /work/small; sleep 3", disk_mb=20).exit_code == 0
    assert run(tiny, "sleep 60", disk_mb=20, timeout_sec=3).status == "timeout"


@needs_engine
def test_what_a_job_leaves_can_be_kept_as_an_image(tiny: str) -> None:
    kept = run(tiny, "printf kept > /work/note; rm edited", keep=True).image
    try:
        assert run(kept, "cat /work/note").output == "kept"
        assert run(kept, "ls /work/edited").exit_code != 0
    finally:
        assert engine.discard(kept) == ""
    assert run(tiny, "exit 3", keep=True).image == ""
    assert not [tag for tag in engine.images() if tag.startswith(f"{docker_engine.KEPT}:{_OWN}")]


@needs_engine
def test_all_jobs_of_a_process_can_be_ended(tiny: str) -> None:
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(run(tiny, "sleep 60"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while sum(name.startswith(_OWN) for name in engine_box.containers()) < 2:
        time.sleep(0.05)
    while any(thread.is_alive() for thread in threads):
        engine.abort()
        time.sleep(0.1)
    assert {(r.status, r.exit_code == 0) for r in results} <= {
        ("engine-error", False),
        ("exited", False),
    }


@needs_engine
def test_a_command_that_cannot_start_is_the_jobs_fault(tiny: str) -> None:
    job = Job(name="t", image=tiny, command=("/no/such",), timeout_sec=9)
    result = engine(job)
    assert (result.status, result.exit_code) == ("exited", 127)
    assert "/no/such" in result.output


@needs_engine
def test_a_missing_image_is_an_engine_error() -> None:
    job = Job(name="t", image="kbench-test/none:none", command=("sh",), timeout_sec=9)
    result = engine(job)
    assert result.status == "engine-error"
    assert "kbench-test/none:none" in result.error


def test_no_engine_is_one_line_that_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    absent = connect("docker")
    with pytest.raises(EngineError) as caught:
        absent.images()
    assert "unix:///nowhere/engine.sock" in str(caught.value)
    assert "systemctl start docker" in str(caught.value)
    assert "\n" not in str(caught.value)
    result = absent(Job(name="t", image="i", command=("sh",), timeout_sec=9))
    assert result.status == "engine-error"
    assert "no container engine answers" in result.error


def test_a_socket_one_may_not_use_says_so() -> None:
    error = no_answer("unix:///s", PermissionError(13, "Permission denied"))
    assert "usermod -aG docker" in str(error)


def test_something_else_on_the_socket_is_an_engine_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        threading.Thread(target=_hang_up, args=(server,), daemon=True).start()
        with pytest.raises(EngineError):
            DockerEngine(f"unix://{path}").images()


def _hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


def test_a_kind_that_does_not_exist_is_named() -> None:
    with pytest.raises(KbenchError, match=r"engine\.kind: 'dokker' isn't one of: docker"):
        connect("dokker")


@needs_engine
def test_an_engine_that_dies_half_way_is_an_engine_error(tiny: str, tmp_path: Path) -> None:
    with _Wire(tmp_path / "s") as wire:
        threading.Timer(1.5, wire.cut).start()
        job = Job(name="t", image=tiny, command=("sleep", "60"), timeout_sec=30)
        began = time.monotonic()
        result = DockerEngine(f"unix://{wire.path}")(job)
    assert result.status == "engine-error"
    assert time.monotonic() - began < 20
    for name in engine_box.containers():
        if name.startswith(f"kbench-{os.getpid()}-"):
            engine._api.client.remove_container(name, force=True)


class _Wire:
    """A socket that passes everything on to the real engine, until it is cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: list[socket.socket] = []
        self._server = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> "_Wire":
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        self._server.close()
        self.path.unlink(missing_ok=True)
        for end in self._ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                end.close()

    def _serve(self) -> None:
        while True:
            try:
                near = self._server.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(engine_address().removeprefix("unix://"))
            self._ends += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(a, b), daemon=True).start()


def _pump(a: socket.socket, b: socket.socket) -> None:
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            end.close()


# --- What a job gets ---


@needs_engine
def test_no_network_unless_asked_for(tiny: str) -> None:
    assert run(tiny, "ls /sys/class/net").output.split() == ["lo"]
    assert "eth0" in run(tiny, "ls /sys/class/net", network="public").output.split()


@needs_engine
def test_no_privileges_and_a_limit_of_processes(tiny: str) -> None:
    output = run(
        tiny,
        "grep -E 'NoNewPrivs|CapEff' /proc/self/status; "
        "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null",
    ).output.split()
    assert output[:1] == ["CapEff:"]
    assert output[2:4] == ["NoNewPrivs:", "1"]
    mknod, net_raw, sys_admin = 27, 13, 21
    held = int(output[1], 16)
    assert not any(held >> bit & 1 for bit in (mknod, net_raw, sys_admin))
    assert "4096" in output[4:]


@needs_engine
def test_more_cpus_than_there_are_are_clamped_and_said(tiny: str) -> None:
    result = run(tiny, "true", cpus=512)
    assert result.status == "exited"
    assert result.notes[0].startswith("512 CPUs asked for, ")
    assert run(tiny, "true", cpus=0.5).notes == ()


@needs_engine
def test_workdir_environment_and_the_images_entrypoint(tiny: str, tmp_path: Path) -> None:
    assert run(tiny, "pwd").output.strip() == "/work"
    assert run(
        tiny, "pwd; echo $A", workdir="/work/kept", environment={"A": "ä b"}
    ).output.split() == [
        "/work/kept",
        "ä",
        "b",
    ]
    image = f"{engine_box.NAMESPACE}/entry:1"
    text = f'FROM {tiny}\nENTRYPOINT ["/bin/false"]\nHEALTHCHECK CMD false\n'
    assert engine.build(engine_box.spec(tmp_path, text, image=image)).status == "built"
    job = Job(name="t", image=image, command=("printf", "x"), timeout_sec=30)
    assert engine(job).output == "x"


@needs_engine
def test_uploads_arrive_in_folders_that_were_not_there(tiny: str) -> None:
    result = run(
        tiny,
        "cat /a/b/c/x /tests/t; ls -ld /a/b/c; sh /tests/run.sh",
        uploads=(
            upload("/a/b/c", x="1"),
            Upload(into="/tests", archive=tars.pack({"t": b"2", "run.sh": b"echo ran"})),
        ),
    )
    assert result.output.startswith("12drwxr-xr-x")
    assert result.output.endswith("ran\n")


@needs_engine
def test_an_upload_cannot_leave_its_folder(tiny: str) -> None:
    hostile = _tar(
        ("../escaped", tarfile.REGTYPE, ""),
        ("/absolute", tarfile.REGTYPE, ""),
        ("device", tarfile.CHRTYPE, ""),
        ("hard", tarfile.LNKTYPE, "../../bin/sh"),
        ("fine", tarfile.REGTYPE, ""),
    )
    result = run(tiny, "ls /up / /absolute", uploads=(Upload(into="/up/here", archive=hostile),))
    assert "escaped" not in result.output
    assert "absolute" not in result.output.replace("'/absolute'", "").replace("/absolute:", "")
    assert (
        run(tiny, "ls /up/here", uploads=(Upload(into="/up/here", archive=hostile),)).output
        == "fine\n"
    )


def _tar(*members: tuple[str, bytes, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            tar.addfile(info, io.BytesIO())
    return out.getvalue()


# --- What a job leaves ---


@needs_engine
def test_outputs_come_back_and_missing_ones_are_left_out(tiny: str) -> None:
    result = run(tiny, "mkdir -p /out/a && echo 1 >/out/a/b && ln -s /etc/passwd /out/link",
                 outputs=("/out", "/none"))  # fmt: skip
    assert set(result.outputs) == {"/out"}
    assert tars.unpack(result.outputs["/out"]) == {"a/b": b"1\n"}


@needs_engine
def test_an_output_that_is_too_large_is_left_out_and_said(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "OUTPUT_LIMIT_BYTES", 1 << 20)
    # A sparse file costs the job nothing and would cost us all of it.
    result = run(tiny, "mkdir /out && dd of=/out/big bs=1 count=0 seek=20G 2>/dev/null",
                 outputs=("/out",))  # fmt: skip
    assert result.status == "exited"
    assert result.outputs == {}
    assert result.notes == ("/out: larger than 1 MiB, left out",)


@needs_engine
def test_the_end_of_a_long_output_is_kept(tiny: str) -> None:
    result = run(tiny, "for i in 1 2 3; do seq -s ' ' 1 100000; done; printf end")
    assert result.output.endswith("100000\nend")
    assert len(result.output) == docker_engine.OUTPUT_TAIL_BYTES


def test_names_in_an_archive_from_a_container_reach_nothing() -> None:
    hostile = _tar(
        ("top/../../x", tarfile.REGTYPE, ""),
        ("top//etc/x", tarfile.REGTYPE, ""),
        ("top/link", tarfile.SYMTYPE, "/etc/passwd"),
        ("top/hard", tarfile.LNKTYPE, "/etc/passwd"),
        ("top/fifo", tarfile.FIFOTYPE, ""),
        ("top/fine", tarfile.REGTYPE, ""),
    )
    assert set(tars.unpack(hostile)) == {"fine"}
    with pytest.raises(EngineError, match="can't be read"):
        tars.unpack(b"no tar at all" * 100)


# --- Which files a job changed ---


def _changed(
    tiny: str, script: str, folder: str = "/work"
) -> tuple[dict[str, object], tuple[str, ...]]:
    result = run(tiny, script, changes_under=folder)
    assert result.changes is not None, result
    found: dict[str, object] = {}
    with tarfile.open(fileobj=io.BytesIO(result.changes.archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            what = file.read().decode() if file else f"-> {member.linkname}"
            found[member.name + ("*" if member.isreg() and member.mode & 0o111 else "")] = what
    return found, result.changes.deleted


@needs_engine
def test_nothing_changed(tiny: str) -> None:
    assert _changed(tiny, "cat edited") == ({}, ())


@needs_engine
def test_edited_added_and_deleted_files(tiny: str) -> None:
    files, deleted = _changed(
        tiny,
        "printf 50 >edited; mkdir -p new/deep empty; printf 7 >new/deep/f; rm removed; rm link; "
        "ln -s kept/b soft; printf 8 >new/run; chmod +x new/run; ln new/run new/hard; mkfifo pipe",
    )
    assert files == {
        "edited": "50",
        "new/deep/f": "7",
        "new/run*": "8",
        "new/hard*": "8",
        "soft": "-> kept/b",
    }
    assert deleted == ("link", "removed")


@needs_engine
def test_a_deleted_folder_is_all_the_files_that_were_in_it(tiny: str) -> None:
    assert _changed(tiny, "rm -r gone") == ({}, ("gone/d", "gone/deep/c"))


@needs_engine
def test_a_folder_made_anew(tiny: str) -> None:
    assert _changed(tiny, "rm -r gone; mkdir -p gone/deep; printf 9 >gone/deep/c") == (
        {"gone/deep/c": "9"},
        ("gone/d",),
    )


@needs_engine
def test_a_folder_where_a_file_was_and_the_other_way_round(tiny: str) -> None:
    files, deleted = _changed(
        tiny, "rm -r gone; printf f >gone; rm edited; mkdir edited; touch edited/x"
    )
    assert files == {"gone": "f", "edited/x": ""}
    assert set(deleted) <= {"gone/d", "gone/deep/c", "edited"}


@needs_engine
def test_git_folders_are_no_changes(tiny: str) -> None:
    files, deleted = _changed(
        tiny,
        "printf y >.git/HEAD; mkdir -p sub/.git; printf z >sub/.git/HEAD; printf g >sub/.gitignore",
    )
    assert (files, deleted) == ({"sub/.gitignore": "g"}, ())
    assert _changed(tiny, "rm -r .git") == ({}, ())


@needs_engine
def test_only_what_lies_below_the_folder(tiny: str) -> None:
    files, deleted = _changed(
        tiny, "printf 1 >/outside; printf 2 >/workother; printf 3 >kept/new", "/work/kept"
    )
    assert (files, deleted) == ({"new": "3"}, ())


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ("a b/c", ["a", "b/c"]),
        ("a/b/1 a/b/2 a/b/3 a/b/4 a/b/5 c", ["a/b", "c"]),
        ("a/b/1 a/b/2 a/c/3 a/c/4 a/5 x/6", ["a/5", "a/b", "a/c", "x/6"]),
        ("a/1 a/2 a/b/3 a/b/4 a/b/5 a/c/6 x", ["a", "x"]),
        ("1 2 3 4 5", ["."]),
    ],
)
def test_few_places_hold_all_changed_files(leaves: str, expected: list[str]) -> None:
    assert docker_changes.places(set(leaves.split())) == expected


@needs_engine
@pytest.mark.parametrize("where", ["", "many/"])
def test_hundreds_of_files_cost_few_requests(tiny: str, where: str) -> None:
    began = time.monotonic()
    files, _ = _changed(tiny, f"mkdir -p many; for i in $(seq 400); do echo $i >{where}f$i; done; "
                        "ln kept/b zhard")  # fmt: skip
    assert len(files) == 401
    assert files[f"{where}f400"] == "400\n"
    assert files["zhard"] == "2"
    assert time.monotonic() - began < 20


@needs_engine
def test_changes_that_are_too_large_are_left_out_and_said(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_changes, "LIMIT_BYTES", 1 << 20)
    result = run(tiny, "dd of=big bs=1 count=0 seek=20G 2>/dev/null", changes_under="/work")
    assert result.changes is None
    assert result.notes == ("/work: changes larger than 1 MiB, left out",)


# --- Looking at images ---


@needs_engine
def test_a_path_of_an_image_is_read_without_running_anything(tiny: str) -> None:
    with tarfile.open(fileobj=tars.Reader(engine.read(tiny, "/work/kept")), mode="r|") as tar:
        names = {member.name for member in tar if member.isreg()}
    assert names == {"kept/b", "kept/deep/a"}
    with tarfile.open(fileobj=tars.Reader(engine.read(tiny, "/")), mode="r|") as tar:
        assert "work/kept/b" in {member.name for member in tar}
    assert engine.workdir(tiny) == "/work"


@needs_engine
def test_reading_may_stop_early_and_a_missing_path_is_said(tiny: str) -> None:
    stream = engine.read(tiny, "/")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError, match="/none"):
        next(engine.read(tiny, "/none"))


@needs_engine
def test_images_are_listed_without_the_sdk(tiny: str) -> None:
    code = (
        "import sys\nfrom kbench_build.rim.engines import connect\n"
        f"held = connect('docker').images()[{tiny!r}]\n"
        "print(held.id, held.labels, 'docker' in sys.modules, 'requests' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sha256:")
    assert engine_box.NAMESPACE in done.stdout
    assert done.stdout.endswith("False False\n")


# --- Interrupted and killed ---

_LONG_JOB = """
import signal, sys
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
from kbench_build.model.jobs import Job
from kbench_build.rim.engines import connect
print("go", flush=True)
connect("docker")(Job(name="t", image=sys.argv[1], command=("sleep", "300"), timeout_sec=300))
"""


def _interrupted(image: str, how: signal.Signals, after: float) -> str:
    """Start a process that runs a long job, send it a signal; returns its containers' prefix."""
    child = subprocess.Popen(
        [sys.executable, "-c", _LONG_JOB, image], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout
    assert child.stdout.readline() == b"go\n"
    time.sleep(after)
    child.send_signal(how)
    child.wait(timeout=30)
    child.stdout.close()
    return f"kbench-{child.pid}-"


@needs_engine
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.1, 0.35, 0.6, 2.0])
def test_an_interrupt_leaves_no_container(tiny: str, how: signal.Signals, after: float) -> None:
    mine = _interrupted(tiny, how, after)
    assert not [name for name in engine_box.containers() if name.startswith(mine)]


@needs_engine
def test_what_a_killed_run_left_is_swept_and_what_runs_is_not(tiny: str) -> None:
    mine = _interrupted(tiny, signal.SIGKILL, 2.5)
    assert [name for name in engine_box.containers() if name.startswith(mine)]
    stream = engine.read(tiny, "/")
    next(stream)
    running = {n for n in engine_box.containers() if n.startswith(f"kbench-{os.getpid()}-")}
    assert engine.sweep() >= 1
    left = engine_box.containers()
    assert running <= left
    assert running
    assert not [name for name in left if name.startswith(mine)]
    stream.close()  # type: ignore[attr-defined]
