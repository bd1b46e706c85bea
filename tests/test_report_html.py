"""The page of a report: its structure, its escaping, its drawings, and how a real browser shows it."""

from __future__ import annotations

import html as markup
import itertools
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import fake_reports
import hostile_reports
import matplotlib.image
import pytest
from fake_reports import EARLY_DROP, HEALTHY, LOOP, RIGHT_PADDING, SICK, result, with_results
from lxml import html as lxml_html

from gemma_doctor.finding import Cells, Curve, Examined, Outcome, Report, Strip
from gemma_doctor.report import drawing, html, text
from gemma_doctor.report.escape import escape

CELLS = Cells("layer 4, pass 'prompt 2W'", 7, 0, ("########.", ".########"), ("########.", "##.######"))
CURVE = Curve(
    caption="recall of 3 facts",
    across="tokens back",
    up="probability of the right answer",
    at=(64, 512, 1400),
    lines={"with the cache": (0.9, 0.5, 0.1), "reference route": (0.9, 0.9, float("nan"))},
    marks={"W": 512},
    chance=0.33,
)
RECALL = replace(
    result("recall", "generation", Outcome.PASS), examined=Examined(3, "3 of 3 facts recalled", curve=CURVE)
)
DRAWN = with_results(
    SICK,
    result("past-key-length", "cache", Outcome.FAIL, replace(EARLY_DROP, cells=CELLS), said="97 steps"),
    RECALL,
    documentation={"past-key-length": "The cache holds its keys.\n\nWhat it proves\n    That it grows."},
)
WORD = "x" * 400  # nowhere to break a line
WIDE = replace(EARLY_DROP, title=WORD, observed=WORD, do=WORD, known=WORD, keys=(WORD,), cells=CELLS)
UNBREAKABLE = with_results(
    replace(
        SICK, subject={**SICK.subject, "name": WORD}, environment={**SICK.environment, WORD: WORD}, remarks=(WORD,)
    ),
    result("past-key-length", "cache", Outcome.FAIL, replace(WIDE, strip=Strip(WORD, WORD, WORD)), said=WORD),
    result("rms-norm-eps", "numerics", Outcome.SKIPPED, said=WORD),
    documentation={"past-key-length": WORD},
)
ALL: dict[str, Report] = {**fake_reports.ALL, **hostile_reports.ALL, "drawn": DRAWN, "unbreakable": UNBREAKABLE}
LOADING = {"src", "srcset", "srcdoc", "data", "action", "formaction", "poster", "background", "xlink:href"}


def page(report: Report) -> lxml_html.HtmlElement:
    return lxml_html.fromstring(html.render(report))


def words(element: lxml_html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def texts(report: Report, path: str) -> list[str]:
    return [words(found) for found in page(report).xpath(path)]


# --- what it says, and in which order --------------------------------------------------------------------------------


def test_the_headline_is_the_verdict_and_its_figures() -> None:
    assert texts(SICK, "//h1") == ["SICK 1 cause, 1 consequence, 1 warning, 1 note; 4 passed, 1 not evaluated, 1 n/a"]
    assert texts(SICK, "//title") == ["SICK: ./my-gemma - gemma-doctor"]


@pytest.mark.parametrize(
    ("name", "tone"),
    [("sick", "bad"), ("warned", "warn"), ("healthy", "good"), ("late", "good"), ("crashed", "unsure")],
)
def test_the_verdict_has_its_colour(name: str, tone: str) -> None:
    assert page(ALL[name]).xpath("//h1/@class") == [tone]


def test_every_verdict_that_text_colours_has_a_tone() -> None:
    assert html.TONES.keys() == text.STYLES.keys()


def test_what_is_broken_stands_first_and_what_to_do_right_below_it() -> None:
    said = words(page(SICK).find("body"))
    places = [
        said.index(one)
        for one in ("exit 1", EARLY_DROP.title, EARLY_DROP.do, EARLY_DROP.observed, LOOP.title, RIGHT_PADDING.title)
    ]
    assert places == sorted(places)


def test_a_finding_says_all_that_is_known_of_it() -> None:
    (cause,) = page(SICK).xpath("//article[contains(@class, 'bad')]")
    labels = [words(label) for label in cause.xpath("./dl/dt")]
    assert labels == ["where", "observed", "expected", "effect", "wrong", "known"]
    assert words(cause.xpath("./p[@class='do']")[0]) == f"do {EARLY_DROP.do}; meanwhile {EARLY_DROP.meanwhile}"


def test_commands_that_say_more_can_be_copied_one_by_one() -> None:
    assert texts(SICK, "//article[contains(@class, 'bad')]/pre/code") == [
        "gemma-doctor explain past-key-length",
        "gemma-doctor heatmap ./my-gemma --layers 0",
    ]


def test_consequences_hang_below_their_cause() -> None:
    assert texts(SICK, "//article[contains(., 'past-key-length')]//section[@class='below']//h4") == [
        f"error long-generate {LOOP.title}"
    ]


def test_what_follows_from_nothing_on_the_page_is_there_all_the_same() -> None:
    orphaned = with_results(HEALTHY, result("long-generate", "generation", Outcome.FAIL, LOOP, said="96 tokens"))
    assert texts(orphaned, "//section[h2='What follows from others']//h3") == [f"error long-generate {LOOP.title}"]


def test_two_findings_of_one_check_share_its_consequences() -> None:
    twice = with_results(
        SICK,
        result("past-key-length", "cache", Outcome.FAIL, EARLY_DROP, replace(EARLY_DROP, title="another"), said=""),
    )
    assert len(page(twice).xpath("//h4")) == 1


def test_the_documentation_of_a_check_stands_there_once() -> None:
    twice = with_results(
        DRAWN,
        result("past-key-length", "cache", Outcome.FAIL, EARLY_DROP, replace(EARLY_DROP, title="another"), said=""),
    )
    assert len(page(twice).xpath("//pre[@class='prose']")) == 1


def test_the_reading_path_is_a_chain_that_leads_to_its_checks() -> None:
    root = page(SICK)
    links = root.xpath("//ol[@class='chain']//a")
    assert [words(link) for link in links] == [
        *("config ok", "tokens warn", "positions ok", "mask ok", "cache FAIL", "numerics skip", "generation FAIL")
    ]
    checks = [words(root.get_element_by_id(link.get("href").removeprefix("#"))) for link in links]
    assert checks[0] == "ok sliding-window 512 published = loaded = 15 modules"
    assert checks[3].endswith("n/a mask-dtype the mask is None in every pass")
    assert checks[5] == "skip rms-norm-eps no norm was found"


def test_a_layer_with_something_loud_is_open() -> None:
    opened = page(SICK).xpath("//details[contains(@class, 'layer') and @open]/summary/b/text()")
    assert opened == ["tokens", "cache", "generation"]


def test_what_was_not_evaluated_or_crashed_has_its_reason() -> None:
    assert texts(SICK, "//section[h2='Not evaluated']/dl") == ["no norm was found rms-norm-eps"]
    assert texts(ALL["crashed"], "//section[h2='Crashed']/dl") == ["mask-dtype ZeroDivisionError: division by zero"]


def test_suppressed_findings_say_why_they_do_not_count() -> None:
    (suppressed,) = texts(ALL["suppressed"], "//section[h2='Suppressed']")
    assert "padding-side" in suppressed
    assert "we pad by hand (run file)" in suppressed


def test_the_environment_and_the_remarks_are_there() -> None:
    said = words(page(ALL["skeleton"]))
    assert said.count("SKELETON: random weights.") == 1
    for fact in ("transformers 4.51.3", "torch 2.13.0", "seed 0"):
        assert fact in said


def test_the_documentation_of_what_fails_is_folded_below_it() -> None:
    assert texts(DRAWN, "//details[summary='What past-key-length proves']/pre") == [
        "The cache holds its keys. What it proves That it grows."
    ]


def test_only_the_times_differ_between_two_runs() -> None:
    slower = replace(DRAWN, timing={**DRAWN.timing, "total": 99.0})
    fast, slow = (html.render(one).splitlines() for one in (DRAWN, slower))
    assert [new for old, new in zip(fast, slow, strict=True) if old != new] == [
        "<dt>took</dt> <dd>99 s: import 6.1, load 1.2, generate 19; 7.1 tokens/s</dd>"
    ]


# --- drawings --------------------------------------------------------------------------------------------------------


def test_a_strip_marks_the_keys_that_differ() -> None:
    missing = page(SICK).xpath("//figure[@class='strip']//span[@class='missing']")
    assert [one.text for one in missing] == ["!"]
    assert texts(SICK, "//figure[@class='strip']//td") == ["#" * 32, "!" + "#" * 31]


def test_cells_are_runs_of_what_looks_alike() -> None:
    expected, observed = drawing.cells_drawing(CELLS).panels
    assert expected.paths == {"read": "M0 0h8v1h-8zM1 1h8v1h-8z", "unread": "M8 0h1v1h-1zM0 1h1v1h-1z"}
    assert observed.paths == {
        "read": "M0 0h8v1h-8zM1 1h1v1h-1zM3 1h6v1h-6z",
        "unread": "M8 0h1v1h-1z",
        "extra": "M0 1h1v1h-1z",
        "missing": "M2 1h1v1h-1z",
    }


def test_wrong_cells_are_told_without_colour() -> None:
    expected, observed = drawing.cells_drawing(CELLS).panels
    assert (expected.signs, expected.wrong) == ("", 0)
    assert (observed.signs, observed.wrong) == ("M0.2 1.5h.6m-.3-.3v.6M2.5 1.2v.6", 2)


def test_cells_stand_expected_beside_observed_with_their_place() -> None:
    assert texts(DRAWN, "//figure[@class='cells']//div/p") == ["expected", "observed, 2 wrong"]
    assert texts(DRAWN, "//figure[@class='cells']/figcaption") == [
        "layer 4, pass 'prompt 2W': queries 7 to 8 down, keys 0 to 8 across; 2 wrong cells"
    ]


def test_a_large_piece_shows_what_lies_around_the_first_wrong_cell() -> None:
    rows = ("#" * 4096,) * 2000  # the wrong cell is key 3000 of query 1000
    observed = (*rows[:1000], "#" * 3000 + "." + "#" * 1095, *rows[1001:])
    drawn = drawing.cells_drawing(Cells("large", 0, 0, rows, observed))
    assert (drawn.panels[1].width, drawn.panels[1].height, drawn.panels[1].wrong) == (48, 48, 1)
    assert drawn.said == "queries 976 to 1,023 down, keys 2,976 to 3,023 across; 1 wrong cell"


def test_the_worst_piece_stays_small() -> None:
    board = tuple(("#." * 500)[at % 2 :][:999] for at in range(999))
    turned = tuple(row.translate({ord("#"): ".", ord("."): "#"}) for row in board)
    report = with_results(
        HEALTHY,
        result(
            "past-key-length",
            "cache",
            Outcome.FAIL,
            replace(EARLY_DROP, cells=Cells("board", 0, 0, board, turned)),
            said="",
        ),
    )
    assert len(html.render(report)) < 200_000


@pytest.mark.parametrize("rows", [(), ("",), ("###", "#")])
def test_cells_of_any_shape_are_drawn(rows: tuple[str, ...]) -> None:
    assert drawing.cells_drawing(Cells("odd", 0, 0, rows, tuple(row[1:] for row in rows))).caption == "odd"


def test_a_curve_has_a_logarithmic_axis_its_marks_and_chance() -> None:
    drawn = drawing.curve_drawing(replace(CURVE, at=(64, 256, 1024), lines={"one": (0.0, 0.5, 1.0)}))
    (line,) = drawn.lines
    xs, ys = ([float(point[axis]) for point in line.points] for axis in (0, 1))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert ys == [drawing.HEIGHT - drawing.BOTTOM, pytest.approx((ys[0] + ys[2]) / 2), drawing.TOP]
    assert [label for _, label in drawn.marks] == ["W = 512"]
    assert xs[1] < float(drawn.marks[0][0]) < xs[2]
    assert drawn.chance is not None
    assert drawn.chance[1] == "chance, 0.33"


def test_numbers_that_are_not_finite_are_left_out_of_a_curve() -> None:
    assert [len(line.points) for line in drawing.curve_drawing(CURVE).lines] == [3, 2]
    assert "nan" not in html.render(DRAWN)


def test_labels_of_lengths_do_not_overlap() -> None:
    drawn = drawing.curve_drawing(replace(CURVE, at=tuple(range(1000, 1100, 10)), lines={}, marks={}))
    places = [float(place) for place, _ in drawn.across]
    assert 1 < len(places) < 10
    assert all(right - left >= drawing.LABEL for left, right in itertools.pairwise(places))


def test_the_label_of_the_greatest_length_is_not_cut_off() -> None:
    last, _ = drawing.curve_drawing(CURVE).across[-1]
    assert float(last) + drawing.LABEL / 2 <= drawing.WIDTH


def test_a_curve_of_a_healthy_check_stands_on_the_reading_path() -> None:
    assert len(page(DRAWN).xpath("//ul[@id='layer-7']//figure[@class='curve']/svg/polyline")) == 2


def test_a_curve_stands_at_the_finding_of_its_check_and_nowhere_else() -> None:
    failing = replace(RECALL, outcome=Outcome.FAIL, findings=(replace(EARLY_DROP, check="recall"),))
    root = page(with_results(HEALTHY, failing))
    assert len(root.xpath("//article//figure[@class='curve']")) == 1
    assert len(root.xpath("//figure[@class='curve']")) == 1


# --- safe to open ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_page_loads_and_runs_nothing(name: str) -> None:
    root = page(ALL[name])
    (policy,) = root.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy
    assert not root.xpath("//script|//link|//img|//iframe|//object|//embed|//form|//base|//audio|//video|//use|//image")
    for element in root.iter():
        if isinstance(element.tag, str):
            assert not [key for key in element.attrib if key in LOADING or key.startswith("on") or key == "style"]
            assert element.get("href", "#").startswith("#")
    (style,) = root.xpath("//style/text()")
    assert not re.search(r"url\(|@import|image-set|expression", style)


def test_the_policy_comes_before_all_that_it_governs() -> None:
    source = html.render(SICK)
    assert source.index("Content-Security-Policy") < source.index("<title>") < source.index("<style>")


def test_hostile_text_is_text_wherever_it_stands() -> None:
    root = page(hostile_reports.HOSTILE)
    evil = escape(hostile_reports.EVIL)
    for path in ("//title", "//h3", "//dd", "//p[@class='do']", "//p[@class='name']", "//p[@class='remark']", "//li"):
        assert any(evil in found.text_content() for found in root.xpath(path)), path
    assert not {"\x1b", "\x00", "\u202e", "\ud800"} & set(html.render(hostile_reports.HOSTILE))


def test_hostile_text_in_drawings_documentation_and_odd_facts_is_text() -> None:
    evil = hostile_reports.EVIL
    found = replace(
        EARLY_DROP,
        cells=replace(CELLS, caption=evil, expected=(evil,), observed=(evil[::-1],)),
        keys=(evil,),
        figure=evil,
        strip=replace(EARLY_DROP.strip, caption=evil, expected=evil, observed=evil),  # type: ignore[type-var]
    )
    failing = replace(
        result("past-key-length", "cache", Outcome.FAIL, found),
        group=evil,
        examined=Examined(1, evil, curve=replace(CURVE, caption=evil, across=evil, up=evil, lines={evil: (0, 1, 0)})),
    )
    report = with_results(
        replace(HEALTHY, environment={**HEALTHY.environment, evil: [evil]}),
        failing,
        documentation={"past-key-length": f"{evil}\n\n{evil}"},
    )
    source = html.render(report)
    assert not {"\x1b", "\x00", "\u202e", "\ud800"} & set(source)
    assert not re.search(r"<script|</details></pre>", source)
    assert source.encode().decode() == source


# --- for everybody ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_headings_step_down_one_by_one(name: str) -> None:
    levels = [int(heading.tag[1]) for heading in page(ALL[name]).xpath("//h1|//h2|//h3|//h4|//h5|//h6")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))


@pytest.mark.parametrize("name", ALL)
def test_pictures_have_words_and_ids_are_unique(name: str) -> None:
    root = page(ALL[name])
    assert root.get("lang") == "en"
    assert all(one.get("aria-label") or one.get("aria-hidden") for one in root.xpath("//svg"))
    ids = root.xpath("//@id")
    assert len(ids) == len(set(ids))


def luminance(color: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_all_text_has_the_contrast_that_wcag_asks_for(scheme: int) -> None:
    (style,) = page(SICK).xpath("//style/text()")
    colors = dict(re.findall(r"--(\w+): (#\w{6})", style.split(":root {")[1 + scheme]))
    for name in ("text", "faint", "bad", "warn", "good", "unsure"):
        for back in ("back", "panel"):
            assert contrast(colors[name], colors[back]) >= 4.5, (name, back)
    for back in ("extra", "missing"):
        assert contrast(colors["sign"], colors[back]) >= 4.5, back
    for look in ("extra", "missing", "unread"):
        assert contrast(colors["read"], colors[look]) >= 1.5, look


# --- in a real browser -----------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: pages are looked at in a real one")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
MEASURE = """<script>
onload = () => {
  const seen = document.querySelector("iframe").contentDocument, root = seen.documentElement;
  const bad = [...seen.querySelectorAll("body *")].filter(one => !one.closest(".wide"))
    .filter(one => one.getBoundingClientRect().right > root.clientWidth + 1);
  const top = [...seen.querySelectorAll("h1, article h3, article .do")].slice(0, 3);
  document.title = ["seen", root.clientWidth, root.scrollWidth, bad.length,
    Math.ceil(Math.max(0, ...top.map(one => one.getBoundingClientRect().bottom)))].join(" ");
};
</script>"""


def browse(tmp_path: Path, source: str, *flags: str, address: str = "") -> subprocess.CompletedProcess[str]:
    """A page in a browser of its own."""
    path = tmp_path / "page.html"
    path.write_text(source, encoding="utf-8")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    return subprocess.run(
        [str(CHROMIUM), *FLAGS, profile, *flags, f"{path.as_uri()}{address}"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=True,
    )


def measured(tmp_path: Path, report: Report, width: int, height: int) -> list[int]:
    """Width of the view and of the page, how many elements stick out, and how far down the first thing to do ends.

    A window cannot be as narrow as a phone: the page, as it is, stands in a frame that can.
    """
    source = markup.escape(html.render(report))
    frame = f'<!DOCTYPE html><iframe width="{width}" height="{height}" style="border:0" srcdoc="{source}"></iframe>'
    dom = browse(tmp_path, frame + MEASURE, "--dump-dom").stdout
    (figures,) = re.findall(r"<title>seen ([\d ]+)</title>", dom)
    return [int(figure) for figure in figures.split()]


@needs_browser
@pytest.mark.parametrize("name", ["healthy", "hostile", "drawn", "in a file", "unbreakable"])
def test_on_a_phone_the_page_is_no_wider_than_the_view(name: str, tmp_path: Path) -> None:
    assert measured(tmp_path, ALL[name], 360, 800)[:3] == [360, 360, 0]


@needs_browser
def test_the_first_screen_of_a_phone_says_what_is_broken_and_what_to_do(tmp_path: Path) -> None:
    assert 0 < measured(tmp_path, SICK, 360, 800)[3] <= 640


@needs_browser
def test_a_browser_asks_for_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    log = browse(
        tmp_path, html.render(hostile_reports.HOSTILE), "--enable-logging=stderr", "--v=0", "--dump-dom"
    ).stderr
    assert "CONSOLE" not in log


@needs_browser
def test_the_policy_stops_what_the_page_could_not(tmp_path: Path) -> None:
    """The log that the test above reads does tell."""
    broken = html.render(SICK).replace("</main>", "<script>document.title = 'ran'</script></main>")
    seen = browse(tmp_path, broken, "--enable-logging=stderr", "--v=0", "--dump-dom")
    assert "Content Security Policy" in seen.stderr
    assert "<title>ran</title>" not in seen.stdout


@needs_browser
def test_light_and_dark_are_two_pictures(tmp_path: Path) -> None:
    pictures = []
    for scheme in (1, 0):  # light, dark
        path = tmp_path / f"{scheme}.png"
        browse(
            tmp_path,
            html.render(DRAWN),
            f"--screenshot={path}",
            "--window-size=500,400",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        pictures.append(path)
    light, dark = (matplotlib.image.imread(path)[..., :3] for path in pictures)
    assert light.shape == dark.shape
    assert light[-1, 0].mean() > 0.9
    assert dark[-1, 0].mean() < 0.2


@needs_browser
def test_what_is_folded_is_printed(tmp_path: Path) -> None:
    def pages(source: str) -> int:
        browse(tmp_path, source, f"--print-to-pdf={tmp_path / 'page.pdf'}")
        return len(re.findall(rb"/Type /Page\b", (tmp_path / "page.pdf").read_bytes()))

    long = replace(DRAWN, documentation={"past-key-length": "line\n" * 500})
    folded = html.render(long).replace("details::details-content", "details::none")
    assert pages(html.render(long)) > pages(folded) + 3


@needs_browser
def test_a_link_of_the_chain_opens_its_layer(tmp_path: Path) -> None:
    """Without a script: the browser opens what the address names."""
    dom = browse(tmp_path, html.render(HEALTHY), "--dump-dom", address="#layer-5").stdout
    opened = lxml_html.fromstring(dom).xpath("//details[@open]/summary/b/text()")
    assert opened == ["cache"]
