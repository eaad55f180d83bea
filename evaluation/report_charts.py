"""Small line charts as plain numbers: the report template draws them as inline SVG, so no plotting library is needed.

Only geometry lives here. All text (titles, names) goes through the template, which escapes it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT = 360, 214  # SVG user units; the page scales the drawing to its column
SMALL = (360, 130)  # little page for curves that one only looks at when something is odd
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 12, 24


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round axis values that cover ``[low, high]``, about ``count`` steps apart by 1, 2 or 5 times a power of ten."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= count), 10)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Centred mean over ``window`` values, cut at both ends (so the result has as many values as the input)."""
    half = window // 2
    return [
        sum(values[max(0, i - half) : i + half + 1]) / len(values[max(0, i - half) : i + half + 1])
        for i in range(len(values))
    ]


def label(value: float) -> str:
    """Axis label: as short as the value allows."""
    return f"{value:g}"


def line_chart(title: str, note: str, series: Mapping[str, Sequence[tuple[float, float]]], low: float | None = None,
               high: float | None = None, size: tuple[int, int] | None = None) -> dict[str, Any] | None:  # fmt: skip
    """Geometry of one chart, or None if no series has a point.

    ``series``: name -> ``[(step, value), ...]``; values that are not finite are left out. ``low``/``high`` widen the
    value axis to at least that range; ``size`` is the drawing's width and height. Each series gives a thin ``raw``
    path and a ``smooth`` one (moving average over a tenth of its points).
    """
    width, height = size or (WIDTH, HEIGHT)
    kept = {
        name: sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))
        for name, points in series.items()
    }
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return None
    xs = [x for points in kept.values() for x, _ in points]
    ys = [y for points in kept.values() for _, y in points] + [v for v in (low, high) if v is not None]
    x_low, x_high = min(xs), max(xs)
    y_ticks = nice_ticks(min(ys), max(ys))
    x_ticks = [t for t in nice_ticks(x_low, x_high) if x_low <= t <= x_high] or [x_low]

    def at_x(x: float) -> float:
        return LEFT + (width - LEFT - RIGHT) * ((x - x_low) / (x_high - x_low) if x_high > x_low else 0.5)

    def at_y(y: float) -> float:
        return height - BOTTOM - (height - TOP - BOTTOM) * (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])

    def path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)

    lines = []
    for number, (name, points) in enumerate(kept.items()):
        window = max(1, len(points) // 10)
        smooth = list(zip([x for x, _ in points], moving_average([y for _, y in points], window), strict=True))
        lines.append({
            "name": name, "number": number % 4, "raw": path(points) if window > 1 else None, "smooth": path(smooth),
            "end": (at_x(smooth[-1][0]), at_y(smooth[-1][1])), "first": smooth[0][1], "last": smooth[-1][1],
        })  # fmt: skip
    return {
        "title": title, "note": note, "width": width, "height": height, "left": LEFT, "right": width - RIGHT,
        "bottom": height - BOTTOM, "lines": lines, "smoothed": any(line["raw"] for line in lines),
        "x_ticks": [(at_x(t), label(t)) for t in x_ticks], "y_ticks": [(at_y(t), label(t)) for t in y_ticks],
    }  # fmt: skip


def curve(rows: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """Points ``(step, value)`` of the rows that have a numeric ``key``; a row without ``step`` takes its row number."""
    return [
        (float(row.get("step", number)), float(row[key]))
        for number, row in enumerate(rows, start=1)
        if isinstance(row.get(key), int | float) and isinstance(row.get("step", number), int | float)
    ]
