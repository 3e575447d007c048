"""What several test files share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import engine_box, trial_kit

# A busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A small image with a shell, removed at the end. Needs an engine."""
    yield from engine_box.fixture(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def trial_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image to try mined changes in, removed at the end. Needs an engine."""
    with trial_kit.image(tmp_path_factory.mktemp("trial-image")) as name:
        yield name
