"""Heatmaps: the data, and every renderer, at three lengths, healthy, sick and hostile."""

from __future__ import annotations

import base64
import csv
import hashlib
import html.parser
import io
import json
import re
import struct
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fake_charts import HOSTILE, chart, key_missing, misplaced, window_ignored, with_panel
from matplotlib.collections import LineCollection

from gemma_doctor.charts import FORMATS, cells, figures, labels, layout, page, render, strips, terminal
from gemma_doctor.charts.chart import Chart, binned, shares
from gemma_doctor.finding import Cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = (10, 1_000, 32_000)
FEW = (0, 1, 5)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def few(length: int = 1000, **more: Any) -> Chart:
    return chart(length, layers=FEW, **more)


# --- the data --------------------------------------------------------------------------------------------------------


def test_shares_say_where_the_weight_goes() -> None:
    weights = np.array([[[0.5, 0.25, 0.25, np.nan]], [[0.5, 0.0, 0.5, np.nan]]], dtype=np.float32)
    allowed = np.array([[False, True, True, False]])
    told = shares(weights, allowed, np.array([1]), np.array([-1, 0, 1, 2]))
    assert (told.inside, told.first, told.itself, told.beyond, told.total) == (0.5, 0.125, 0.375, 0.5, 1.0)
    assert told.entropy == pytest.approx((1.5 + 1) / 2 * np.log(2))


def test_shares_of_a_kernel_with_sinks_sum_to_less() -> None:
    told = shares(np.full((1, 1, 2), 0.25, np.float32), np.ones((1, 2), bool), np.array([1]), np.array([0, 1]))
    assert (told.total, told.entropy) == (0.5, pytest.approx(np.log(2)))


def test_entropy_of_a_single_key_is_a_plain_zero() -> None:
    told = shares(np.ones((1, 1, 1), np.float32), np.ones((1, 1), bool), np.array([0]), np.array([0]))
    assert str(told.entropy) == "0.0"


@pytest.mark.parametrize("most", [1, 3, 4, 100])
def test_bins_keep_the_largest(most: int) -> None:
    values = np.array([[1, 2, 9, 3, 0, 4, np.nan]], dtype=np.float32)
    bins, width = binned(values, most)
    assert bins.shape[1] <= most
    assert width == max(1, -(-7 // most))
    assert np.nanmax(bins) == 9
    assert bins[0, 2 // width] == 9


def test_a_bin_of_nothing_stays_nothing() -> None:
    bins, _ = binned(np.array([np.nan, np.nan, 0, 1], dtype=np.float32), 2)
    assert np.isnan(bins[0])
    assert bins[1] == 1


# --- slices: queries that were not handed all keys -------------------------------------------------------------------


def last_key_read(kind: str = "attention", heads: tuple[str, ...] = ("mean",)) -> Chart:
    """20 queries of one layer; the last key, which only the last query is handed, gets most of its weight."""
    one = chart(layers=(5,), queries=20, kind=kind, heads=heads)
    values = one.panels[0].values.copy()
    values[:, -1, -1] = 0.9
    return with_panel(one, 0, values=values)


def test_the_peak_of_a_key_counts_the_queries_that_were_handed_it() -> None:
    values = np.array([[[0.5, np.nan, np.nan], [0.1, 0.9, np.nan]]], dtype=np.float32)
    np.testing.assert_array_equal(layout.peaks(values), np.array([0.5, 0.9, np.nan], dtype=np.float32))


def test_the_strongest_keys_of_a_slice_are_those_of_any_query() -> None:
    text = terminal.render(last_key_read(), None, color=False)
    assert "strongest keys (largest of all shown queries)\n" in text
    assert re.search(r"   5 full  .*  999 '\\n' 90\.0%, ", text)
    seen = Elements(page.render(last_key_read()))
    assert seen.of("th")[-1] == "strongest keys (largest of all shown queries)"
    assert seen.of("td")[-1].startswith("999 '\\n' 90.0%, ")


def test_the_strongest_keys_of_every_head_of_a_slice() -> None:
    one = last_key_read(heads=("0", "1"))
    text = terminal.render(one, None, color=False)
    assert len(re.findall(r"    head [01]  .*  999 '\\n' 90\.0%, ", text)) == 2
    assert "(largest of all shown heads and shown queries)" in Elements(page.render(one)).of("th")[-1]


def test_the_page_counts_what_any_query_of_a_slice_may_read() -> None:
    assert Elements(page.render(last_key_read("mask"))).of("td")[-1] == "1,000 of 1,000 keys"


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_healthy_chart_has_no_faults() -> None:
    for one in (few(), few(pads=7), few(queries=20), few(kind="mask"), few(kind="influence"), few(10, window=4)):
        assert [*layout.faults(one)] == []


def test_faults_name_layer_query_head_and_keys() -> None:
    sick = window_ignored(key_missing(few(pads=100, heads=("0", "3")), 0), 1)
    assert [*layout.faults(sick)] == [
        "layer 0, sliding W=512: token 899 (head 0) was not handed 1 key that it should read: 388",
        "layer 1, sliding W=512: token 899 (head 0) reads 40 keys that it must not: 348..387; 10.0% of its weight",
    ]


def test_a_fault_of_many_queries_is_told_once() -> None:
    (said,) = layout.faults(window_ignored(few(queries=20), 1))
    assert said.startswith("layer 1, sliding W=512: token 980 reads 40 keys that it must not: 429..468; 10.0% ")
    assert said.endswith("; and 19 more of the shown queries")


def test_faults_of_a_mask() -> None:
    sick = window_ignored(key_missing(few(kind="mask"), 0), 1)
    assert [*layout.faults(sick)] == [
        "layer 0, sliding W=512: token 999 may not read 1 key that it should: 488",
        "layer 1, sliding W=512: token 999 may read 40 keys that it should not: 448..487",
    ]


def test_misplaced_keys_are_named() -> None:
    (said,) = layout.faults(misplaced(few(), 0))
    assert said.startswith("layer 0, sliding W=512: the slot of token 5 holds token 4, ")
    assert said.endswith("the slot of token 8 holds nothing, and 2 more slots are wrong")


def test_a_stretch_shows_all_that_is_read() -> None:
    healthy, sick = few(32_000), window_ignored(few(32_000), 1)
    first = healthy.keys[layout.groups(healthy)[0].stretch][0]
    assert 31_400 < first < 31_488
    assert sick.keys[layout.groups(sick)[0].stretch][0] < 31_448


def test_a_fault_shows_in_its_bin() -> None:
    sick = key_missing(few(32_000), 2)
    one = sick.panels[2]
    seen = layout.marks(sick, one, one.values[0], slice(0, 32_000), (8, 100))
    assert seen.width == 320
    assert seen.missing[0].tolist() == [True, *[False] * 99]


def test_spans() -> None:
    assert labels.spans(np.array([3, 4, 5, 9])) == "3..5, 9"
    assert labels.spans(np.array([-2, -1, 4])) == "-2..-1, 4 (left pads are negative)"
    assert labels.spans(np.arange(0, 2000, 2), most=1) == "0 and 999 more keys"


def test_what_is_not_zero_never_looks_like_zero() -> None:
    assert [*map(labels.percent, (0, 1e-12, 0.0004, 0.5, 1.0))] == ["0", "<0.1%", "<0.1%", "50.0%", "100.0%"]


# --- terminal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("length", LENGTHS)
def test_no_line_is_wider_than_the_terminal(length: int, width: int) -> None:
    for one in (chart(length), few(length, queries=min(length, 20)), few(length, heads=("0", "1"))):
        for color in (False, True):
            lines = ANSI.sub("", terminal.render(one, width, color)).splitlines()
            assert max(map(len, lines)) <= width


def test_a_pipe_gets_plain_text_without_color() -> None:
    text = terminal.render(window_ignored(few(), 1), None, color=False)
    assert "\x1b" not in text
    strips = [line for line in text.splitlines() if line.startswith("  layer ") and "|" in line]
    assert strips
    assert not set("▁▂▃▄▅▆▇█") & set("".join(strips))  # elsewhere token texts may hold one
    assert "\x1b[" in terminal.render(few(), 80, color=True)


def test_the_strip_shows_the_edge_and_the_fault() -> None:
    lines = terminal.render(window_ignored(key_missing(few(pads=100), 0), 1), 80, color=False).splitlines()
    strips = [line for line in lines if line.startswith("  layer ")]
    assert "  |!" in strips[0]
    assert " +++|" in strips[1]
    assert "  |" in strips[2]
    axis = next(line for line in lines if line.endswith("q"))
    assert "ppppp" in axis
    assert axis.index("|") == strips[0].index("|") == strips[1].index("|")


def test_weight_beyond_the_window_is_loud() -> None:
    text = terminal.render(window_ignored(few(), 1), 80, color=True)
    assert re.search(r"\x1b\[1;31m   1 sliding .* 10\.0%!", text)
    assert "WRONG" in text


def test_a_mask_is_drawn_with_the_marks_of_reports() -> None:
    text = terminal.render(window_ignored(key_missing(few(20, kind="mask", window=8), 0), 1), None, color=False)
    strips = [line.split("  ")[-1].replace(" ", "") for line in text.splitlines() if line.startswith("  layer")]
    assert [re.sub(r"(.)\1*", r"\1", strip) for strip in strips] == ["|!#", "+|#", "|#"]


def test_influence_says_how_far_it_can_reach() -> None:
    assert "  reach from token 2,466 on, as" in terminal.render(few(4000, kind="influence"), 80, color=False)
    assert "  may depend on every token, as" in terminal.render(few(kind="influence"), 80, color=False)
    assert labels.reach(few(4000, kind="influence", queries=9).panels[0]).startswith(
        "reach from token 2,466 on for the last query, from token 2,458 on "
    )


def test_a_short_text_is_written_under_its_strip() -> None:
    assert "'<bos>'" in terminal.render(few(10), 120, color=False).split("marks")[0]


def test_the_numbers_of_one_layer_are_called_means() -> None:
    text = terminal.render(chart(layers=(5,), heads=("0", "1")), None, color=False)
    assert re.search(rf"   5 full  .*  \({labels.MEAN}\)\n    head 0 ", text)


def test_colors_need_no_block_characters() -> None:
    text = terminal.render(few(words=("a",)), 80, color=True, blocks=False)
    assert text.isascii()
    assert "\x1b[38;5;" in text
    assert ".:-=*%#@ mean more" in text
    assert "▁▂▃▄▅▆▇█ mean more" in terminal.render(few(), 80, color=True)


def test_the_terminal_explains_only_what_is_on_the_axis() -> None:
    assert "; axis: q the query\n" in terminal.render(few(), None, color=False)
    assert "; axis: q the query, p left pads\n" in terminal.render(few(pads=3), None, color=False)
    assert "; axis: " not in terminal.render(few(queries=2), None, color=False)


def test_bins_are_admitted() -> None:
    assert " keys a mark: the largest shows" in terminal.render(few(32_000), 80, color=False)
    assert "a line: the largest shows" in terminal.render(chart(1000, queries=20), 80, color=False)


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_pictures_are_the_same_every_time(length: int, form: str) -> None:
    one = window_ignored(few(length, pads=3), 1)
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    first = render(one, form)
    assert first.startswith(starts[form])
    assert first == render(one, form)


@pytest.mark.parametrize(
    "one",
    [
        chart(400, layers=tuple(range(62))),
        chart(400, layers=tuple(range(62)), heads=("0", "1", "2", "3")),
        chart(400, layers=tuple(range(62)), queries=40),
        few(400, queries=200, heads=("0", "1")),
        few(400, queries=2, pads=300),
        few(400, kind="mask", queries=5),
        few(400, kind="influence", scale="linear"),
        few(1),
    ],
    ids=["62 layers", "248 strips", "62 images", "200 queries", "pad queries", "mask", "influence", "one token"],
)
def test_pictures_stay_within_3000_pixels(one: Chart) -> None:
    width, height = struct.unpack(">II", render(one, "png")[16:24])
    assert width == 1500
    assert height <= 3000


def texts(one: Chart) -> list[str]:
    """What a picture says: svg keeps it as comments beside the outlines of its letters."""
    return re.findall(r"<!-- (.*?) -->", render(one, "svg").decode())


WRONG = {"read, and must not be", "should be readable, and is not"}


def test_legends_of_pictures_explain_what_is_there() -> None:
    edge, grey, hatched = "start of what it may read", "out of reach, and not read", "not handed to the kernel"
    rare = {edge, grey, hatched, "left pads", "the query itself", *WRONG}
    assert rare & {*texts(chart(100, layers=(5,)))} == {"the query itself"}
    assert rare & {*texts(few())} == {edge, hatched, "the query itself"}
    assert rare & {*texts(few(queries=9))} == {edge, hatched, grey}
    sick = few(pads=100)
    assert rare & {*texts(window_ignored(sick, 1))} == rare - {"should be readable, and is not"}
    assert rare & {*texts(key_missing(sick, 1))} == rare - {"read, and must not be"}
    assert {"readable", "not readable", "start of its reach"} & {*texts(few(kind="mask"))} == {"readable"}
    assert "start of its reach" not in texts(few(kind="influence"))
    assert "start of its reach" in texts(few(4000, kind="influence"))


def test_the_picture_of_influence_says_its_reach() -> None:
    assert any(text.startswith("whole stack; may depend on every token") for text in texts(few(kind="influence")))
    far = texts(few(4000, kind="influence"))
    assert any(text.startswith("whole stack; reach from token 2,466 on") for text in far)


def drawn(one: Chart, *, heads: bool = False) -> tuple[strips.Image, Axes]:
    """The first layer, as an image of its queries or of its heads."""
    panel, whole = one.panels[0], slice(0, len(one.keys))
    values = panel.values[:, 0] if heads else panel.values[0]
    shown = replace(panel, allowed=np.repeat(panel.allowed, len(values), axis=0)) if heads else panel
    rows = layout.marks(one, shown, values, whole, (64, 330))
    names = tuple(map(str, range(len(values))))
    image = strips.Image(one, "", names, (panel,) * len(names), rows, whole, True, True)
    with figures.style():
        axes = figures.figure(1500, 400).add_axes((0.1, 0.3, 0.65, 0.4))
        strips.draw(image, axes)
    return image, axes


@pytest.mark.parametrize("pads", [0, 7])
def test_nothing_healthy_is_coloured_before_the_line(pads: int) -> None:
    image, axes = drawn(few(1010, queries=20, pads=pads))
    lines = [one.get_segments()[0][:, 0] for one in axes.collections if isinstance(one, LineCollection)]
    assert image.rows.width == 4
    for row, line in enumerate(lines):
        first = int(np.flatnonzero(image.rows.values[row] > 0)[0])
        assert [*line] == [image.start + 4 * first] * 2
    assert len(lines) == 20


@pytest.mark.parametrize("length", [1003, 32_001])
def test_boxes_stay_inside_the_axes(length: int) -> None:
    one = few(length)
    ends = one.panels[0].values.copy()
    ends[..., 0], ends[..., -1] = 0.1, np.nan
    image, axes = drawn(with_panel(one, 0, values=ends))
    left, right = (patch.get_bbox() for patch in axes.patches)
    assert (left.x0, right.x1) == (image.start, image.end)
    assert left.width > 0.007 * length
    assert right.width > 0.007 * length


def test_a_box_ends_where_reading_should_begin() -> None:
    image, axes = drawn(window_ignored(few(1000, queries=1), 0))
    assert axes.patches[0].get_bbox().x1 == image.start + 4 * image.rows.edges[0]  # 488 begins a bin


def test_the_means_of_a_layer_stand_half_way_down_its_heads() -> None:
    _, axes = drawn(few(heads=("0", "1", "2", "3")), heads=True)
    rows = {text.get_text(): text.xy for text in axes.texts}
    assert rows["100.0%"] == (1.0, 1.5)
    assert rows[labels.MEAN] == (1.0, 1.0)  # above the axes
    assert any([*line.get_ydata()] == [-0.4, 3.4] for line in axes.lines)


def test_the_means_of_a_layer_are_shown_once_beside_its_heads() -> None:
    told = texts(few(queries=9, heads=("0", "3")))
    assert [text for text in told if text.endswith("all heads")] == [f"layer {layer}, all heads" for layer in FEW]
    assert told.count("100.0%") == len(FEW)


def test_tokens_of_unknown_text_are_positions() -> None:
    one = replace(few(10), tokens=("",) * 10)
    assert labels.title(one) == "gemma-3-270m: what token 9 reads"
    text = terminal.render(one, None, color=False)
    assert "''" not in text
    assert re.search(r"  9 \d+\.\d%, ", text)
    assert "9" in texts(one)
    assert not [text for text in texts(one) if "'" in text and "Python's" not in text]
    assert not [cell for cell in Elements(page.render(one)).of("td") if "'" in cell]


def test_pictures_survive_hostile_tokens() -> None:
    one = few(30, words=HOSTILE, notes=HOSTILE)
    drawn = render(replace(one, subject="$\\frac{\x1b", headline="\u202e你好"), "svg").decode()
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn
    assert "<script" not in drawn


def test_text_for_pictures_has_only_glyphs_of_the_font() -> None:
    assert figures.shown("a你\x07é$x^2$") == "a\\u4f60\\x07é$x^2$"


def test_drawing_leaves_no_trace_in_matplotlib_and_needs_no_pyplot() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests'); from fake_charts import chart; import matplotlib;"
        "matplotlib.rcParams['font.size'] = 33; from gemma_doctor.charts import render; render(chart(9), 'png');"
        "print(matplotlib.rcParams['font.size'], 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["33.0", "False"]


def test_no_renderer_but_pictures_imports_matplotlib() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests'); from fake_charts import chart;"
        "from gemma_doctor.charts import render, terminal; terminal.render(chart(9), 80, True);"
        "[render(chart(9), form) for form in ('html', 'json', 'csv', 'npz')]; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- page ------------------------------------------------------------------------------------------------------------


class Elements(html.parser.HTMLParser):
    """Tags in order, and the text of scripts, styles and table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self.texts.append(("", ""))

    def handle_data(self, data: str) -> None:
        tag, text = self.texts.pop() if self.texts else ("", "")
        self.texts.append((tag, text + data))

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def data_of(seen: Elements) -> Any:
    return json.loads(seen.of("script")[0])


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    seen = Elements(page.render(few(50, words=HOSTILE)))
    policy = next(attrs["content"] for tag, attrs in seen.tags if tag == "meta" and "http-equiv" in attrs) or ""
    assert policy.startswith("default-src 'none'; ")
    for tag, text in (("style", seen.of("style")[0]), ("script", seen.of("script")[-1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not {"src", "href"} & {name for _, attrs in seen.tags for name in attrs}


def test_the_page_survives_hostile_text() -> None:
    one = replace(
        few(50, words=HOSTILE, notes=HOSTILE), subject=HOSTILE[0], headline=HOSTILE[1], facts={HOSTILE[0]: "x"}
    )
    text = page.render(one)
    tags = [tag for tag, _ in Elements(text).tags]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert not {"\x1b", "\u202e", "\x00", "\ud800"} & set(text)
    assert data_of(Elements(text))["tokens"][1].startswith("'<img")


def test_the_legend_of_the_page_explains_what_is_there() -> None:
    def legend(one: Chart) -> dict[str, str]:
        return dict(data_of(Elements(page.render(one)))["legend"])

    assert legend(chart(100, layers=(5,))) == {}
    assert [*legend(few())] == ["edge", "none"]
    sick = window_ignored(few(pads=100), 1)
    assert [*legend(sick)] == ["edge", "wrong", "none", "outside"]
    assert legend(sick)["wrong"] == "wrong: read, and must not be"
    both = legend(key_missing(sick, 0))["wrong"]
    assert both == "wrong: read, and must not be; or should be readable, and is not"
    assert legend(chart(100, layers=(5,), kind="mask")) == {"readable": "readable"}
    assert legend(few(kind="mask"))["none"] == "not readable"
    assert legend(few(4000, kind="influence"))["edge"] == "start of its reach"


def test_the_page_says_how_far_influence_can_reach() -> None:
    (group,) = data_of(Elements(page.render(few(4000, kind="influence"))))["groups"]
    assert group["title"].startswith("whole stack; reach from token 2,466 on")


def test_the_table_of_the_page_needs_no_script() -> None:
    seen = Elements(page.render(window_ignored(few(), 1)))
    assert "10.0%!" in seen.of("td")
    assert seen.of("th")[2:6] == ["inside", "first", "itself", "beyond"]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_codes_of_the_page_hold_weights_to_a_thousandth(length: int) -> None:
    one = key_missing(few(length, window=8), 0)
    content = data_of(Elements(page.render(one)))
    group = content["groups"][0]
    codes = np.frombuffer(base64.b64decode(group["panels"][0]["codes"]), dtype="<u2")
    weights = one.panels[0].values[0, 0, group["start"] : group["stop"]]
    read = np.where((codes & 0x3FFF) > 1, 10.0 ** (((codes & 0x3FFF) - 2.0) / 16381 * 8 - 8), np.nan)
    known = weights > 1e-8
    np.testing.assert_allclose(read[known], weights[known], rtol=1e-3)
    assert ((codes & 0x3FFF) == 0).tolist() == np.isnan(weights).tolist()
    assert (codes >> 15).sum() == 1


def test_the_page_is_small() -> None:
    heads = ("0", "1", "2", "3")
    assert len(render(chart(4096, heads=heads, window=4096), "html")) < 3_000_000
    big = page.render(chart(32_000, heads=heads, window=32_000))
    assert len(big) < 4_000_000
    assert "shows the largest" in data_of(Elements(big))["groups"][0]["title"]


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_json_holds_the_whole_chart_in_ascii() -> None:
    one = misplaced(few(30, words=HOSTILE, window=8), 0)
    raw = render(one, "json")
    document = json.loads(raw)
    assert raw.isascii()
    assert document["tokens"] == [*one.tokens]
    panel = document["panels"][0]
    assert panel["values"][0][0][0] is None
    assert panel["values"][0][0][-1] == pytest.approx(float(one.panels[0].values[0, 0, -1]), rel=1e-5)
    assert panel["allowed"] == [[[22, 29]]]
    assert panel["misplaced"][0] == {"slot_of": 5, "holds": 4}


def test_csv_has_a_line_per_cell_and_no_formulas() -> None:
    one = few(30, words=HOSTILE, heads=("0", "1"), queries=2)
    raw = render(one, "csv").decode()
    header, *lines = csv.reader(io.StringIO(raw, newline=""))
    assert header == ["layer", "kind", "head", "query", "key", "token", "weight", "allowed"]
    assert len(lines) == 3 * 2 * 2 * 30
    assert raw.count("\r\n") == raw.count("\n") == len(lines) + 1
    assert not [cell for line in lines for cell in line if cell.startswith(("=", "@", "+", "\t", "\r"))]
    assert lines[28][6:] == [f"{float(one.panels[0].values[0, 0, 28]):.6g}", "1"]
    assert lines[29][6:] == ["", "0"]


def test_npz_loads_without_pickle() -> None:
    one = few(30, words=HOSTILE)
    with np.load(io.BytesIO(render(one, "npz")), allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["weights_layer_5"], one.panels[2].values)
        np.testing.assert_array_equal(arrays["keys"], one.keys)
        assert json.loads(str(arrays["header"]))["tokens"] == [*one.tokens]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["attention", "mask", "influence"])
def test_every_format_takes_every_kind(form: str, kind: str) -> None:
    one = few(40, kind=kind, queries=2 if form != "npz" else 1, scale="linear")
    assert len(render(one, form)) > 200
    assert render(one, form) == render(one, form)


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ValueError, match="'gif'"):
        render(few(10), "gif")


# --- figures of findings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 200), (700, 700)])
def test_cells_are_drawn_at_any_size(queries: int, keys: int) -> None:
    row = "#" * keys
    one = Cells("layer 0, \u202e$pass$", 5, 2, (row,) * queries, ("." + row[1:],) * queries)
    drawn = cells.render(one, "mask-pattern: \x1b[31m " + "words " * 60)
    width, height = struct.unpack(">II", drawn[16:24])
    assert width < 1600
    assert height < 1000
    assert drawn == cells.render(one, "mask-pattern: \x1b[31m " + "words " * 60)


def figure_of(monkeypatch: pytest.MonkeyPatch, one: Cells) -> Figure:
    """The figure before it becomes a png."""
    made: list[Figure] = []
    monkeypatch.setattr(cells, "encoded", lambda figure, form: made.append(figure) or b"")
    cells.render(one, "mask-pattern: x")
    return made[0]


@pytest.mark.parametrize(
    ("wrong", "rings", "said"), [(3, 3, "wrong"), (40, 1, "only the first of 40 wrong is ringed"), (0, 0, "")]
)
def test_cells_say_what_they_are_and_ring_what_rings_do_not_hide(
    monkeypatch: pytest.MonkeyPatch, wrong: int, rings: int, said: str
) -> None:
    expected = ("#" * 30 + "." * 18,) * 48
    observed = tuple(("." if row < wrong else "#") + line[1:] for row, line in enumerate(expected))
    made = figure_of(monkeypatch, Cells("layer 0", 0, 0, expected, observed))
    assert f"layer 0; 48 x 48 of the cells; {wrong} wrong here" in [text.get_text() for text in made.texts]
    assert [axes.get_title() for axes in made.axes] == ["expected by the check", "observed"]
    assert sum(len(one.get_offsets()) for axes in made.axes for one in axes.collections) == rings
    told = [text.get_text() for text in made.legends[0].get_texts()]
    assert told[:2] == ["read, as expected by the check", "not read, as expected by the check"]
    assert told[2:] == (["should be read, and is not", said] if wrong else [])
