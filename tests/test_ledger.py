"""The ledger of passes: what is counted where, and whose time is whose."""

from __future__ import annotations

import time

import pytest

from gemma_doctor.capture import ledger
from gemma_doctor.evidence import KernelProfile, Trace


def test_a_pass_inside_of_another_has_its_own_forwards_and_time() -> None:
    book = ledger.Ledger()
    with book.open("outer"):
        ledger.count(1, 10)
        with ledger.entry("inner"):
            ledger.count(2, 20)
            time.sleep(0.05)
        ledger.count(1, 1)
    outer, inner = book.ran["outer"], book.ran["inner"]
    assert (outer.forwards, outer.tokens, inner.forwards, inner.tokens) == (2, 11, 2, 20)
    assert inner.seconds >= 0.05 > outer.seconds


def test_passes_of_one_name_are_one_and_those_that_run_nothing_are_left_out() -> None:
    book = ledger.Ledger()
    for _ in range(2):
        with book.open("evidence"), ledger.entry("again"):
            ledger.count(1, 5)
    assert {name: (one.forwards, one.tokens) for name, one in book.ran.items()} == {"again": (2, 10)}


def test_what_runs_elsewhere_says_where() -> None:
    book = ledger.Ledger()
    with book.open("evidence"):
        with ledger.elsewhere("on a skeleton"), ledger.entry("route"):
            ledger.count(1, 1)
        with ledger.entry("route"):
            ledger.count(1, 1)
    assert list(book.ran) == ["route on a skeleton", "route"]


def test_it_is_closed_whatever_happens() -> None:
    book = ledger.Ledger()
    with pytest.raises(KeyboardInterrupt), book.open("evidence"), ledger.entry("pass"):
        ledger.count(1, 1)
        raise KeyboardInterrupt
    ledger.count(7, 7)  # nobody's
    with ledger.entry("nobody's"):
        ledger.count(7, 7)
    assert (list(book.ran), book.ran["pass"].forwards) == (["pass"], 1)


@pytest.mark.parametrize(("kind", "words"), [(KernelProfile, "kernel profile"), (Trace, "trace")])
def test_evidence_has_a_name_in_words(kind: type, words: str) -> None:
    assert ledger.in_words(kind) == words
