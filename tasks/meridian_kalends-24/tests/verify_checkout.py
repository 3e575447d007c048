"""Grades a checkout: puts the tests in place, runs them, compares, writes the reward last.

Promises: it fails closed. A reward of 1 is written only after every step below went well, as the
very last act; every other way out leaves 0. One process does it all and has read everything it
needs (the data, the comparer, the collector, its own modules) before the agent's code runs, so that
what the agent's code changes on disk has no effect on the judgement.

The order: end stray processes; clear old logs; reward 0; take over the agent's changes (where a
runner grades in a fresh container); put hidden and protected paths back from the base by blob id;
apply the hidden patch and assert the post-image blobs; delete stale reports; run the test command
in a clean environment with its time limit; end stray processes; clear the logs again; assert that
the tests are still the same; collect; compare; report.json; reward.txt.

Leaves to others: reading and comparing reports (junit_compare.py), copying them out of the checkout
(kotlin_logs_collector.sh), and who started it (test.sh).

Usage: python3 -I -S -B verify_checkout.py TESTS_FOLDER LOGS_FOLDER. Ends with 0 when the reward was
written by the last act, with 1 otherwise. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tokenize  # noqa: F401 - traceback needs it, and late imports are off
import traceback
import types
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin"
CHANGES = "/kbench/changes"
MAX_CHANGES_BYTES = 2 * 1024 * 1024 * 1024
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
MAX_PATH_BYTES = 3000
MAX_REPORTS = 20_000
MAX_REPORTS_BYTES = 512 * 1024 * 1024
GIT_TIMEOUT_SEC = 120
KILL_SEC = 20


class VerifierError(Exception):
    """The verifier can't do its work. `kind` is the word that report.json files it under."""

    def __init__(self, kind: str, message: str) -> None:
        """`message` is one line, for a person."""
        super().__init__(message)
        self.kind = kind


# --- The data beside the verifier ---------------------------------------------------------------

_BLOB = re.compile(r"(100644|100755|120000) ([0-9a-f]{40}|[0-9a-f]{64})( crlf)?")


class Blob(NamedTuple):
    """A file as git has it: mode and blob id; whether a checkout of it has CRLF line ends."""

    mode: str
    id: str
    crlf: bool = False


class Hidden(NamedTuple):
    """One path of the hidden patch: what it is at the base and after the patch (None: absent)."""

    base: Blob | None
    after: Blob | None


class Spec(NamedTuple):
    """verify.json, checked."""

    workdir: str
    base_commit: str
    command: list[str]
    environment: dict[str, str]
    timeout_sec: float
    reports: list[str]
    hidden: dict[str, Hidden]
    protected_globs: list[str]
    protected: dict[str, Blob]
    quarantine: bool

    def wanted(self) -> dict[str, Blob | None]:
        """What each hidden and protected path must be while the tests run (None: absent)."""
        wanted: dict[str, Blob | None] = dict(self.protected)
        wanted.update({path: sides.after for path, sides in self.hidden.items()})
        return wanted


def parse_spec(data: bytes) -> Spec:
    """verify.json's bytes as a Spec. Raises VerifierError("data") naming the key."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as bad:
        raise VerifierError("data", f"verify.json is not JSON: {bad}") from bad
    check("version", isinstance(value, dict) and value.get("version") == 1, "must be 1")
    workdir, base = value.get("workdir"), value.get("base_commit")
    check("workdir", isinstance(workdir, str) and workdir.startswith("/"), "must be absolute")
    check("base_commit", _is_id(base), "must be a full commit id")
    timeout = value.get("timeout_sec")
    numeric = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    check("timeout_sec", numeric and 0 < timeout < 1e7, "must be a number of seconds above 0")
    command, reports = value.get("command"), value.get("reports")
    check("command", bool(command) and _are_strings(command), "must be a list of words")
    check("reports", bool(reports) and _are_strings(reports), "must be a list of globs")
    environment = value.get("environment", {})
    check("environment", _is_environment(environment), "must be an object of strings")
    protected = value.get("protected", {})
    check("protected", isinstance(protected, dict), "must be an object")
    globs = protected.get("globs", [])
    check("protected.globs", _are_strings(globs), "must be a list of globs")
    quarantine = value.get("quarantine", False)
    check("quarantine", isinstance(quarantine, bool), "must be true or false")
    return Spec(
        workdir=os.path.normpath(workdir),
        base_commit=base,
        command=command,
        environment=environment,
        timeout_sec=float(timeout),
        reports=reports,
        hidden=_hidden(value.get("hidden", {})),
        protected_globs=globs,
        protected=_protected(protected.get("files", {})),
        quarantine=quarantine,
    )


def check(where: str, fine: bool, message: str) -> None:
    """Raises VerifierError("data") unless `fine`."""
    if not fine:
        raise VerifierError("data", f"verify.json: {where}: {message}")


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", value))


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, str) and "\0" not in i for i in value)


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(v, str) and "\0" not in v and k and "=" not in k and "\0" not in k
        for k, v in value.items()
    )


def _hidden(value: Any) -> dict[str, Hidden]:
    check("hidden", isinstance(value, dict), "must be an object")
    found: dict[str, Hidden] = {}
    for path, sides in value.items():
        where = f"hidden[{path!r}]"
        check(where, is_safe_path(path), "must be a path inside the checkout")
        fine = isinstance(sides, dict) and {"base", "after"} <= set(sides)
        check(where, fine, "must have base and after")
        pair = Hidden(_blob(where, sides["base"]), _blob(where, sides["after"]))
        check(where, pair.base != pair.after, "base and after must differ")
        found[path] = pair
    return found


def _protected(value: Any) -> dict[str, Blob]:
    check("protected.files", isinstance(value, dict), "must be an object")
    found: dict[str, Blob] = {}
    for path, text in value.items():
        where = f"protected.files[{path!r}]"
        check(where, is_safe_path(path), "must be a path inside the checkout")
        blob = _blob(where, text)
        check(where, blob is not None, "must be '<mode> <blob id>'")
        found[path] = blob or Blob("", "")
    return found


def _blob(where: str, text: object) -> Blob | None:
    if text is None:
        return None
    match = _BLOB.fullmatch(text) if isinstance(text, str) else None
    check(where, match is not None, "must be null or '<mode> <blob id>'")
    return Blob(match.group(1), match.group(2), bool(match.group(3))) if match else None


def is_safe_path(path: str) -> bool:
    """Whether the path is relative, plain, and outside every `.git`."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and part.lower() != ".git" for part in parts)
    if not plain or "\0" in path:
        return False
    try:
        lengths = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        return False
    return max(lengths) <= 255 and sum(lengths) + len(lengths) <= MAX_PATH_BYTES


# --- Globs --------------------------------------------------------------------------------------


class Globs:
    """A list of globs over paths relative to the checkout. The last one that matches decides.

    `**` stands for any number of whole names, `*` for any part of one name, `?` for one character;
    a glob that begins with `!` takes paths out again. Every other character is itself.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        """A later glob decides over an earlier one."""
        self._rules = [(g[:1] != "!", glob_pattern(g.lstrip("!"))) for g in globs]
        self._segments = [g.split("/") for g in globs if g[:1] != "!"]

    def matches(self, path: str) -> bool:
        """Whether the path is in the list."""
        verdict = False
        for takes, pattern in self._rules:
            if takes != verdict and pattern.fullmatch(path):
                verdict = takes
        return verdict

    def could_hold(self, folder: str) -> bool:
        """Whether the folder's own name is a step on a glob's way, such as `a/src` for `**/src/*`.

        A symbolic link of that name would lead a build, which follows it, to files elsewhere.
        """
        names = folder.split("/")
        return any(_leads(segments, names) for segments in self._segments)


def glob_pattern(glob: str) -> re.Pattern[str]:
    """The regular expression of one glob, without `!`."""
    out = ""
    parts = glob.split("/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            out += "(?:.+)" if last else "(?:[^/]+/)*"
        else:
            out += _name_pattern(part) + ("" if last else "/")
    return re.compile(out, re.DOTALL)


def _name_pattern(part: str) -> str:
    words = {"*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(c, re.escape(c)) for c in re.sub(r"\*+", "*", part))


def _leads(segments: list[str], names: list[str]) -> bool:
    reached = {0}
    for name in names:
        reached = {n for at in _closure(reached, segments) for n in _step(at, segments, name)}
    trivial = {0} if segments[0] == "**" else set()
    return any(at < len(segments) for at in reached - trivial)


def _closure(reached: set[int], segments: list[str]) -> set[int]:
    found = set(reached)
    for start in reached:
        end = start
        while end < len(segments) and segments[end] == "**":
            end += 1
            found.add(end)
    return found


def _step(at: int, segments: list[str], name: str) -> list[int]:
    if at >= len(segments):
        return []
    if segments[at] == "**":
        return [at]
    return [at + 1] if re.fullmatch(_name_pattern(segments[at]), name, re.DOTALL) else []


# --- Processes ----------------------------------------------------------------------------------


def end_strays(patience: float = KILL_SEC) -> list[int]:
    """Kills every process that is neither an ancestor nor of a spared session; returns their ids.

    Spared are the verifier's own session (whatever holds its output) and that of process 1 (what
    keeps the container alive). A process can't move into a session that exists, so what the agent
    left behind, and everything that the test command started, is in another one. Raises
    VerifierError("processes") when new ones keep appearing.
    """
    killed: set[tuple[int, str]] = set()
    deadline = time.monotonic() + patience
    while True:
        alive = _strays()
        late = time.monotonic() > deadline
        if not alive or (late and killed.issuperset(alive)):
            # One that was killed and is still listed can't run again: it waits for the kernel.
            return sorted(pid for pid, _ in killed)
        if late:
            raise VerifierError("processes", f"processes keep appearing: {sorted(alive)[:5]}")
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, _ in alive:
                _send(pid, number)
        killed.update(alive)
        time.sleep(0.01)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as bad:
        raise VerifierError("processes", f"process {pid} can't be ended: {bad}") from bad


def _strays() -> list[tuple[int, str]]:
    """Process id and start time of each running process that is to go."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        spared_sessions = {_fields(1)[3], _fields(os.getpid())[3]}
        spared = _ancestors()
    except (OSError, IndexError) as bad:
        raise VerifierError("processes", f"/proc can't be read: {bad}") from bad
    found = []
    for pid in pids:
        try:
            fields = _fields(pid)
        except (OSError, IndexError):
            continue
        if fields[0] not in "ZX" and fields[3] not in spared_sessions and pid not in spared:
            found.append((pid, fields[19]))
    return found


def _ancestors() -> set[int]:
    """This process, its parent, and so on up; 0 stands for one outside the container."""
    line, at = {0, os.getpid()}, os.getppid()
    while at not in line:
        line.add(at)
        at = int(_fields(at)[1])
    return line


def _fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name: state, parent, group, session, …"""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def close_to_tracers() -> None:
    """Forbids other processes to read or change this one's memory. Best effort: needs ctypes."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


class Ran(NamedTuple):
    """How the test command ended."""

    exit_code: int | None
    seconds: float
    timed_out: bool


def run_tests(spec: Spec) -> Ran:
    """Runs the test command in its own session, its output in ours up to a limit."""
    environment = {"PATH": PATH, "HOME": _home(), "LANG": "C.UTF-8", **spec.environment}
    found = shutil.which(spec.command[0], path=environment["PATH"])
    if found is None and "/" not in spec.command[0]:
        raise VerifierError("tools", f"the test command {spec.command[0]} is missing")
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            spec.command if found is None else [found, *spec.command[1:]],
            cwd=spec.workdir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as bad:
        raise VerifierError("command", f"the test command does not start: {bad}") from bad
    assert process.stdout is not None
    pump = threading.Thread(target=_forward, args=(process.stdout.fileno(),), daemon=True)
    pump.start()
    code = _wait(process.pid, start + spec.timeout_sec)
    seconds = time.monotonic() - start
    end_strays()
    if code is None:
        _wait(process.pid, time.monotonic() + KILL_SEC)
    process.returncode = -1 if code is None else code
    pump.join(KILL_SEC)
    return Ran(code, round(seconds, 3), code is None)


def _wait(child: int, deadline: float) -> int | None:
    """The child's exit code, or None at the deadline. Buries orphans too: we may be process 1."""
    pause = 0.001
    while time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return _exit_code(status)
        if pid == 0:
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
    return None


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _forward(source: int) -> None:
    left = MAX_OUTPUT_BYTES
    while True:
        block = os.read(source, 65536)
        if not block:
            return
        if left > 0:
            _say_bytes(block[:left])
            left -= len(block)
            if left <= 0:
                say("\n(the rest of the output is left out)")


def _say_bytes(block: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(1, block)


def say(text: str) -> None:
    """One line for whoever reads the verifier's output."""
    _say_bytes(("verifier: " + text + "\n").encode("utf-8", "backslashreplace"))


# --- Files of the checkout ----------------------------------------------------------------------
# No other process is alive when these run, so a path that was checked stays what it was.


class Checkout:
    """The files below one folder. Never follows a symbolic link, of a file or of a folder."""

    def __init__(self, root: str) -> None:
        """`root` is absolute and must be a real folder."""
        self.root = root
        if os.path.islink(root) or not os.path.isdir(root):
            raise VerifierError("checkout", f"{root} is not a folder")

    def read(self, path: str) -> tuple[str, bytes] | None:
        """Mode (git's) and content, or None where no file or link is."""
        if not self._parents_are_folders(path):
            return None
        return read_file(os.path.join(self.root, path))

    def write(self, path: str, mode: str, content: bytes) -> None:
        """Puts a file (or link) there, in place of whatever is in its way."""
        self._make_parents(path)
        target = os.path.join(self.root, path)
        if os.path.isdir(target) and not os.path.islink(target):
            shutil.rmtree(target)
        temporary = os.path.join(os.path.dirname(target), f".kbench-{secrets.token_hex(8)}")
        if mode == "120000":
            os.symlink(os.fsdecode(content), temporary)
        else:
            _write_new(temporary, content, 0o755 if mode == "100755" else 0o644)
        os.rename(temporary, target)

    def remove(self, path: str) -> None:
        """Removes the file, link or whole folder, if there is one."""
        if self._parents_are_folders(path):
            remove_any(os.path.join(self.root, path))

    def walk(
        self, below: str = "", *, lenient: bool = False
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Every entry but folders, and every link; `.git` of the checkout is left out.

        A folder that can't be listed is an error, or with `lenient` one line in our output.
        """
        waiting = [below]
        while waiting:
            folder = waiting.pop()
            for entry in self._listed(folder, lenient):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False)
                elif path != ".git":
                    waiting.append(path)

    def _listed(self, folder: str, lenient: bool) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self.root, folder)) as entries:
                return sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError as bad:
            if not lenient:
                raise VerifierError("checkout", f"can't be listed: {folder[-200:]}: {bad}") from bad
            say(f"can't be listed: {folder[-200:]!r}: {bad}")
            return []

    def _parents_are_folders(self, path: str) -> bool:
        at = self.root
        for part in path.split("/")[:-1]:
            at = os.path.join(at, part)
            if os.path.islink(at) or not os.path.isdir(at):
                return False
        return True

    def _make_parents(self, path: str) -> None:
        at = self.root
        for part in path.split("/")[:-1]:
            at = os.path.join(at, part)
            if os.path.islink(at) or not os.path.isdir(at):
                remove_any(at)
                os.mkdir(at, 0o755)


def read_file(path: str, limit: int | None = None) -> tuple[str, bytes] | None:
    """Mode and content of a regular file or link; None for anything else. Never blocks."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return "120000", os.fsencode(os.readlink(path))
        if not stat.S_ISREG(info.st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(-1 if limit is None else limit)
    return ("100755" if info.st_mode & 0o100 else "100644"), content


def remove_any(path: str) -> None:
    """Removes a file, a link (not what it points at) or a folder, if there is one."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write_new(path: str, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)


def blob_id(content: bytes, like: str) -> str:
    """git's id of the content, by the hash that `like` (another id) was made with."""
    algorithm = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(content) + content).hexdigest()


def is_blob(found: tuple[str, bytes] | None, blob: Blob | None) -> bool:
    """Whether what was read is exactly that blob with that mode (None: absent)."""
    if found is None or blob is None:
        return found is None and blob is None
    return found[0] == blob.mode and blob_id(found[1], blob.id) == blob.id


def is_checked_out(found: tuple[str, bytes] | None, blob: Blob | None) -> bool:
    """Whether what was read is what a checkout of the blob has: its line ends are the base's."""
    if found is None or blob is None or not blob.crlf:
        return is_blob(found, blob)
    stored = found[1].replace(b"\r\n", b"\n")
    return checked_out(stored, blob) == found[1] and is_blob((found[0], stored), blob)


def checked_out(content: bytes, blob: Blob) -> bytes:
    """The content of the blob as a checkout has it."""
    return content.replace(b"\n", b"\r\n") if blob.crlf else content


# --- git, without the checkout's configuration --------------------------------------------------


class Git:
    """Runs git on a repository of our own that only borrows the checkout's objects.

    So the checkout's configuration, hooks, attributes, index, replaced and grafted objects don't
    matter, and what git says of contents is hashed again by the caller.
    """

    def __init__(self, scratch: str, checkout: str, base_commit: str) -> None:
        """`scratch` is an empty folder; the kind of id is that of `base_commit`."""
        self.scratch = scratch
        self.folder = os.path.join(scratch, "git")
        self._environment: dict[str, str | None] = {
            "PATH": PATH,
            "HOME": scratch,
            "XDG_CONFIG_HOME": scratch,
            "LC_ALL": "C",
            "GIT_DIR": self.folder,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": scratch,
        }
        kind = [] if len(base_commit) == 40 else ["--object-format=sha256"]
        self.run("init", "--quiet", "--bare", "--template=", *kind, self.folder)
        os.makedirs(os.path.join(self.folder, "objects", "info"), exist_ok=True)
        with open(os.path.join(self.folder, "objects", "info", "alternates"), "wb") as file:
            file.write(os.fsencode(os.path.join(checkout, ".git", "objects")) + b"\n")

    def run(
        self,
        *arguments: str,
        data: bytes = b"",
        cwd: str | None = None,
        fine: Sequence[int] = (0,),
        environment: Mapping[str, str | None] | None = None,
    ) -> bytes:
        """git's output. Raises VerifierError("git") with its message."""
        changed = {**self._environment, **(environment or {})}
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=cwd or self.scratch,
                env={k: v for k, v in changed.items() if v is not None},
                input=data,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=GIT_TIMEOUT_SEC,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as bad:
            raise VerifierError("git", f"git {arguments[0]}: {bad}") from bad
        if done.returncode not in fine:
            words = done.stderr.decode("utf-8", "replace").strip()[-2000:]
            raise VerifierError("git", f"git {arguments[0]} ended with {done.returncode}: {words}")
        return done.stdout

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Contents of those blobs that are there and hash to their id."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        output = self.run("cat-file", "--batch", data="".join(i + "\n" for i in wanted).encode())
        found: dict[str, bytes] = {}
        at = 0
        for name in wanted:
            end = output.index(b"\n", at)
            words = output[at:end].decode("ascii", "replace").split(" ")
            at = end + 1
            if len(words) == 3 and words[2].isdigit():
                content = output[at : at + int(words[2])]
                at += int(words[2]) + 1
                if blob_id(content, name) == name:
                    found[name] = content
        return found

    def tree(self, commit: str) -> dict[str, Blob]:
        """Every file of the commit: path to mode and blob id."""
        output = self.run("ls-tree", "-r", "-z", "--full-tree", commit)
        found: dict[str, Blob] = {}
        for line in output.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, name = head.decode("ascii").split(" ")
            found[os.fsdecode(path)] = Blob(mode, name)
        return found

    def apply(self, patch: bytes, folder: str) -> None:
        """Applies a patch to plain files in a folder that is in no repository."""
        arguments = ("apply", "--whitespace=nowarn", "-")
        self.run(*arguments, data=patch, cwd=folder, environment={"GIT_DIR": None})

    def ignored(self, paths: Sequence[str], rules: Mapping[str, bytes]) -> set[str]:
        """Those paths that the given .gitignore files (path to content) ignore."""
        if not paths or not rules:
            return set()
        folder = os.path.join(self.scratch, "ignore")
        os.mkdir(folder)
        tree = Checkout(folder)
        for path, content in rules.items():
            tree.write(path, "100644", content)
        output = self.run(
            "check-ignore",
            "--no-index",
            "--stdin",
            "-z",
            data=b"".join(os.fsencode(p) + b"\0" for p in paths),
            cwd=folder,
            fine=(0, 1),
            environment={"GIT_WORK_TREE": folder},
        )
        shutil.rmtree(folder)
        return {os.fsdecode(p) for p in output.split(b"\0")[:-1]}


# --- Taking over the agent's changes ------------------------------------------------------------


def take_over(checkout: Checkout, git: Git, base_commit: str) -> None:
    """Copies the agent's changed files over a fresh checkout, where a runner brings them.

    The folder CHANGES holds `changes.tar` (files and links below the checkout) and `deleted`
    (paths, each ended by a NUL), or an empty file `whole`: then the archive is the whole checkout,
    and what the base has and the archive hasn't was deleted. What the base's own .gitignore files
    ignore (build output above all) stays as the image has it.
    """
    if not os.path.isdir(CHANGES):
        return
    tree = git.tree(base_commit)
    archive = os.path.join(CHANGES, "changes.tar")
    try:
        arrived = _members(archive)
        deleted = _absent(tree, arrived) if _is_whole() else _deleted(checkout)
        untracked = [path for path in (*deleted, *arrived) if path not in tree]
        ignored = git.ignored(untracked, _ignore_rules(git, tree))
        for path in deleted - ignored:
            checkout.remove(path)
        _unpack(archive, checkout, arrived - ignored)
    except (tarfile.TarError, KeyError, EOFError, FileNotFoundError) as bad:
        raise VerifierError("take-over", f"changes.tar can't be read: {bad}") from bad
    say(
        f"took over {len(arrived - ignored)} files and {len(deleted - ignored)} deletions,"
        f" left {len(ignored)} ignored ones"
    )


def _ignore_rules(git: Git, tree: Mapping[str, Blob]) -> dict[str, bytes]:
    """The base's .gitignore files, path to content."""
    named = {p: b for p, b in tree.items() if p.rpartition("/")[2] == ".gitignore"}
    contents = git.blobs(blob.id for blob in named.values())
    lost = [path for path, blob in named.items() if blob.id not in contents]
    if lost:
        raise VerifierError("take-over", f"the repository no longer holds the base's {lost[:5]}")
    return {p: contents[b.id] for p, b in named.items() if b.mode != "120000"}


def _is_whole() -> bool:
    return os.path.lexists(os.path.join(CHANGES, "whole"))


def _absent(tree: Mapping[str, Blob], arrived: set[str]) -> set[str]:
    """The base's files that a whole checkout lacks."""
    return {path for path, blob in tree.items() if blob.mode != "160000"} - arrived


def _deleted(checkout: Checkout) -> set[str]:
    """The deleted paths, a folder as the files that are in it here."""
    found = read_file(os.path.join(CHANGES, "deleted"))
    paths = [] if found is None else [os.fsdecode(p) for p in found[1].split(b"\0") if p]
    files: set[str] = set()
    for path in paths:
        if not is_safe_path(path):
            say(f"left out a deletion outside the checkout: {path[:200]!r}")
        elif _is_folder(os.path.join(checkout.root, path)):
            files.update(name for name, _ in checkout.walk(path))
        else:
            files.add(path)
    return files


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _members(archive: str) -> set[str]:
    """The names of the archive's files and links that may enter the checkout."""
    names: set[str] = set()
    refused: list[str] = []
    total = 0
    with _tar(archive) as tar:
        for member in tar:
            path = _member_path(member)
            if path is None:
                refused.append(member.name)
            elif not member.isdir():
                names.add(path)
                total += member.size
    if refused:
        say(f"left out {len(refused)} members of the changes: {refused[0][:200]!r} …")
    if total > MAX_CHANGES_BYTES:
        raise VerifierError("take-over", f"the changes exceed {MAX_CHANGES_BYTES} bytes")
    return names


def _tar(archive: str) -> tarfile.TarFile:
    return tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape")


def _member_path(member: tarfile.TarInfo) -> str | None:
    """The member's place in the checkout; None where it may not enter."""
    path = member.name[2:] if member.name.startswith("./") else member.name
    if member.isdir() and path in ("", "."):
        return "."
    plain = member.isreg() or member.issym() or member.islnk() or member.isdir()
    return path if plain and is_safe_path(path) else None


def _unpack(archive: str, checkout: Checkout, wanted: set[str]) -> None:
    if not wanted:
        return
    with _tar(archive) as tar:
        for member in tar:
            path = _member_path(member)
            if path not in wanted or member.isdir():
                continue
            if member.issym():
                checkout.write(path, "120000", os.fsencode(member.linkname))
                continue
            source = tar.extractfile(member)
            content = b"" if source is None else source.read()
            checkout.write(path, "100755" if member.mode & 0o100 else "100644", content)


# --- Putting the tests in place -----------------------------------------------------------------


def place_tests(checkout: Checkout, git: Git, spec: Spec, patch: bytes) -> None:
    """Hidden and protected paths become exactly what they must be; nothing else that they match."""
    contents = _base_contents(checkout, git, spec.protected)
    contents.update(hidden_contents(checkout, git, spec, patch))
    wanted = spec.wanted()
    for path, blob in wanted.items():
        if blob is None:
            checkout.remove(path)
    for path, blob in wanted.items():
        if blob is not None and not is_checked_out(checkout.read(path), blob):
            checkout.write(path, blob.mode, checked_out(contents[path], blob))
    for path in clear(checkout, Globs(spec.protected_globs), _present(wanted)):
        say(f"removed what isn't part of the tests: {path[:200]!r}")
    wrong = changed_tests(checkout, spec)
    if wrong:
        raise VerifierError("restore", f"could not be put in place: {wrong[:5]}")


def _present(wanted: Mapping[str, Blob | None]) -> set[str]:
    return {path for path, blob in wanted.items() if blob is not None}


def changed_tests(checkout: Checkout, spec: Spec) -> list[str]:
    """Hidden and protected paths that are not what they must be."""
    return sorted(p for p, b in spec.wanted().items() if not is_checked_out(checkout.read(p), b))


def hidden_contents(checkout: Checkout, git: Git, spec: Spec, patch: bytes) -> dict[str, bytes]:
    """The hidden paths' contents after the patch, made outside the checkout and asserted by id."""
    folder = os.path.join(git.scratch, "hidden")
    os.mkdir(folder)
    scratch = Checkout(folder)
    before = {path: sides.base for path, sides in spec.hidden.items() if sides.base is not None}
    for path, content in _base_contents(checkout, git, before).items():
        scratch.write(path, before[path].mode, content)
    if patch.strip():
        try:
            git.apply(patch, folder)
        except VerifierError as bad:
            raise VerifierError("hidden-patch", f"test.patch does not apply: {bad}") from bad
    contents: dict[str, bytes] = {}
    for path, sides in spec.hidden.items():
        found = scratch.read(path)
        if not is_blob(found, sides.after):
            raise VerifierError("post-image", f"{path}: not what test.patch must make of it")
        if found is not None:
            contents[path] = found[1]
    extra = [path for path, _ in scratch.walk() if path not in contents]
    if extra:
        raise VerifierError("post-image", f"test.patch touches a path not listed: {extra[:5]}")
    return contents


def _base_contents(checkout: Checkout, git: Git, blobs: Mapping[str, Blob]) -> dict[str, bytes]:
    """Contents of those paths at the base: from the checkout where unchanged, else from git."""
    found: dict[str, bytes] = {}
    absent: dict[str, Blob] = {}
    for path, blob in blobs.items():
        here = checkout.read(path)
        if here is not None and is_blob((blob.mode, here[1]), blob):
            found[path] = here[1]
        else:
            absent[path] = blob
    stored = git.blobs(b.id for b in absent.values())
    lost = sorted(p for p, b in absent.items() if b.id not in stored)
    if lost:
        raise VerifierError("restore", f"the repository no longer holds the base's {lost[:5]}")
    found.update({path: stored[blob.id] for path, blob in absent.items()})
    return found


def clear(checkout: Checkout, globs: Globs, kept: set[str]) -> list[str]:
    """Removes what the globs match, and links that lead into it; returns the paths."""
    gone = []
    for path, info in list(checkout.walk()):
        link = stat.S_ISLNK(info.st_mode)
        leads = link and os.path.isdir(os.path.join(checkout.root, path)) and globs.could_hold(path)
        if path not in kept and (leads or globs.matches(path)):
            checkout.remove(path)
            gone.append(path)
    return gone


# --- Logs, reports, reward ----------------------------------------------------------------------


class Logs:
    """The folder that the runner reads: reward.txt, report.json, the reports."""

    def __init__(self, folder: str) -> None:
        """Nothing is touched yet."""
        self.folder = folder

    def clear(self, kept: Sequence[str] = ()) -> None:
        """Removes everything but the files that our own output goes to, and writes reward 0."""
        if os.path.islink(self.folder) or not os.path.isdir(self.folder):
            remove_any(self.folder)
            os.makedirs(self.folder)
        ours = {(info.st_dev, info.st_ino) for info in map(os.fstat, (1, 2))}
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            info = os.lstat(path)
            if name not in kept and (info.st_dev, info.st_ino) not in ours:
                remove_any(path)
        self.write("reward.txt", b"0\n")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file whole: a temporary one, renamed."""
        target = os.path.join(self.folder, name)
        if _is_folder(target):
            shutil.rmtree(target)
        temporary = os.path.join(self.folder, f".{secrets.token_hex(8)}")
        try:
            _write_new(temporary, content, 0o644)
            os.rename(temporary, target)
        except OSError:
            remove_any(temporary)
            raise


def collect(checkout: Checkout, spec: Spec, collector: str, output: str) -> dict[str, str]:
    """Copies the reports out: each report's path in the checkout, and its copy's.

    Raises VerifierError("collect"); reports in absurd numbers count as none.
    """
    globs, tests = Globs(spec.reports), spec.wanted()
    walked = ((p, i) for p, i in checkout.walk(lenient=True) if p not in tests and globs.matches(p))
    found = {path: info.st_size for path, info in walked if stat.S_ISREG(info.st_mode)}
    if len(found) > MAX_REPORTS or sum(found.values()) > MAX_REPORTS_BYTES:
        say(f"{len(found)} reports of {sum(found.values())} bytes: too much, none is read")
        return {}
    _copy_out(checkout.root, sorted(found), collector, output)
    index = read_file(os.path.join(output, "index"))
    words = [os.fsdecode(w) for w in (index[1] if index else b"").split(b"\0")[:-1]]
    pairs = zip(words[::2], words[1::2])  # noqa: B905 - Python 3.8
    return {path: os.path.join(output, name) for name, path in pairs}


def _copy_out(root: str, paths: Sequence[str], collector: str, output: str) -> None:
    try:
        process = subprocess.run(
            ["bash", "-c", collector, "kotlin_logs_collector.sh", root, output],
            env={"PATH": PATH, "LC_ALL": "C"},
            input=b"".join(os.fsencode(path) + b"\0" for path in paths),
            start_new_session=True,
            timeout=GIT_TIMEOUT_SEC,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as bad:
        raise VerifierError("collect", f"collecting the reports: {bad}") from bad
    if process.returncode != 0:
        raise VerifierError("collect", f"collecting the reports ended with {process.returncode}")


# --- The whole ----------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """Everything that is read before the agent's code runs."""

    spec: Spec
    expected: frozenset[str]
    quarantined: frozenset[str]
    patch: bytes
    collector: str


def load_comparer(tests: str) -> Any:
    """junit_compare.py as a module, from its source alone: a planted cache can't stand in."""
    path = os.path.join(tests, "junit_compare.py")
    module = types.ModuleType("junit_compare")
    sys.modules["junit_compare"] = module
    exec(compile(_tests_file(tests, "junit_compare.py"), path, "exec"), module.__dict__)
    return module


def load_inputs(tests: str, comparer: Any) -> Inputs:
    """Reads the files beside this one. Raises VerifierError("data").

    A quarantine counts only where verify.json asks for it: in a container that the agent shares,
    the agent could leave such a file where a task has none.
    """
    spec = parse_spec(_tests_file(tests, "verify.json"))
    try:
        apart: frozenset[str] = frozenset()
        if spec.quarantine:
            apart = comparer.quarantined_ids(_tests_file(tests, "quarantine.json"))
        expected = comparer.expected_ids(_tests_file(tests, "expected_tests.json"), apart)
    except comparer.DataError as bad:
        raise VerifierError("data", str(bad)) from bad
    return Inputs(
        spec=spec,
        expected=expected,
        quarantined=apart,
        patch=_tests_file(tests, "test.patch") if spec.hidden else b"",
        collector=_tests_file(tests, "kotlin_logs_collector.sh").decode("utf-8"),
    )


def _tests_file(tests: str, name: str) -> bytes:
    found = read_file(os.path.join(tests, name))
    if found is None or found[0] == "120000":
        raise VerifierError("data", f"{name} is missing")
    return found[1]


def grade(inputs: Inputs, comparer: Any, logs: Logs) -> dict[str, Any]:
    """Everything from a fresh or an agent's checkout to report.json's content."""
    spec = inputs.spec
    checkout = Checkout(spec.workdir)
    prepare(checkout, inputs)
    # From here on a module that isn't loaded yet can only come from files the agent may change.
    sys.path.clear()
    ran = run_tests(spec)
    logs.clear()
    changed = changed_tests(checkout, spec)
    readings = read_reports(checkout, inputs, comparer, logs)
    report = comparer.compare(
        inputs.expected,
        readings,
        timed_out=ran.timed_out,
        changed=changed,
        quarantined=inputs.quarantined,
    )
    report["command"] = {"exit_code": ran.exit_code, "seconds": ran.seconds}
    return dict(report)


def prepare(checkout: Checkout, inputs: Inputs) -> None:
    """Makes the checkout ready for the test command. Nothing of its own is left on disk."""
    spec = inputs.spec
    with tempfile.TemporaryDirectory(prefix="kbench-") as scratch:
        git = Git(scratch, spec.workdir, spec.base_commit)
        take_over(checkout, git, spec.base_commit)
        place_tests(checkout, git, spec, inputs.patch)
    clear(checkout, Globs(spec.reports), _present(spec.wanted()))


def read_reports(checkout: Checkout, inputs: Inputs, comparer: Any, logs: Logs) -> dict[str, Any]:
    """Each report's reading, by its path in the checkout."""
    output = os.path.join(logs.folder, "reports")
    copies = collect(checkout, inputs.spec, inputs.collector, output)
    end_strays()
    logs.clear(kept=("reports",))
    readings = {}
    for path, copy in copies.items():
        found = read_file(copy, comparer.MAX_REPORT_BYTES + 1)
        readings[path] = comparer.read_report(found[1] if found else b"")
    return readings


def main(arguments: Sequence[str]) -> int:
    """Grades; returns 0 when the reward was written by the last act."""
    tests, folder = arguments
    logs = Logs(folder)
    open_streams()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.umask(0o022)
    close_to_tracers()
    try:
        end_strays()
        logs.clear()
        comparer = load_comparer(tests)
        logs.write("report.json", comparer.dumps(unfinished(comparer)))
        report = grade(load_inputs(tests, comparer), comparer, logs)
    except VerifierError as bad:
        report = failure(bad.kind, str(bad))
    except Exception as bad:  # noqa: BLE001 - whatever happens, the reward is 0 and says why
        with contextlib.suppress(Exception):
            traceback.print_exc()
        report = failure("bug", f"{type(bad).__name__}: {bad}")
    return finish(logs, report)


def open_streams() -> None:
    """Makes sure that 0, 1 and 2 are open, so that no other file is ever taken for our output."""
    while os.open("/dev/null", os.O_RDWR) <= 2:
        pass


def unfinished(comparer: Any) -> dict[str, Any]:
    """report.json until there is a better one."""
    problem = comparer.problem("unfinished", "the verifier did not finish")
    return dict(comparer.empty_report("verifier-error", [problem]))


def failure(kind: str, message: str) -> dict[str, Any]:
    """report.json for a verifier that couldn't do its work; needs no comparer."""
    empty: dict[str, Any] = {"version": 1, "reward": 0, "outcome": "verifier-error"}
    empty.update(errors=[{"kind": kind, "message": message}], command=None, reports=[], tests={})
    empty.update(counts={}, flaky=[], missing=[], failed=[], quarantined=[])
    return empty


def finish(logs: Logs, report: Mapping[str, Any]) -> int:
    """Writes report.json, then, as the last act, the reward."""
    logs.clear(kept=("reports",))
    for error in report["errors"][:100]:
        say(f"{error['kind']}: {error['message']}")
    say(f"{report['outcome']}, reward {report['reward']}")
    logs.write("report.json", (json.dumps(report, indent=1) + "\n").encode("ascii"))
    logs.write("reward.txt", b"%d\n" % report["reward"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
