"""What is read from a check's docstring: sections, and the addresses of its references."""

from __future__ import annotations

import pytest

from gemma_doctor.documentation import addresses, read

ISSUES = "https://github.com/huggingface/transformers/issues"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.org/a_b?c=1#d, and more", ["https://example.org/a_b?c=1#d"]),
        ("Mistral 7B, arXiv:2310.06825, section 2", ["https://arxiv.org/abs/2310.06825"]),
        ("transformers issue 37574 (4.43)", [f"{ISSUES}/37574"]),
        ("transformers pull requests 35681 and 48280", [f"{ISSUES}/35681"]),
        (
            "torch issue 41508; arXiv 2104.09864",
            ["https://github.com/pytorch/pytorch/issues/41508", "https://arxiv.org/abs/2104.09864"],
        ),
        ("somebody issue 12345, Gemma 3 270, transformers 5.24.0", []),
    ],
)
def test_references_have_addresses(text: str, found: list[str]) -> None:
    assert [address for _, address in addresses(text)] == found
    assert all(written in text for written, _ in addresses(text))


def test_the_link_is_the_first_of_the_references_and_of_nothing_else() -> None:
    text = (
        "It is so.\n\nKnown limits\n    See arXiv:2310.06825.\n\nReferences\n    A book; transformers\n    issue 37574."
    )
    assert read(text).link == f"{ISSUES}/37574"
    assert read("It is so.\n\nReferences\n    Measured.").link is None
