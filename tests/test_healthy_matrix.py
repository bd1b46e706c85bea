"""Every preset in every attention implementation of its family: no finding, and every pass looked at something."""

from __future__ import annotations

import os

import pytest

from gemma_doctor import presets
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.published import text_part
from gemma_doctor.settings import Settings

NOT_DECODERS = {
    "diffusiongemma-26B-A4B-it",
    "gemma-4-12B-it-assistant",
    "gemma-4-26B-A4B-it-assistant",
    "gemma-4-31B-it-assistant",
    "gemma-4-E2B-it-assistant",
    "gemma-4-E4B-it-assistant",
    "recurrentgemma-2b-it",
    "recurrentgemma-9b",
    "t5gemma-2b-2b-prefixlm",
    "t5gemma-b-b-prefixlm",
}
WITHOUT_SDPA = ("gemma2", "gpt_oss", "vaultgemma")  # families of text decoders for which the library refuses it
DECODERS = [name for name in presets.names() if name not in NOT_DECODERS]
# Every preset with both backends and the usual routes takes half an hour: CI looks at the routes of one of each family.
WHOLE = "GEMMA_DOCTOR_WHOLE_MATRIX" in os.environ
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def family(name: str) -> str:
    text, _ = text_part(presets.load(name))
    return str(text.get("model_type"))


def first_of_each_family() -> set[str]:
    families: dict[str, str] = {}
    for name in DECODERS:
        families.setdefault(family(name), name)
    return set(families.values())


def cases() -> list[tuple[str, str, str]]:
    """(preset, backend, depth)."""
    if WHOLE:
        return [(name, backend, "default") for name in DECODERS for backend in ("eager", "sdpa")]
    first = first_of_each_family()
    usual = {name: "eager" if family(name) in WITHOUT_SDPA else "sdpa" for name in DECODERS}
    return [
        *((name, usual[name], "default" if name in first else "quick") for name in DECODERS),
        *((name, "eager" if usual[name] == "sdpa" else "sdpa", "quick") for name in sorted(first)),
    ]


@pytest.mark.parametrize(("name", "backend", "depth"), cases())
def test_a_healthy_preset_is_not_accused(name: str, backend: str, depth: str) -> None:
    settings = Settings(subject=name, weights="skeleton", attn_implementation=backend, depth=depth)
    if backend == "sdpa" and family(name) in WITHOUT_SDPA:
        with pytest.raises(DoctorError, match="scaled_dot_product_attention"):
            diagnose(settings, lambda line: None)
        return
    report = diagnose(settings, lambda line: None)
    assert [one for one in report.findings if one.severity > Severity.NOTE] == []
    assert report.exit_code == 0
    for result in report.results:
        assert result.outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE), (result.check, result.reason)
        assert result.outcome is Outcome.NOT_APPLICABLE or (result.examined is not None and result.examined.count > 0)


@pytest.mark.parametrize("name", sorted(NOT_DECODERS))
def test_what_is_no_decoder_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(DoctorError, match="not a decoder that this tool examines"):
        diagnose(Settings(subject=name, weights="skeleton"), lambda line: None)
