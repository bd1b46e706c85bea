"""What a heatmap is asked to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.view import View, heads, layers, positions, view


@pytest.mark.parametrize(
    ("pos", "wanted"),
    [
        ("0", range(0, 1)),
        ("1000", range(1000, 1001)),  # beyond the text of 100 tokens: it is filled
        ("-1", range(99, 100)),
        ("-100", range(0, 1)),
        ("90:95", range(90, 95)),
        ("-5:", range(95, 100)),
        (":3", range(0, 3)),
        (":", range(0, 100)),
        ("-5:-2", range(95, 98)),
        ("90:200", range(90, 200)),
    ],
)
def test_positions(pos: str, wanted: range) -> None:
    assert positions(pos, 100, 2048) == wanted


@pytest.mark.parametrize("pos", ["2048", "-101", "5:5", "10:3", "2000:2049", "-200:5"])
def test_positions_that_are_not_there_name_the_valid_range(pos: str) -> None:
    with pytest.raises(DoctorError) as caught:
        positions(pos, 100, 2048)
    assert caught.value.hint
    if pos not in ("5:5", "10:3"):
        assert "-100 to 2047" in caught.value.hint


@pytest.mark.parametrize("pos", ["", "x", "1.5", "1:2:3", "--1", "1e3", "9" * 20])
def test_what_is_no_position_is_refused(pos: str) -> None:
    with pytest.raises(DoctorError, match="no position"):
        positions(pos, 100, 2048)


@given(st.integers(-150, 150), st.integers(-150, 150))
def test_a_slice_is_pythons(first: int, end: int) -> None:
    wanted = list(range(100))[first:end]
    if not wanted or first < -100 or end < -100 or end > 100:
        return
    assert list(positions(f"{first}:{end}", 100, None)) == wanted


def test_layers() -> None:
    kinds = [SLIDING, SLIDING, FULL]
    assert layers("all", kinds) == (0, 1, 2)
    assert layers("sliding", kinds) == (0, 1)
    assert layers("full", kinds) == (2,)
    assert layers("2, 0,2", kinds) == (0, 2)
    for words in ("3", "x", "", "-1"):
        with pytest.raises(DoctorError) as caught:
            layers(words, kinds)
        assert "0 to 2" in caught.value.hint
    with pytest.raises(DoctorError, match="has none"):
        layers("full", [SLIDING])


def test_heads() -> None:
    assert heads("mean", 4) is None
    assert heads("max", 4) is None
    assert heads("all", 4) == (0, 1, 2, 3)
    assert heads("3,0", 4) == (0, 3)
    with pytest.raises(DoctorError) as caught:
        heads("4", 4)
    assert "0 to 3" in caught.value.hint


def test_a_view_of_flags() -> None:
    assert view({}) == View()
    assert view({"pos": "5", "kind": "mask", "pads": "3"}) == View(pos="5", kind="mask", pads=3)
    for name in ("layers", "heads", "rows_at"):
        with pytest.raises(DoctorError, match="has no meaning with --kind influence"):
            view({"kind": "influence", name: "all" if name != "rows_at" else "prefill"})
    for flags in ({"kind": "atention"}, {"rows_at": "step"}, {"scale": "lin"}, {"pads": "-1"}, {"pads": "x"}):
        with pytest.raises(DoctorError):
            view(flags)
    with pytest.raises(DoctorError, match="did you mean attention"):
        view({"kind": "atention"})
