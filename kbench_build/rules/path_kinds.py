"""What a file of a repository is for, by its path: source, a test, the build, or something else.

Promises: patterns mean what they mean in `.gitignore`, so a path is told by its whole components
and never by a piece of a name. Leaves which patterns there are to presets and `kbench.toml`, and
the paths of tasks whose maintainer chose none to `patch_checks.kind_of`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

from pathspec import GitIgnoreSpec

Kind = Literal["source", "test", "build", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Patterns of each kind. What `ignored` matches is "other", whatever else would match."""

    source: tuple[str, ...]
    test: tuple[str, ...]
    build: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @cached_property
    def _specs(self) -> Mapping[Kind, GitIgnoreSpec]:
        # In this order: a build file among the tests is a test.
        return {
            "other": GitIgnoreSpec.from_lines(self.ignored),
            "test": GitIgnoreSpec.from_lines(self.test),
            "build": GitIgnoreSpec.from_lines(self.build),
            "source": GitIgnoreSpec.from_lines(self.source),
        }

    def kind_of(self, path: str) -> Kind:
        """The kind of one path (POSIX, relative to the repository)."""
        # Changes of one repository touch the same files again and again.
        return self._kind(path)

    @cached_property
    def _kind(self) -> Callable[[str], Kind]:
        return lru_cache(maxsize=100_000)(self._told)

    def _told(self, path: str) -> Kind:
        # Names that aren't UTF-8 are told by the components that are.
        name = path.encode("utf-8", "replace").decode("utf-8")
        return next((k for k, spec in self._specs.items() if spec.match_file(name)), "other")

    def kinds_of(self, paths: Iterable[str]) -> frozenset[Kind]:
        """The kinds that there are among paths."""
        return frozenset(map(self.kind_of, paths))
