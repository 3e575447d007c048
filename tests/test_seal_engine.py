"""The seal in real images: made by the script inside a build, proven by reading the image."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbench_build.rim.engines import tars
from kbench_build.steps.seal import seal
from tests import engine_box
from tests.engine_box import engine, spec
from tests.leak_routes import LEAKS, layers_of, tar_of
from tests.seal_kit import RUNTIME, TASK, rules, run_seal, said, write_task
from tests.seal_routes import ROUTES, Site, Upstream, git, make_upstream

pytestmark = pytest.mark.engine

GIT = f"{engine_box.NAMESPACE}/git:1"
IMAGE = f"{engine_box.NAMESPACE}/sealed:1"
LEAKING = f"{engine_box.NAMESPACE}/leaking:1"
LEAKS_IMAGE = f"{engine_box.NAMESPACE}/leaks:1"
ROUTES_IMAGE = f"{engine_box.NAMESPACE}/routes:1"
PROGRAMS = (
    "bash cat chown cmp comm cp cut dirname env find git grep head ls mkdir mktemp mv rm rmdir sed "
    "sh sort stat tr wc xargs"
)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return make_upstream(tmp_path_factory.mktemp("upstream") / "parser")


@pytest.fixture(scope="module")
def sealed_image(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A task image as tasks make theirs: history and seal in a first stage, the checkout copied."""
    scratch = tmp_path_factory.mktemp("image")
    try:
        base = "FROM scratch\nADD rootfs.tar /\nRUN mkdir -p /tmp /home\n"
        context: dict[str, Path | bytes] = {"Dockerfile": base.encode(), "rootfs.tar": _rootfs()}
        assert engine.build(spec(scratch, base, image=GIT, context=context)).status == "built"
        text = (
            f"FROM {GIT} AS sealed\nADD history.tar /home\nCOPY seal_git_history.sh /opt/kbench/\n"
            f"RUN bash /opt/kbench/seal_git_history.sh /home/parser {upstream.base} ancestors\n"
            f"FROM {GIT}\nCOPY --from=sealed /home/parser /home/parser\n"
            "COPY check_git_changes.sh /opt/kbench/\n"
            f"RUN bash /opt/kbench/check_git_changes.sh /home/parser {upstream.base}"
            " && mkdir /home/parser/build && echo built >/home/parser/build/out\n"
            "WORKDIR /home/parser\n"
        )
        context = {
            "Dockerfile": text.encode(),
            "history.tar": _tar(upstream.folder, "parser"),
            "seal_git_history.sh": RUNTIME / "seal_git_history.sh",
            "check_git_changes.sh": RUNTIME / "check_git_changes.sh",
        }
        result = engine.build(spec(scratch, text, image=IMAGE, context=context))
        assert result.status == "built", result
        yield IMAGE
    finally:
        engine_box.remove_images(IMAGE, LEAKING, LEAKS_IMAGE, ROUTES_IMAGE, GIT)


def _rootfs() -> bytes:
    files: dict[str, Path] = {}
    for program in PROGRAMS.split():
        found = shutil.which(program, path="/usr/bin:/bin")
        assert found, program
        files[f"bin/{program}"] = Path(found).resolve()
        for library in engine_box._libraries(found):
            files[library.lstrip("/")] = Path(library).resolve()
    return b"".join(tars.stream(files))


def _tar(folder: Path, name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=name)
    return buffer.getvalue()


def containers_of(image: str) -> list[str]:
    listed = engine._api.client.containers(all=True, filters={"ancestor": image})
    return [container["Id"] for container in listed]


@pytest.fixture
def site(upstream: Upstream, tmp_path: Path) -> Site:
    write_task(Site(folder=tmp_path, upstream=upstream), tmp_path)
    return Site(folder=tmp_path, upstream=upstream)


def test_the_checkout_of_a_task_image_is_proven(sealed_image: str, site: Site) -> None:
    upstreams = [site.upstream.folder]
    report = seal(
        site.folder, TASK, engine=engine, image=sealed_image, inputs="", upstreams=upstreams
    )
    assert report.ok, said(report)
    proof = report.data["proof"]
    assert proof["workdir"] == "/home/parser"
    assert proof["history"] == "ancestors"
    reached = ("rev-list", "--objects", "--no-object-names", site.upstream.base)
    assert proof["objects"] == len(git(site.upstream.folder, *reached).splitlines())
    assert proof["other_files"] == 1
    assert not containers_of(sealed_image)


def test_no_layer_holds_the_first_stage(sealed_image: str) -> None:
    packs = []
    whole = io.BytesIO(b"".join(engine._api.client.get_image(sealed_image)))
    with tarfile.open(fileobj=whole) as image:
        for member in image.getmembers():
            if member.name.endswith("layer.tar"):
                layer = image.extractfile(member)
                assert layer is not None
                with tarfile.open(fileobj=layer) as files:
                    packs += [n for n in files.getnames() if n.endswith(".pack")]
    assert len(packs) == 1


def test_what_a_later_layer_adds_is_found(sealed_image: str, site: Site, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    (extra / ".git" / "refs" / "pull").mkdir(parents=True)
    (extra / ".git" / "refs" / "pull" / "7").write_text(f"{site.fix}\n")
    (extra / "build").mkdir()
    (extra / "build" / "copy.kt").write_text("object OnlyInTheFix\n")
    (extra / "src").mkdir()
    (extra / "src" / "parser.kt").write_text("fun parse() = 42\n")
    text = f"FROM {sealed_image}\nADD extra.tar /home/\n"
    context = {"Dockerfile": text.encode(), "extra.tar": _tar(extra, "parser")}
    image = LEAKING
    result = engine.build(spec(tmp_path, text, image=image, context=context))
    assert result.status == "built", result
    report = seal(site.folder, TASK, engine=engine, image=image, inputs="")
    assert {"seal.ref", "seal.name", "seal.fix-file", "seal.tracked"} == rules(report), said(report)
    spots = {f["where"] for f in report.data["findings"]}
    assert {".git/refs/pull/7", "build/copy.kt", "src/parser.kt"} <= spots
    assert not containers_of(image)


def test_a_place_that_the_image_lacks_is_a_finding(sealed_image: str, site: Site) -> None:
    verify = site.folder / "tasks" / TASK / "tests" / "verify.json"
    verify.write_text('{"workdir": "/home/other"}')
    report = seal(site.folder, TASK, engine=engine, image=sealed_image, inputs="")
    assert rules(report) == {"seal.checkout"}
    assert not containers_of(sealed_image)


# Every route to a fix, planted in images.


def test_a_leak_in_a_layer_is_found_though_later_layers_hide_it(
    sealed_image: str, site: Site, tmp_path: Path
) -> None:
    files = layers_of(tuple(LEAKS), site.upstream)
    leaking = {name.replace("home/checkout/", "home/parser/"): f for name, f in files.items()}
    text = (
        f"FROM {GIT}\nADD leaks.tar /\nRUN rm -rf /home/* /opt /root /solution /tmp/* /var\n"
        f"COPY --from={sealed_image} /home/parser /home/parser\nWORKDIR /home/parser\n"
    )
    context = {"Dockerfile": text.encode(), "leaks.tar": tar_of(leaking)}
    image = LEAKS_IMAGE
    result = engine.build(spec(tmp_path, text, image=image, context=context))
    assert result.status == "built", result
    report = seal(site.folder, TASK, engine=engine, image=image, inputs="")
    found = {(f["rule"], f["where"]) for f in report.data["findings"]}
    for name, leak in LEAKS.items():
        place = leak.place.replace("/home/checkout/", "/home/parser/")
        spots = [w for rule, w in found if rule == leak.rule]
        assert any(w == place or w.startswith(f"{place}/") for w in spots), (name, said(report))
    assert {rule.partition("/")[0] for rule, _ in found} == {"leak"}
    proof = report.data["proof"]["image"]
    assert proof["layers"] == list(engine.layers(image))
    assert proof["bytes"] > sum(map(len, leaking.values()))
    assert not containers_of(image)


# Those that differ in a name alone are planted together; each is to be named by its place. All
# others stand alone, and one checkout is left as it was sealed.
_TEXTS = [name for name in ROUTES if name.startswith("text ")]
_TOGETHER = {
    "refs": [name for name in ROUTES if name.startswith("ref ")],
    "pseudo-refs": [name for name in ROUTES if name.startswith("pseudo-ref ")],
    **{f"texts from {at}": _TEXTS[at : at + 6] for at in range(0, len(_TEXTS), 6)},
}
_ALONE = [name for name in ROUTES if name not in {n for names in _TOGETHER.values() for n in names}]
_PLANS = (*_TOGETHER.values(), *([name] for name in _ALONE), [])


def test_every_route_in_a_repository_is_found_in_an_image(site: Site, tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    git(tmp_path, "clone", "-q", str(site.upstream.folder), str(sealed))
    run_seal(sealed, site.upstream.base, "ancestors")
    for number, names in enumerate(_PLANS):
        place = tmp_path / "routes" / str(number) / "parser"
        shutil.copytree(sealed, place, symlinks=True)
        for name in names:
            ROUTES[name].plant(Site(folder=place, upstream=site.upstream))
    text = f"FROM {GIT}\nADD routes.tar /home/\n"
    context = {"Dockerfile": text.encode(), "routes.tar": _tar(tmp_path / "routes", "routes")}
    image = ROUTES_IMAGE
    result = engine.build(spec(tmp_path, text, image=image, context=context))
    assert result.status == "built", result
    verify = site.folder / "tasks" / TASK / "tests" / "verify.json"
    for number, names in enumerate(_PLANS):
        verify.write_text(json.dumps({"workdir": f"/home/routes/{number}/parser"}))
        report = seal(site.folder, TASK, engine=engine, image=image, inputs="")
        spots = {(f["rule"], f["where"]) for f in report.data["findings"]}
        assert names or not any(rule.startswith("seal.") for rule, _ in spots), said(report)
        for name in names:
            rule = ROUTES[name].rule
            spot = f".git/{name.partition(' ')[2]}"
            assert rule in {r for r, _ in spots}, (name, said(report))
            assert len(names) == 1 or (rule, spot) in spots, (name, said(report))
