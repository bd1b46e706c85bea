"""Every preset in every attention implementation of its family: no finding, and every pass looked at something."""

from __future__ import annotations

import pytest

from gemma_doctor import presets
from gemma_doctor.diagnose import diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity
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
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [name for name in presets.names() if name not in NOT_DECODERS])
def test_a_healthy_preset_is_not_accused(name: str, backend: str) -> None:
    settings = Settings(subject=name, weights="skeleton", attn_implementation=backend)
    try:
        report = diagnose(settings, lambda line: None)
    except DoctorError as error:
        assert backend == "sdpa" and "scaled_dot_product_attention" in error.message, error.message
        pytest.skip(error.message)
    assert [one for one in report.findings if one.severity > Severity.NOTE] == []
    assert report.exit_code == 0
    for result in report.results:
        assert result.outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE), (result.check, result.reason)
        assert result.outcome is Outcome.NOT_APPLICABLE or (result.examined is not None and result.examined.count > 0)


@pytest.mark.parametrize("name", sorted(NOT_DECODERS))
def test_what_is_no_decoder_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(DoctorError, match="not a decoder that this tool examines"):
        diagnose(Settings(subject=name, weights="skeleton"), lambda line: None)
