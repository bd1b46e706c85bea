"""Losses are those of the model's own forward, whatever its head does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gemma_doctor.capture import losses
from gemma_doctor.loading import Patient


@pytest.mark.parametrize(
    "preset", ["gemma-3-1b-it", "gemma-2-2b", "gemma-4-E2B-it", "gemma-3n-E2B-it", "c4ai-command-r7b-12-2024"]
)
@torch.inference_mode()
def test_they_are_those_of_one_forward(
    patient_of: Callable[..., Patient], preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads with soft-caps, with a scale, with shared keys; in several chunks."""
    monkeypatch.setattr(losses, "CHUNK", 16)
    model = patient_of(preset, "eager").reduced
    ids = torch.randint(10, 500, (50,), generator=torch.Generator().manual_seed(1))
    shared = bool(losses.kv_sources(model))
    logits = model(input_ids=ids[None], use_cache=shared).logits[0].float()
    expected = -logits.log_softmax(dim=-1)[:-1].gather(1, ids[1:, None])[:, 0]
    before = {name for name in vars(losses.text_decoder(model)) if name == "forward"}
    torch.testing.assert_close(losses.losses(model, ids), expected, atol=1e-4, rtol=1e-5)
    some = torch.tensor([1, 7, 49])
    torch.testing.assert_close(losses.losses(model, ids, some), expected[some - 1], atol=1e-4, rtol=1e-5)
    assert {name for name in vars(losses.text_decoder(model)) if name == "forward"} == before
