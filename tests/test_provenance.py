"""Licence, addresses and hosts: what disagrees is found, what is in order is let be."""

import time
from pathlib import Path

import pytest

from kbench_build.rules.provenance import canonical, replacement
from kbench_build.steps import validate
from tests.provenance_cases import IN_ORDER, ORIGINS, hosts, licence
from tests.samples import TASK, Sample
from tests.validate_cases import Break, toml

FAMILIES = ("provenance/", "network/")


def said(sample: Sample) -> list[tuple[str, str, str, str]]:
    found = validate.findings_of(sample.validate())
    return [(f.rule, f.file, f.where, f.message) for f in found if f.rule.startswith(FAMILIES)]


@pytest.mark.parametrize("case", ORIGINS, ids=lambda case: f"{case[0]} {case[4]}")
def test_a_fact_that_is_wrong_is_found_at_its_place(
    tmp_path: Path, case: tuple[str, str, Break, str, str]
) -> None:
    rule, form, break_it, file, where = case
    sample = Sample(tmp_path, form)
    break_it(sample)
    assert (rule, f"tasks/{TASK}/{file}", where) in [found[:3] for found in said(sample)]


@pytest.mark.parametrize("case", IN_ORDER, ids=lambda case: case[0])
def test_what_is_in_order_is_let_be(tmp_path: Path, case: tuple[str, str, Break]) -> None:
    _, form, change = case
    sample = Sample(tmp_path, form)
    change(sample)
    assert said(sample) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("GPL-2.0", "GPL-2.0-only"),
        ("GPL-3.0+", "GPL-3.0-or-later"),
        ("lgpl-2.1", "LGPL-2.1-only"),
        ("AGPL-1.0", "AGPL-1.0-only"),
        ("GFDL-1.3", "GFDL-1.3-only"),
        ("StandardML-NJ", "SMLNJ"),
        ("GPL-3.0-with-GCC-exception", "GPL-3.0-only WITH GCC-exception-3.1"),
        ("GPL-2.0-only", None),
        ("Apache-2.0", None),
    ],
)
def test_a_deprecated_licence_has_the_one_that_took_its_place(old: str, new: str | None) -> None:
    assert replacement(old) == new


def test_every_licence_that_spdx_calls_deprecated_has_another() -> None:
    from packaging.licenses._spdx import LICENSES

    deprecated = {key for key, value in LICENSES.items() if value["deprecated"]}
    assert {key for key in LICENSES if replacement(key)} == deprecated
    told = {key: str(replacement(key)) for key in deprecated if key != "net-snmp"}
    assert {key: canonical(new) for key, new in told.items()} == told


def test_the_message_of_a_deprecated_licence_names_the_new_one(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    licence("MIT OR GPL-2.0+")(sample)
    ((_, _, _, message),) = said(sample)
    assert message == "'GPL-2.0+' is deprecated: write GPL-2.0-or-later"


def test_ten_thousand_hosts_take_bounded_time(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    hosts(*(f"h{n}.example" for n in range(10_000)), "a." * 5_000 + "b")(sample)
    began = time.monotonic()
    sample.validate()
    assert time.monotonic() - began < 5


def own_fix(sample: Sample) -> list[str]:
    return [where for rule, _, where, _ in said(sample) if rule == "network/own-fix"]


def test_hosts_for_all_builds_are_let_be_whoever_owns_them(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    toml('owner = "acme"', 'owner = "JetBrains"')(sample)
    hosts("cache-redirector.jetbrains.com", "download.jetbrains.com")(sample)
    assert own_fix(sample) == ["agent.allowed_hosts[1]"]


@pytest.mark.parametrize("mode", ["public", "no-network"])
def test_hosts_count_only_where_there_is_a_list(tmp_path: Path, mode: str) -> None:
    sample = Sample(tmp_path, "own")
    hosts("example.org")(sample)
    assert own_fix(sample) == ["agent.allowed_hosts[0]"]
    toml('network_mode = "allowlist"', f'network_mode = "{mode}"')(sample)
    assert own_fix(sample) == []
