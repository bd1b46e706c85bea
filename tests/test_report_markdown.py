"""The Markdown report, read back by a Markdown parser."""

from __future__ import annotations

import re

import fake_reports
import hostile_reports
import pytest
from fake_reports import SICK
from hostile_reports import EVIL, HOSTILE, IN_A_FILE, SUPPRESSED
from lxml import html
from markdown_it import MarkdownIt

from gemma_doctor.finding import Report
from gemma_doctor.report import markdown
from gemma_doctor.report.escape import escape

REPORTS = {**fake_reports.ALL, **hostile_reports.ALL}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"div", "h3", "p", "br", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "strong"}
APART = "\u200b"


def page(report: Report) -> html.HtmlElement:
    return html.fromstring(f"<div>{PARSER.render(markdown.render(report))}</div>")


def text(element: html.HtmlElement) -> str:
    return element.text_content().replace(APART, "")


def test_the_headline_comes_first() -> None:
    first = page(SICK)[0]
    assert first.tag == "h3"
    assert first.text.startswith("gemma-doctor: SICK: 1 cause, 1 consequence")


def test_the_table_has_every_finding_causes_first() -> None:
    rows = [[text(cell) for cell in row] for row in page(SICK).find("table").iter("tr")]
    assert rows[1] == [
        "error (cause)",
        "past-key-length",
        "sliding cache drops a key one step early",
        "511 keys, the oldest is token 1",
        "512 keys, the oldest is token 0",
    ]
    assert [row[1] for row in rows[1:]] == ["past-key-length", "long-generate", "padding-side", "position-ids"]


def test_details_are_folded() -> None:
    folded = [text(one) for one in page(SICK).iter("summary")]
    assert folded == [
        "past-key-length: sliding cache drops a key one step early",
        "padding-side: tokenizer pads right; such rows differ by 4.8 from the same rows alone",
        "reading path",
        "environment",
    ]


def test_where_it_is_written_is_said() -> None:
    assert "(= W, step 8) on; my model/config.json, line 48" in text(page(IN_A_FILE))


def test_the_keys_are_drawn() -> None:
    (drawn,) = page(SICK).iter("pre")
    assert text(drawn).splitlines()[1:] == ["expected  " + "#" * 32, "observed  !" + "#" * 31]


def test_suppressed_findings_are_told() -> None:
    (folded,) = (one for one in page(SUPPRESSED).iter("details") if one.find("summary").text == "1 suppressed")
    assert "we pad by hand (run file)" in text(folded)


@pytest.mark.parametrize("name", REPORTS)
def test_texts_become_no_markup(name: str) -> None:
    assert {one.tag for one in page(REPORTS[name]).iter()} <= OURS


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_but_our_own_headline_is_a_heading(name: str) -> None:
    assert [one.tag for one in page(REPORTS[name]).iter("h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "hr")] == ["h3"]


def test_hostile_text_stands_as_it_is() -> None:
    rows = [[text(cell) for cell in row] for row in page(HOSTILE).find("table").iter("tr")]
    assert rows[1][2:] == [escape(EVIL)] * 3


def test_nobody_is_called_and_nothing_is_linked() -> None:
    source = markdown.render(HOSTILE)
    assert not re.search(r"@\w|#\d|GH-\d|(?<!\\)://|https://|www\.evil", source.replace("&#8203;", APART))


def test_no_control_character_is_left() -> None:
    assert markdown.render(HOSTILE).replace("\n", "").isprintable()
