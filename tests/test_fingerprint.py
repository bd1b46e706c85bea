"""What stays of a finding from run to run."""

from __future__ import annotations

from dataclasses import replace

from fake_reports import EARLY_DROP, LOOP, RIGHT_PADDING

from gemma_doctor.finding import Location
from gemma_doctor.fingerprint import fingerprints

ONE, OTHER = (replace(EARLY_DROP, where=Location(layers=layers)) for layers in ((0, 1), (5,)))


def test_figures_severity_and_layers_do_not_matter() -> None:
    later = replace(
        RIGHT_PADDING,
        title=RIGHT_PADDING.title.replace("4.8", "1.2e-05"),
        observed="something else",
        where=Location(layers=(1, 2)),
    )
    assert fingerprints([RIGHT_PADDING]) == fingerprints([later])


def test_the_fault_the_check_and_the_route_do() -> None:
    others = [
        replace(RIGHT_PADDING, title="tokenizer pads left"),
        replace(RIGHT_PADDING, check="pad-token"),
        replace(RIGHT_PADDING, where=Location(route="crop")),
    ]
    assert len({*fingerprints([RIGHT_PADDING]), *(fingerprints([one])[0] for one in others)}) == 4


def test_a_number_within_a_name_is_no_figure() -> None:
    half = replace(LOOP, title="the stream outgrows float16")
    assert fingerprints([half]) != fingerprints([replace(half, title="the stream outgrows float32")])


def test_no_two_of_a_report_are_alike_and_their_order_does_not_matter() -> None:
    first, second = fingerprints([ONE, OTHER])
    assert first != second
    assert fingerprints([OTHER, ONE]) == (second, first)  # suppressed ones come last
