"""Yield by month, and an alarm that tells a broken environment from noise."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from kbench_build.rules.yields import Drop, Month, Tried, by_month, drops


def months(shares: Sequence[float], tried: int = 40, environment: str = "jdk17") -> list[Month]:
    return [
        Month(
            environment=environment,
            month=f"{2023 + n // 12}-{n % 12 + 1:02}",
            tried=tried,
            valid=round(share * tried),
            nothing_ran=0,
        )
        for n, share in enumerate(shares)
    ]


def drawn(shares: Sequence[float], tried: int, seed: int) -> list[Month]:
    """Months in which each candidate is valid with that month's chance."""
    chance = random.Random(seed)
    valid = [sum(chance.random() < share for _ in range(tried)) / tried for share in shares]
    return months(valid, tried)


def test_two_months_at_15_percent_among_70_are_named() -> None:
    (drop,) = drops(months([0.7] * 6 + [0.15] * 2 + [0.7] * 6))
    assert (drop.first, drop.last) == ("2023-07", "2023-08")
    assert (drop.share, drop.usual) == (0.15, 0.7)


@pytest.mark.parametrize("seed", range(30))
def test_two_bad_months_are_found_in_real_draws(seed: int) -> None:
    (drop,) = drops(drawn([0.7] * 5 + [0.15] * 2 + [0.7] * 5, 30, seed))
    assert "2023-05" <= drop.first <= "2023-06"
    assert "2023-07" <= drop.last <= "2023-08"


@pytest.mark.parametrize("tried", [5, 12, 40, 300])
@pytest.mark.parametrize("length", [3, 12, 24])
def test_noise_of_60_by_8_percent_is_quiet(tried: int, length: int) -> None:
    chance = random.Random(tried * length)
    for seed in range(60):
        shares = [min(1, max(0, chance.gauss(0.6, 0.08))) for _ in range(length)]
        assert drops(drawn(shares, tried, seed)) == ()


def test_a_break_that_lasts_is_named_to_the_end() -> None:
    (drop,) = drops(months([0.7] * 8 + [0.2] * 4))
    assert (drop.first, drop.last) == ("2023-09", "2023-12")


def test_each_environment_is_compared_with_itself() -> None:
    good, bad = months([0.8] * 6, environment="new"), months([0.3] * 6, environment="old")
    assert drops([*good, *bad]) == ()
    broken = months([0.8] * 4 + [0.1] * 2, environment="third")
    assert [d.environment for d in drops([*good, *broken, *bad])] == ["third"]


@pytest.mark.parametrize("shares", [[], [0.5], [0.0] * 5, [1.0] * 5])
def test_nothing_to_compare_is_quiet(shares: list[float]) -> None:
    assert drops(months(shares)) == ()


def test_few_candidates_say_nothing() -> None:
    assert drops(months([0.7, 0.7, 0.0, 0.7], tried=4)) == ()


def day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_candidates_are_counted_by_month_and_environment() -> None:
    tried = [
        Tried(environment="b", merged=day("2024-02-01"), trial="valid"),
        Tried(environment="a", merged=day("2024-01-31T23:59:59"), trial="invalid"),
        Tried(environment="a", merged=day("2024-01-01"), trial="valid"),
        Tried(environment="a", merged=day("2024-02-01"), trial="nothing-ran"),
    ]
    found = [(m.environment, m.month, m.tried, m.valid, m.nothing_ran) for m in by_month(tried)]
    assert found == [
        ("a", "2024-01", 2, 1, 0),
        ("a", "2024-02", 1, 0, 1),
        ("b", "2024-02", 1, 1, 0),
    ]
    assert [m.share for m in by_month(tried)] == [0.5, 0.0, 1.0]


def test_a_drop_says_how_sure_it_is() -> None:
    (drop,) = drops(months([0.7] * 6 + [0.15] * 2))
    assert isinstance(drop, Drop)
    assert 0 < drop.p_value < 0.001
