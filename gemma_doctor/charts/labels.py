"""Words of a chart that all renderers share. Everything returned is escaped for a terminal, not for HTML."""

from __future__ import annotations

from itertools import pairwise

from gemma_doctor.charts.chart import Chart, Panel, Shares
from gemma_doctor.evidence import Floats32, Ints
from gemma_doctor.finding import counted
from gemma_doctor.report.escape import escape

LONGEST_TOKEN = 18
MEAN = "mean of all heads and shown queries"
_TITLES = {"attention": "what {} {}", "mask": "what {} may read", "influence": "what the logits at {} depend on"}


def percent(share: float) -> str:
    """ "62.1%"; what is not 0 never looks like 0."""
    if share == 0:
        return "0"
    return "<0.1%" if share < 0.0005 else f"{share:.1%}"


def quoted(token: str) -> str:
    """Token text between quotes, so that a leading space shows; long ones are cut; "" where it is unknown."""
    if not token:
        return ""
    text = escape(token)
    return f"'{text}'" if len(text) <= LONGEST_TOKEN else f"'{text[: LONGEST_TOKEN - 2]}..'"


def title(chart: Chart) -> str:
    """ "gemma-3-270m: what token 1,000 ' the' reads"."""
    first, last = int(chart.queries[0]), int(chart.queries[-1])
    if chart.is_single_row:
        place, verb = f"token {first:,}{_text_at(chart, first)}", "reads"
    else:
        place, verb = f"tokens {first:,} to {last:,}", "read"
    return f"{escape(chart.subject)}: {_TITLES[chart.kind].format(place, verb)}"


def facts(chart: Chart) -> str:
    """All facts on one line."""
    return "; ".join(f"{escape(name)} {escape(text)}" for name, text in chart.facts.items())


def spans(positions: Ints, most: int = 4) -> str:
    """Ascending positions as stretches: "484..488, 490 and 7 more keys (left pads are negative)"."""
    breaks = [0, *(int(i) + 1 for i in (positions[1:] - positions[:-1] != 1).nonzero()[0]), len(positions)]
    stretches = [positions[start:end] for start, end in pairwise(breaks)]
    told = [f"{one[0]:,}" if len(one) == 1 else f"{one[0]:,}..{one[-1]:,}" for one in stretches[:most]]
    rest = sum(len(one) for one in stretches[most:])
    text = ", ".join(told) + (f" and {counted(rest, 'more key')}" if rest else "")
    return f"{text} (left pads are negative)" if positions[0] < 0 else text


def strongest(chart: Chart, row: Floats32, most: int = 5) -> list[tuple[int, str, float]]:
    """The keys with the largest weight, strongest first: (position, quoted token, weight). Keys of weight 0 never.

    Args:
        row: shape (keys,), NaN where there is nothing.
    """
    order = (-row).argsort(kind="stable")[:most]  # NaN sorts last
    return [(int(chart.keys[i]), quoted(chart.tokens[i]), float(row[i])) for i in order if row[i] > 0]


def share_columns(chart: Chart) -> tuple[str, ...]:
    """Names of what `share_cells` shows; the sum of a row only where kernels have sinks of their own."""
    sinks = any(panel.shares is not None and panel.shares.has_sink for panel in chart.panels)
    return ("inside", "first", "itself", "beyond", "entropy", *["sum"] * sinks)


def share_cells(one: Shares, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The shares of one layer in words; "!" marks what must not be."""
    beyond = percent(one.beyond) + "!" * (one.beyond > 0)
    parts = (percent(one.inside), percent(one.first), percent(one.itself), beyond, f"{one.entropy:.2f}")
    return (*parts, percent(one.total))[: len(columns)]


def key_name(position: int, token: str, weight: float) -> str:
    """ "998 ' the' 8.1%"."""
    return f"{named(position, token)} {percent(weight)}"


def named(position: int, token: str) -> str:
    """ "998 ' the'" of a quoted token; the position alone where the text is unknown."""
    return f"{position:,} {token}".rstrip()


def strongest_title(chart: Chart, by_head: bool = False) -> str:
    """What the numbers of `strongest` are.

    Args:
        by_head: they are told for every head.
    """
    if chart.kind == "influence":
        return "strongest keys (of the largest)"
    many_heads = not by_head and any(len(panel.heads) > 1 for panel in chart.panels)
    over = ["shown heads"] * many_heads + ["shown queries"] * (not chart.is_single_row)
    return f"strongest keys (largest of all {' and '.join(over)})" if over else "strongest keys"


def reach(panel: Panel) -> str:
    """ "may depend on every token", "reach from token 70 on"; "" of a layer, which has no reach of its own."""
    if panel.reach is None:
        return ""
    first, last = int(panel.reach[0]), int(panel.reach[-1])
    if last == 0:
        return "may depend on every token"
    others = f" for the last query, from token {first:,} on for the first" if first != last else ""
    return f"reach from token {last:,} on{others}"


def meanings(kind: str) -> dict[str, str]:
    """What a legend says of every look (see layout.looks) and of the edge."""
    is_mask, is_influence = kind == "mask", kind == "influence"
    return {
        "edge": "start of its reach" if is_influence else "start of what it may read",
        "absent": "later than the query" if is_influence else "not handed to the kernel",
        "read": "readable" if is_mask else "read",
        "unread": "not readable" if is_mask else "out of reach, and not read",
        "extra": f"{'readable' if is_mask else 'read'}, and must not be",
        "missing": "should be readable, and is not",
    }


def steps(length: int, most: int) -> int:
    """The distance between ticks: 1, 2 or 5 times a power of ten, so that at most `most` fit into `length`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if length <= factor * power * most:
                return factor * power
        power *= 10


def _text_at(chart: Chart, position: int) -> str:
    index = position - int(chart.keys[0])
    text = quoted(chart.tokens[index]) if 0 <= index < len(chart.keys) else ""
    return f" {text}" if text else ""
