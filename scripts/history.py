#!/usr/bin/env python3
"""Keeps a git repository as text: a series file and one numbered patch file a commit.

`build` turns such a folder into a git bundle (or a bare repository) whose commit ids depend on
nothing but the folder: not on the user, the time zone, the locale, the umask or git's settings.
`export` writes an existing repository in that form, and `log` says which id each number becomes.

The file `series` has one operation a line, `#` begins a comment:

    history 1                    the first line: the format
    commit 0002-title.patch      a commit on the current one, which it replaces as the current one
    at 0002                      makes another commit the current one (`at none`: a new root)
    merge 0005 0006-title.patch  a commit that also has 0005 as a parent; its tree is git's own
                                 merge of the two, or what the patch makes of the first parent
    ours 0005 0006-title.patch   a merge that keeps the first parent's tree
    branch main                  a branch at the current commit
    tag v1.0                     a plain tag at the current commit
    tag v1.0 0007-title.patch    an annotated one
    head main                    the branch that a clone checks out

A patch file begins with who and when, then the message, indented by four spaces, then the
difference from the first parent as `git diff --binary --full-index` writes it:

    author Some role <role@example.invalid>
    date 2023-03-01 10:15:00 +0100
    committer Other role <other@example.invalid>     only where it isn't the author
    committed 2023-03-02 09:00:00 +0100              only where it isn't the author's date

        The subject

        More text.

    diff --git a/README.md b/README.md
    …

What isn't kept: signatures, notes, encodings other than UTF-8, refs outside branches and tags.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

FORMAT = "history 1"
TIMEOUT_SEC = 300
IDENTITY = re.compile(r"[^<>\n]+ <[^<>\n]+>")
NUMBER = re.compile(r"(\d{4,})-[^/\s]*\.patch")
SETTINGS = (
    "core.autocrlf=false",
    "core.quotePath=true",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "pack.threads=1",
    "diff.algorithm=myers",
    "diff.renames=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "merge.renames=true",
    "merge.directoryRenames=false",
    "gc.auto=0",
)


class HistoryError(Exception):
    """What is wrong with a series, a patch file or a repository, and where."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        """Keep the exit code where it was git that refused."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """Who did something and when, the time as seconds and an offset such as `+0100`."""

    who: str
    seconds: int
    offset: str

    def __str__(self) -> str:
        """Give the form that git objects hold."""
        return f"{self.who} {self.seconds} {self.offset}"

    @property
    def date(self) -> str:
        """Give the time as people read it, in its own offset."""
        minutes = int(self.offset[1:3]) * 60 + int(self.offset[3:5])
        zone = timezone(timedelta(minutes=-minutes if self.offset[0] == "-" else minutes))
        local = datetime.fromtimestamp(self.seconds, UTC).astimezone(zone)
        return f"{local:%Y-%m-%d %H:%M:%S} {self.offset}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One patch file: both stamps, the message (ends in a newline) and the difference."""

    author: Stamp
    committer: Stamp
    message: str
    diff: bytes = b""


# --- the text form ---------------------------------------------------------------------------


def parse_date(text: str, where: str) -> tuple[int, str]:
    """Read `2023-03-01 10:15:00 +0100` as seconds since 1970 and the offset."""
    try:
        parsed = datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        parsed = None
    if parsed is None or not re.search(r" [+-]\d{4}$", text):
        raise HistoryError(f"{where}: not a date such as 2023-03-01 10:15:00 +0100: {text}")
    return int(parsed.timestamp()), text.rsplit(" ", 1)[1]


def parse_change(content: bytes, where: str) -> Change:
    """Read one patch file; every part of it is checked."""
    head, blank, rest = content.partition(b"\n\n")
    fields = dict(line.partition(" ")[::2] for line in decoded(head, where).splitlines())
    unknown = set(fields) - {"author", "date", "committer", "committed"}
    if unknown or not blank:
        raise HistoryError(f"{where}: unknown header: {', '.join(sorted(unknown)) or 'no message'}")
    author = parse_stamp(fields.get("author", ""), fields.get("date", ""), where)
    committer = parse_stamp(
        fields.get("committer", author.who), fields.get("committed", author.date), where
    )
    message, diff = split_message(rest, where)
    return Change(author=author, committer=committer, message=message, diff=diff)


def parse_stamp(who: str, date: str, where: str) -> Stamp:
    """Read a role and a date."""
    if not IDENTITY.fullmatch(who):
        raise HistoryError(f"{where}: not a name and an address: {who or 'author is missing'}")
    seconds, offset = parse_date(date, where)
    return Stamp(who=who, seconds=seconds, offset=offset)


def split_message(rest: bytes, where: str) -> tuple[str, bytes]:
    """Split what follows the header into the message and the difference."""
    start = 0 if rest.startswith(b"diff --git ") else rest.find(b"\ndiff --git ") + 1
    block, diff = (rest[:start], rest[start:]) if start or rest[:5] == b"diff " else (rest, b"")
    lines = decoded(block, where).rstrip("\n").split("\n")
    wrong = next((line for line in lines if line and not line.startswith("    ")), None)
    if wrong is not None:
        raise HistoryError(f"{where}: message lines are indented by four spaces: {wrong}")
    message = "\n".join(line[4:] for line in lines)
    if not message.strip():
        raise HistoryError(f"{where}: no message")
    return message + "\n", diff


def decoded(data: bytes, where: str) -> str:
    """Decode UTF-8, which is all that this form holds outside differences."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise HistoryError(f"{where}: not UTF-8 (byte {error.start})") from None


def format_change(change: Change) -> bytes:
    """Write one patch file; `parse_change` reads it back as it was."""
    lines = [f"author {change.author.who}", f"date {change.author.date}"]
    if change.committer.who != change.author.who:
        lines.append(f"committer {change.committer.who}")
    if (change.committer.seconds, change.committer.offset) != (
        change.author.seconds,
        change.author.offset,
    ):
        lines.append(f"committed {change.committer.date}")
    message = [
        f"    {line}" if line else "" for line in change.message.removesuffix("\n").split("\n")
    ]
    text = "\n".join([*lines, "", *message, ""])
    return text.encode() + (b"\n" + change.diff if change.diff else b"")


def read_series(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Give each operation of a series as where it stands and its words."""
    path = folder / "series"
    try:
        lines = decoded(path.read_bytes(), "series").splitlines()
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from None
    if not lines or lines[0].strip() != FORMAT:
        raise HistoryError(f"series:1: the first line must be '{FORMAT}'")
    for number, line in enumerate(lines[1:], start=2):
        if words := line.partition("#")[0].split():
            yield f"series:{number}", words


# --- git ---------------------------------------------------------------------------------------


class Repository:
    """A git directory, run so that nothing from outside can reach it."""

    def __init__(self, path: Path, home: Path) -> None:
        """Use the git directory at `path`; `home` is an empty folder for git's own needs."""
        self.path = path
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LC_ALL": "C",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_INDEX_FILE": str(home / "index"),
            "GIT_TERMINAL_PROMPT": "0",
        }

    def run(self, *words: str, data: bytes = b"", extra: Mapping[str, str] | None = None) -> bytes:
        """Run one git command on the repository and give its output."""
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        command = ["git", *settings, f"--git-dir={self.path}", *words]
        done = subprocess.run(
            command,
            input=data,
            env=self.environment | dict(extra or {}),
            capture_output=True,
            timeout=TIMEOUT_SEC,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise HistoryError(f"git {' '.join(words[:2])}: {said}", code=done.returncode)
        return done.stdout

    def text(self, *words: str, data: bytes = b"") -> str:
        """Run one git command and give its output as a stripped string."""
        return self.run(*words, data=data).decode().strip()

    def diff(self, old: str, new: str) -> bytes:
        """Give the difference between two trees, binary files included."""
        return self.run("diff-tree", "-p", "--binary", "--full-index", "--no-renames", old, new)

    def applied(self, tree: str, diff: bytes) -> str:
        """Give the tree that a difference makes of another."""
        self.run("read-tree", tree)
        if diff:
            self.run("apply", "--cached", "--whitespace=nowarn", "-", data=diff)
        return self.text("write-tree")

    def merged(self, first: str, second: str) -> str | None:
        """Give the tree that git's own merge makes, or None where it leaves conflicts."""
        try:
            return self.text("merge-tree", "--write-tree", "--no-messages", first, second)
        except HistoryError as error:
            if error.code == 1:
                return None
            raise

    def write(self, kind: str, lines: list[str], message: str) -> str:
        """Write a commit or tag object from its header lines and its message."""
        content = "\n".join([*lines, "", message]).encode()
        return self.text("hash-object", "-t", kind, "-w", "--stdin", data=content)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Repository]:
    """Open the git directory of an existing repository, leaving its index alone."""
    inner = path / ".git"
    with tempfile.TemporaryDirectory() as home:
        yield Repository((inner if inner.exists() else path).resolve(), Path(home))


@contextlib.contextmanager
def replayed(folder: Path) -> Iterator[tuple[Repository, dict[str, str]]]:
    """Give a repository made from a series, and the commit id of each number."""
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        repository = Repository(home / "repository", home)
        repository.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        replay = Replay(folder, repository)
        for where, words in read_series(folder):
            replay.carry_out(where, words)
        yield repository, replay.commits


# --- from text to a repository ------------------------------------------------------------------


class Replay:
    """Carries out the operations of one series."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        """Begin with no commit."""
        self.folder = folder
        self.repository = repository
        self.commits: dict[str, str] = {}
        self.current: str | None = None

    def carry_out(self, where: str, words: list[str]) -> None:
        """Carry out one operation; whatever is wrong with it is said with its place."""
        operations: dict[tuple[str, int], Callable[..., None]] = {
            ("commit", 1): self.commit,
            ("at", 1): self.at,
            ("merge", 2): self.merge,
            ("ours", 2): self.ours,
            ("branch", 1): self.branch,
            ("tag", 1): self.tag,
            ("tag", 2): self.tag,
            ("head", 1): self.head,
        }
        operation = operations.get((words[0], len(words) - 1))
        if operation is None:
            raise HistoryError(f"{where}: not an operation: {' '.join(words)}")
        try:
            operation(*words[1:])
        except HistoryError as error:
            raise HistoryError(f"{where}: {error}") from None

    def commit(self, file: str) -> None:
        """Put a commit on the current one."""
        change = self.change(file)
        tree = self.current or self.repository.text("mktree")
        parents = [self.current] if self.current else []
        self.add(file, change, self.repository.applied(tree, change.diff), parents)

    def merge(self, number: str, file: str) -> None:
        """Merge a commit into the current one."""
        first, second, change = self.present(), self.known(number), self.change(file)
        if change.diff:
            tree: str | None = self.repository.applied(first, change.diff)
        else:
            tree = self.repository.merged(first, second)
        if tree is None:
            raise HistoryError(f"{file}: the merge has conflicts and no difference to settle them")
        self.add(file, change, tree, [first, second])

    def ours(self, number: str, file: str) -> None:
        """Merge a commit into the current one and take nothing from it."""
        first, second, change = self.present(), self.known(number), self.change(file)
        self.add(file, change, self.repository.applied(first, change.diff), [first, second])

    def add(self, file: str, change: Change, tree: str, parents: list[str]) -> None:
        """Write the commit and make it the current one."""
        match = NUMBER.fullmatch(file)
        if not match or match[1] in self.commits:
            raise HistoryError(f"{file}: not named by a number of its own, 0001-title.patch")
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {change.author}", f"committer {change.committer}"]
        self.current = self.repository.write("commit", lines, change.message)
        self.commits[match[1]] = self.current

    def at(self, number: str) -> None:
        """Make another commit the current one."""
        self.current = None if number == "none" else self.known(number)

    def branch(self, name: str) -> None:
        """Put a branch at the current commit."""
        self.reference(f"refs/heads/{name}", self.present())

    def tag(self, name: str, file: str | None = None) -> None:
        """Put a tag at the current commit."""
        target = self.present()
        if file is not None:
            change = self.change(file)
            lines = [f"object {target}", "type commit", f"tag {name}", f"tagger {change.author}"]
            target = self.repository.write("tag", lines, change.message)
        self.reference(f"refs/tags/{name}", target)

    def head(self, name: str) -> None:
        """Say which branch a clone checks out."""
        self.repository.run("symbolic-ref", "HEAD", f"refs/heads/{name}")

    def reference(self, name: str, target: str) -> None:
        """Write one ref."""
        self.repository.run("check-ref-format", name)
        self.repository.run("update-ref", name, target)

    def change(self, file: str) -> Change:
        """Read one patch file of the series."""
        if "/" in file or file.startswith("."):
            raise HistoryError(f"{file}: a patch file lies beside the series")
        try:
            return parse_change((self.folder / file).read_bytes(), file)
        except OSError as error:
            raise HistoryError(f"{file}: {error.strerror}") from None

    def known(self, number: str) -> str:
        """Give the id of a commit that was made before."""
        if number not in self.commits:
            raise HistoryError(f"no commit {number} before this line")
        return self.commits[number]

    def present(self) -> str:
        """Give the id of the current commit."""
        if self.current is None:
            raise HistoryError("there is no commit yet")
        return self.current


def build(folder: Path, output: Path, *, bare: bool) -> None:
    """Make a bundle of all refs of a series, or a bare repository."""
    with replayed(folder) as (repository, _):
        if bare:
            shutil.copytree(repository.path, output)
            return
        partial = output.with_name(output.name + ".partial")
        try:
            repository.run("bundle", "create", "--quiet", str(partial.resolve()), "HEAD", "--all")
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)


# --- from a repository to text ------------------------------------------------------------------


class Export:
    """Writes the operations and patch files that make one repository again."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        """Begin an export into an empty folder."""
        self.repository = repository
        self.folder = folder
        self.lines = [FORMAT]
        self.numbers: dict[str, str] = {}
        self.files = 0
        self.current: str | None = None

    def everything(self) -> None:
        """Write all commits that branches and tags reach, parents first, with their refs."""
        refs = self.refs()
        listing = self.repository.text(
            "rev-list", "--topo-order", "--reverse", "--parents", "--branches", "--tags"
        )
        for line in listing.splitlines():
            commit, *parents = line.split()
            self.one(commit, parents)
            for name, target in refs.pop(commit, []):
                self.ref(name, target)
        head = self.repository.text("symbolic-ref", "HEAD").removeprefix("refs/heads/")
        self.lines.append(f"head {head}")
        (self.folder / "series").write_text("\n".join(self.lines) + "\n")

    def refs(self) -> dict[str, list[tuple[str, str]]]:
        """Give the refs at each commit as pairs of the ref's name and the object it names."""
        listing = self.repository.text(
            "for-each-ref",
            "--format=%(refname) %(objectname) %(*objectname)",
            "refs/heads",
            "refs/tags",
        )
        refs: dict[str, list[tuple[str, str]]] = {}
        for line in listing.splitlines():
            name, target, *peeled = line.split()
            refs.setdefault((peeled or [target])[0], []).append((name, target))
        return refs

    def one(self, commit: str, parents: list[str]) -> None:
        """Write one commit."""
        if len(parents) > 2:
            raise HistoryError(f"{commit}: a merge of more than two commits can't be written")
        first = parents[0] if parents else None
        if first != self.current:
            self.lines.append(f"at {self.numbers[first] if first else 'none'}")
        self.current = commit
        tree = self.repository.text("rev-parse", f"{commit}^{{tree}}")
        diff = self.repository.diff(first or self.repository.text("mktree"), commit)
        verb = "commit"
        if len(parents) == 2:
            by_itself = self.repository.merged(*parents) == tree
            verb = f"{'merge' if by_itself or diff else 'ours'} {self.numbers[parents[1]]}"
            diff = b"" if by_itself else diff
        file = self.patch(self.read("commit", commit, diff))
        self.numbers[commit] = file[:4]
        self.lines.append(f"{verb} {file}")

    def ref(self, name: str, target: str) -> None:
        """Write one branch or tag of the current commit."""
        short = name.removeprefix("refs/heads/").removeprefix("refs/tags/")
        if name.startswith("refs/heads/"):
            self.lines.append(f"branch {short}")
        elif target == self.current:
            self.lines.append(f"tag {short}")
        else:
            self.lines.append(f"tag {short} {self.patch(self.read('tag', target))}")

    def read(self, kind: str, name: str, diff: bytes = b"") -> Change:
        """Read a commit or a tag object; what the text form can't hold is refused."""
        content = decoded(self.repository.run("cat-file", kind, name), name)
        header, _, message = content.partition("\n\n")
        fields = dict(line.partition(" ")[::2] for line in header.split("\n"))
        held = {"tree", "parent", "author", "committer", "object", "type", "tag", "tagger"}
        if extra := set(fields) - held:
            raise HistoryError(f"{name}: can't be written as text: {', '.join(sorted(extra))}")
        author = stamp_of(fields.get("author") or fields["tagger"])
        committer = stamp_of(fields.get("committer") or fields["tagger"])
        change = Change(author=author, committer=committer, message=message, diff=diff)
        if parse_change(format_change(change), name) != change:
            raise HistoryError(f"{name}: its message or its stamps can't be written as text")
        return change

    def patch(self, change: Change) -> str:
        """Write the next patch file and give its name."""
        self.files += 1
        subject = change.message.split("\n", 1)[0].lower()
        slug = re.sub(r"[^a-z0-9]+", "-", subject).strip("-")[:48].strip("-") or "commit"
        file = f"{self.files:04d}-{slug}.patch"
        (self.folder / file).write_bytes(format_change(change))
        return file


def stamp_of(field: str) -> Stamp:
    """Read the stamp of a git object."""
    who, seconds, offset = field.rsplit(" ", 2)
    return Stamp(who=who, seconds=int(seconds), offset=offset)


def export(source: Path, folder: Path) -> None:
    """Write a repository as text into a new folder, which makes the same commits again."""
    if folder.exists():
        raise HistoryError(f"{folder}: exists already")
    with (
        opened(source) as repository,
        tempfile.TemporaryDirectory(dir=folder.resolve().parent) as parent,
    ):
        partial = Path(parent) / folder.name
        partial.mkdir()
        Export(repository, partial).everything()
        partial.chmod(0o755)
        partial.rename(folder)


# --- the command --------------------------------------------------------------------------------


def print_log(folder: Path) -> None:
    """Print the number, the id and the subject of each commit of a series."""
    with replayed(folder) as (repository, commits):
        for number, commit in commits.items():
            print(number, commit, repository.text("log", "-1", "--format=%s", commit))


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="history.py", description="A git repository kept as text.")
    verbs = top.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("build", help="make a git bundle from a series")
    verb.add_argument("series", type=Path, help="the folder that holds the series file")
    verb.add_argument("output", type=Path, nargs="?", help="default: $KBENCH_OUTPUT")
    verb.add_argument("--bare", action="store_true", help="make a bare repository, not a bundle")
    verb = verbs.add_parser("export", help="write a repository as a series")
    verb.add_argument("repository", type=Path)
    verb.add_argument("series", type=Path, help="a folder that doesn't exist yet")
    verb = verbs.add_parser("log", help="print number, id and subject of each commit")
    verb.add_argument("series", type=Path)
    return top


def main(words: list[str] | None = None) -> int:
    """Carry out one call; 0 is success, 2 is a call or a folder that can't be used."""
    options = parser().parse_args(words)
    try:
        if options.verb == "build":
            output = options.output or os.environ.get("KBENCH_OUTPUT")
            if output is None:
                raise HistoryError("say where to write to: an argument, or $KBENCH_OUTPUT")
            build(options.series, Path(output), bare=options.bare)
        elif options.verb == "export":
            export(options.repository, options.series)
        else:
            print_log(options.series)
    except HistoryError as error:
        print(f"history.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
