"""What several test files share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import engine_box, trial_kit

# A busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


_ON_THE_ENGINE = ("engine", "dataset", "harbor")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker alone uses the engine; it begins with what takes longest."""
    for item in items:
        if any(item.get_closest_marker(name) for name in _ON_THE_ENGINE):
            item.add_marker(pytest.mark.xdist_group("engine"))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A small image with a shell, removed at the end. Needs an engine."""
    yield from engine_box.fixture(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def trial_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image to try mined changes in, removed at the end. Needs an engine."""
    with trial_kit.image(tmp_path_factory.mktemp("trial-image")) as name:
        yield name
