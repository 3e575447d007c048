"""`kbench mine`: from a clone to candidates on disk, each with its two patches."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim.history import History
from kbench_build.rim.mine_config import load_mine_config
from kbench_build.rim.mined import CANDIDATES
from kbench_build.rim.presets import read_preset
from kbench_build.rim.store import dataset_lock
from kbench_build.rules.clone_origin import repository_of
from kbench_build.rules.merges import Pull
from kbench_build.rules.mine_filters import Filters
from kbench_build.rules.path_kinds import Patterns
from kbench_build.steps import mine as step
from tests.upstream_kit import DAY, START, Upstream, new_upstream

FILTERS = Filters(patterns=Patterns(**read_preset("kotlin-gradle")))
SOURCE, TEST = "src/main/kotlin/A.kt", "src/test/kotlin/ATest.kt"


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    repository.git("remote", "add", "origin", "https://forge.example.org/acme/text.git")
    repository.commit("README.md", "Begin")
    return repository


def change(repository: Upstream, message: str, *paths: str, lines: int = 2) -> str:
    repository.later()
    for path in paths:
        place = repository.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as file:
            file.write("".join(f"{message} {n}\n" for n in range(lines)))
    return repository.commit(".note", message)


def mined(repository: Upstream, **options: Any) -> step.Mined:
    return step.mine(repository.root, repository="acme/text", filters=FILTERS, **options)


def kbench(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-c", main, "mine", *argv]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_candidates_and_refused_ones_add_up(upstream: Upstream) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    change(upstream, "Bump a from 1 to 2 (#2)", SOURCE, TEST)
    change(upstream, "Say it (#3)", "docs/index.md")
    change(upstream, "Test it (#4)", TEST)
    change(upstream, "Rewrite it (#5)", SOURCE, TEST, lines=900)
    found = mined(upstream)
    assert [c.change.id for c in found.kept] == ["#1"]
    reasons = [(r.id, r.reason) for r in found.refused]
    assert reasons == [
        ("#5", "too-large"),
        ("#4", "no-source"),
        ("#3", "no-source"),
        ("#2", "chore"),
    ]
    assert found.merged == len(found.kept) + len(found.refused)


def test_only_the_newest_are_kept_when_asked(upstream: Upstream) -> None:
    for number in range(1, 5):
        change(upstream, f"Step {number} (#{number})", SOURCE, TEST)
    found = mined(upstream, most=2)
    assert [c.change.id for c in found.kept] == ["#4", "#3"]
    assert found.beyond == 2


def test_a_window_is_kept_although_its_base_lies_before(upstream: Upstream) -> None:
    for number in range(1, 5):
        change(upstream, f"Step {number} (#{number})", SOURCE, TEST)
    found = mined(upstream, since=START + 2 * DAY, until=START + 3 * DAY)
    assert [c.change.id for c in found.kept] == ["#3", "#2"]


def test_what_is_written_makes_the_merged_tree_of_the_base(
    upstream: Upstream, tmp_path: Path
) -> None:
    change(upstream, "Keep it, fixes #9 (#1)", SOURCE, TEST, "build.gradle.kts")
    folder = tmp_path / "mined"
    step.write(mined(upstream), folder)
    (line,) = (folder / CANDIDATES).read_text(encoding="utf-8").splitlines()
    about = json.loads(line)
    assert about["issues"] == [{"repository": "acme/text", "number": 9}]
    assert about["lines"] == {"source": 2, "test": 2, "build": 2, "other": 1}
    assert about["files"]["test"] == [TEST]
    parts = [(folder / "1" / f"{name}.patch").read_bytes() for name in ("test", "fix", "rest")]
    history = History(upstream.root, tmp_path / "store")
    assert history.apply(about["base_tree"], parts) == about["merge_tree"]
    assert b"build.gradle.kts" in parts[1]


def test_a_test_moved_out_of_the_source_is_parted_without_renames(upstream: Upstream) -> None:
    change(upstream, "Add (#1)", "src/main/kotlin/Fixture.kt", lines=50)
    place = upstream.root / "src" / "test" / "kotlin"
    place.mkdir(parents=True)
    (upstream.root / "src/main/kotlin/Fixture.kt").rename(place / "Fixture.kt")
    change(upstream, "Move (#2)", SOURCE)
    (found,) = mined(upstream).kept
    assert b"rename" not in found.split.patch("source", "test")
    assert found.split.paths("test") == ("src/test/kotlin/Fixture.kt",)


def test_objects_that_a_partial_clone_lacks_are_a_reason(
    upstream: Upstream, tmp_path: Path
) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    change(upstream, "Say it (#2)", "docs/index.md")
    upstream.git("config", "uploadpack.allowFilter", "true")
    options = ["--filter=blob:none", "--no-checkout", "-q"]
    upstream.git("clone", *options, f"file://{upstream.root}", str(tmp_path / "partial"))
    found = mined(Upstream(tmp_path / "partial"))
    assert [(r.id, r.reason) for r in found.refused] == [
        ("#2", "no-source"),
        ("#1", "objects-missing"),
    ]


def test_what_was_force_pushed_away_is_a_reason_and_the_rest_goes_on(upstream: Upstream) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    gone = change(upstream, "Drop it (#2)", SOURCE, TEST)
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    change(upstream, "Keep this (#3)", SOURCE, TEST)
    long_ago = START - 900 * DAY
    pulls = [
        Pull(number=2, title="Drop it", merged=upstream.now - DAY, merge_commit=gone),
        Pull(number=4, title="Long ago", merged=long_ago, merge_commit="f" * 40),
    ]
    found = mined(upstream, pulls=pulls)
    assert [c.change.id for c in found.kept] == ["#3", "#1"]
    assert [(r.id, r.reason, r.detail) for r in found.refused] == [
        ("#2", "merge-missing", gone[:12])
    ]
    assert found.merged == 3


def test_a_change_of_ten_thousand_files_is_refused_and_the_rest_goes_on(
    upstream: Upstream,
) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    change(upstream, "Move everything (#2)", *(f"src/main/kotlin/F{n}.kt" for n in range(10_000)))
    change(upstream, "Keep this (#3)", SOURCE, TEST)
    found = mined(upstream)
    assert [c.change.id for c in found.kept] == ["#3", "#1"]
    assert [(r.id, r.reason) for r in found.refused] == [("#2", "too-many-files")]


def test_a_patch_of_many_megabytes_is_refused_and_the_rest_goes_on(upstream: Upstream) -> None:
    asset = upstream.root / "asset.bin"
    for number in (1, 2):
        asset.write_bytes(random.Random(number).randbytes((number - 1) * (24 << 20) + 1000))
        change(upstream, f"Change {number} (#{number})", SOURCE, TEST)
    found = mined(upstream)
    assert [c.change.id for c in found.kept] == ["#1"]
    assert [(r.id, r.reason) for r in found.refused] == [("#2", "too-heavy")]


def test_a_history_of_a_gigabyte_takes_little_memory(upstream: Upstream, tmp_path: Path) -> None:
    for number in range(1, 17):
        asset = upstream.root / "docs" / f"film-{number}.bin"
        asset.parent.mkdir(exist_ok=True)
        with asset.open("wb") as file:
            file.write(number.to_bytes(8, "big"))
            file.truncate(64 << 20)
        upstream.git("-c", "core.compression=1", "add", "docs")
        change(upstream, f"Show it (#{2 * number})")
        asset.unlink()
        change(upstream, f"Keep it (#{2 * number + 1})", SOURCE, TEST)
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "mine", str(upstream.root), "--format", "json"]
    # A process begins with what its parent holds; between this one and it stands a small one.
    measure = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); "
        "sys.exit(code)"
    )
    whole = [sys.executable, "-c", measure, *command]
    done = subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["candidates"]) == 16
    assert int(done.stderr.splitlines()[-1]) < 200 << 10


def test_a_second_run_for_one_repository_says_so_in_one_line(
    upstream: Upstream, tmp_path: Path
) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    with dataset_lock(tmp_path, "acme_text.lock"):
        second = kbench(str(upstream.root), cwd=tmp_path)
        other = kbench(str(upstream.root), "--repository", "acme/other", cwd=tmp_path)
        looking = kbench(str(upstream.root), "--dry-run", cwd=tmp_path)
    assert (second.returncode, second.stdout) == (2, "")
    assert "is working on this dataset: wait for it" in second.stderr
    assert not (tmp_path / "mined" / "acme_text").exists()
    assert (other.returncode, looking.returncode) == (0, 0)
    assert kbench(str(upstream.root), cwd=tmp_path).returncode == 0


def test_the_command_shows_a_funnel_and_writes_candidates(
    upstream: Upstream, tmp_path: Path
) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    change(upstream, "Say it (#2)", "docs/index.md")
    done = kbench(str(upstream.root), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "acme/text" in lines
    assert "2 merged changes" in lines
    assert "-1 changes no source" in lines
    assert "1 candidates" in lines
    assert (tmp_path / "mined" / "acme_text" / "1" / "fix.patch").is_file()


def test_a_dry_run_writes_nothing(upstream: Upstream, tmp_path: Path) -> None:
    change(upstream, "Keep it (#1)", SOURCE, TEST)
    done = kbench(str(upstream.root), "--dry-run", "--format", "json", cwd=tmp_path)
    assert json.loads(done.stdout)["candidates"] == ["#1"]
    assert not (tmp_path / "mined").exists()


def test_the_forges_data_is_joined_and_its_broken_lines_are_named(
    upstream: Upstream, tmp_path: Path
) -> None:
    change(upstream, "wip (#1)", SOURCE, TEST)
    record = {"number": 1, "title": "Keep it", "mergedAt": "2024-01-03T00:00:00Z"}
    pulls = tmp_path / "pulls.jsonl"
    pulls.write_text(f"{json.dumps(record)}\n{{\n", encoding="utf-8")
    done = kbench(str(upstream.root), "--pulls", str(pulls), cwd=tmp_path)
    assert "pulls.jsonl: line 2: is no JSON" in done.stderr
    written = (tmp_path / "mined" / "acme_text" / CANDIDATES).read_text(encoding="utf-8")
    assert json.loads(written)["title"] == "Keep it"


def test_settings_of_the_dataset_are_kept(upstream: Upstream, tmp_path: Path) -> None:
    change(upstream, "Keep it (#1)", "lib/a.js", "spec/a.js")
    text = '[mine]\npreset = "typescript"\nfewest_lines = 4\nbots = ["ada"]\n'
    (tmp_path / "kbench.toml").write_text(text, encoding="utf-8")
    config = load_mine_config(tmp_path)
    filters = step.filters_of(config, Patterns(**config.patterns))
    found = step.mine(upstream.root, repository="acme/text", filters=filters)
    assert [r.reason for r in found.refused] == ["bot"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine = 3", "mine: must be a table"),
        ("[mine]\nlangage = 'x'", "mine.langage: is no key here; known are bots"),
        ("[mine]\npreset = 3", "mine.preset: must be a string"),
        ("[mine]\npreset = 'cobol'", "cobol: no such preset"),
        ("[mine]\ntest = 'x'", "mine.test: must be a list of strings"),
        ("[mine]\nmost_lines = 0", "mine.most_lines: must be a whole number"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kbench.toml").write_text(text, encoding="utf-8")
    with pytest.raises(KbenchError, match=message):
        load_mine_config(tmp_path)


def test_a_clone_without_an_origin_needs_a_name(upstream: Upstream, tmp_path: Path) -> None:
    upstream.git("remote", "remove", "origin")
    done = kbench(str(upstream.root), cwd=tmp_path)
    assert done.returncode == 2
    assert "add --repository OWNER/NAME" in done.stderr


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/acme/text.git", "acme/text"),
        ("https://github.com/acme/text/", "acme/text"),
        ("git@github.com:acme/text.git", "acme/text"),
        ("ssh://git@forge.example.org:22/acme/text.js", "acme/text.js"),
        ("https://gitlab.com/group/sub/text.git", "sub/text"),
        ("/srv/mirrors/acme/text.git", "acme/text"),
        ("", ""),
        ("text", ""),
        ("https://github.com/../..", ""),
    ],
)
def test_an_address_names_a_repository(address: str, name: str) -> None:
    assert repository_of(address) == name
