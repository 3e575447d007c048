"""Pictures of a mining run: its funnel, and its yield by month, as SVG or PNG.

Promises: the same values give the same bytes with the same version of matplotlib, whatever the
time, the locale, a display or a style file of the user's; colours that colour-blind readers tell
apart (Okabe and Ito's), and never a colour alone. Leaves the numbers to others.
"""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kbench_build.errors import KbenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["svg", "png"]

_BLUE, _ORANGE, _RED, _GREY, _INK = "#0072B2", "#E69F00", "#D55E00", "#C9CDD2", "#222222"
_EXTRA = "pictures need matplotlib: install kbench-build[mine]"
_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so widths are the same everywhere
    "font.size": 11,
    "axes.edgecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "text.parse_math": False,  # a title may hold dollars
    "svg.fonttype": "path",
    "svg.hashsalt": "kbench",
    "hatch.linewidth": 0.8,
}
_LONGEST_LABEL = 64
_MOST_NUMBERED = 40


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One line of a funnel: what is left, or what a reason took away (not `is_total`)."""

    label: str
    count: int
    is_total: bool


@dataclass(frozen=True, kw_only=True)
class Column:
    """One month (`2024-03`): how many were tried, became tasks, and in how many nothing ran."""

    month: str
    tried: int
    valid: int
    nothing_ran: int


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A drop that is marked, from one month to another; shares from 0 to 1."""

    first: str
    last: str
    share: float
    usual: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The months of one environment, in order."""

    name: str
    columns: tuple[Column, ...]
    alarm: Alarm | None = None


def funnel_picture(title: str, bars: Sequence[Bar], kind: Kind = "svg") -> bytes:
    """The funnel: a bar for what is left, and one for what each reason took, hanging below it."""
    with _drawing():
        figure = _figure(9, 1.0 + 0.36 * max(1, len(bars)))
        axes = figure.subplots()
        _draw_funnel(axes, bars)
        _entitle(figure, title)
        return _bytes(figure, kind, title)


def yield_picture(title: str, panels: Sequence[Panel], kind: Kind = "svg") -> bytes:
    """A panel for each environment: what came of each month's candidates, alarms marked."""
    with _drawing():
        widest = max((len(_calendar(panel.columns)) for panel in panels), default=0)
        width, height = min(24, max(9, 2.5 + 0.42 * widest)), 1.4 + 2.9 * max(1, len(panels))
        figure = _figure(width, height)
        axes = figure.subplots(max(1, len(panels)), squeeze=False)[:, 0]
        for panel, place in zip(panels, axes, strict=False):
            _draw_panel(place, panel)
        if panels:
            axes[0].legend(loc="upper left", bbox_to_anchor=(1, 0.85), frameon=False, fontsize=10)
        else:
            axes[0].axis("off")
            axes[0].text(0, 0.5, "no candidate was tried yet")
        _entitle(figure, title)
        return _bytes(figure, kind, title)


def check() -> None:
    """Raise `KbenchError` where nothing is there that could draw, before hours of work."""
    with _drawing():
        pass


@contextmanager
def _drawing() -> Iterator[None]:
    """matplotlib with our style and nothing of the user's. Raises `KbenchError` without it."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - half a second, and an extra
        from matplotlib import style  # noqa: PLC0415
    except ImportError as error:
        raise KbenchError(_EXTRA) from error
    with style.context("default"), mpl.rc_context(_STYLE):
        yield


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), layout="constrained")


def _entitle(figure: "Figure", title: str) -> None:
    figure.suptitle(_short(title, 80), x=0.01, ha="left", fontsize=12, fontweight="bold")


def _bytes(figure: "Figure", kind: Kind, title: str) -> bytes:
    """The picture without the time and the version that matplotlib writes into it."""
    about = {"Date": None, "Creator": None, "Title": title} if kind == "svg" else {"Software": None}
    # A letter that the font lacks is drawn as a box.
    with io.BytesIO() as file, warnings.catch_warnings(action="ignore"):
        figure.savefig(file, format=kind, dpi=144, metadata=about)
        return file.getvalue()


def _short(text: str, most: int) -> str:
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


# The funnel.


def _draw_funnel(axes: "Axes", bars: Sequence[Bar]) -> None:
    most = max((bar.count for bar in bars), default=0) or 1
    left = 0
    for place, bar in enumerate(bars):
        left = bar.count if bar.is_total else left - bar.count
        start = 0 if bar.is_total else left
        axes.barh(place, bar.count, left=start, height=0.72, **_look(bar))
        words = f"{bar.count:,}" if bar.is_total else f"-{bar.count:,}"
        end = start + bar.count + most * 0.01
        axes.text(end, place, words, va="center", fontweight=_weight(bar))
    axes.set_yticks(range(len(bars)), [_short(bar.label, _LONGEST_LABEL) for bar in bars])
    for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
        label.set_fontweight(_weight(bar))
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.12)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _look(bar: Bar) -> dict[str, Any]:
    loss = {"facecolor": _GREY, "edgecolor": _INK, "hatch": "///", "linewidth": 0.6}
    return {"color": _BLUE} if bar.is_total else loss


def _weight(bar: Bar) -> str:
    return "bold" if bar.is_total else "normal"


# The yield by month.


def _calendar(columns: Sequence[Column]) -> tuple[str, ...]:
    """All months from the first to the last, also those without a candidate."""
    if not columns:
        return ()
    first, last = (_number(column.month) for column in (columns[0], columns[-1]))
    return tuple(f"{n // 12:04}-{n % 12 + 1:02}" for n in range(first, last + 1))


def _number(month: str) -> int:
    year, number = month.split("-")
    return int(year) * 12 + int(number) - 1


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    calendar = _calendar(panel.columns)
    places = {month: place for place, month in enumerate(calendar)}
    _draw_columns(axes, panel.columns, places)
    if panel.alarm:
        _draw_alarm(axes, places, panel.alarm)
    tried, valid = (sum(getattr(c, name) for c in panel.columns) for name in ("tried", "valid"))
    words = f"{_short(panel.name, 40)}: {valid:,} of {tried:,} became tasks"
    axes.set_title(words, loc="left", fontsize=11, pad=8)
    shown = range(0, len(calendar), max(1, -(-len(calendar) // 24)))
    axes.set_xticks(list(shown), [calendar[n] for n in shown], rotation=60, ha="right", fontsize=9)
    axes.tick_params(axis="x", pad=1)
    axes.set_xlim(-0.7, len(calendar) - 0.3)
    axes.set_ylim(0, 128)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("share of candidates, %", fontsize=10)


def _draw_columns(axes: "Axes", columns: Sequence[Column], places: Mapping[str, int]) -> None:
    at = [places[column.month] for column in columns]
    valid = [100 * c.valid / c.tried for c in columns]
    ran = [100 * (c.tried - c.valid - c.nothing_ran) / c.tried for c in columns]
    nothing = [100 * c.nothing_ran / c.tried for c in columns]
    tops = [a + b for a, b in zip(valid, ran, strict=True)]
    axes.bar(at, valid, color=_BLUE, label="became a task")
    axes.bar(at, ran, bottom=valid, color=_GREY, label="ran, no task")
    look: dict[str, Any] = {"edgecolor": _INK, "hatch": "////", "linewidth": 0}
    axes.bar(at, nothing, bottom=tops, label="nothing ran", color=_ORANGE, **look)
    if len(places) <= _MOST_NUMBERED:
        for place, column in zip(at, columns, strict=True):
            axes.text(place, 101.5, str(column.tried), ha="center", va="bottom", fontsize=9)


def _draw_alarm(axes: "Axes", places: Mapping[str, int], alarm: Alarm) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    start, end = places[alarm.first] - 0.5, places[alarm.last] + 0.5
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": _RED, "linewidth": 2.2}
    axes.add_patch(Rectangle((start, 0), end - start, 112, linestyle="--", zorder=5, **look))
    words = f"alarm: {100 * alarm.share:.0f} % instead of {100 * alarm.usual:.0f} %"
    side, place = ("left", start) if start + end < len(places) else ("right", end)
    axes.text(place, 116, words, ha=side, va="bottom", color=_RED, fontweight="bold")
