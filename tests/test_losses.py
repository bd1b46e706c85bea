"""Losses are those of the model's own forward, whatever its head does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers

from gemma_doctor.capture import losses
from gemma_doctor.check import CouldNotLook
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


SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
SEES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("family", "text", "vision", "image"),
    [
        ("gemma3", "gemma3_text", "siglip_vision_model", 28),
        ("mistral3", "mistral", "pixtral", 28),
        ("paligemma", "gemma2", "siglip_vision_model", 28),
    ],
)
@torch.inference_mode()
def test_image_text_models_have_a_head_as_well(family: str, text: str, vision: str, image: int) -> None:
    """They unpack the decoder's output as a mapping."""
    eyes = {"model_type": vision, "image_size": image, "patch_size": 14, **SEES}
    config = transformers.AutoConfig.for_model(
        family, text_config={"model_type": text, **SMALL}, vision_config=eyes, mm_tokens_per_image=4
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    ids = torch.arange(10, 30)
    hidden = losses.hidden_states(model, ids)
    expected = model.lm_head(hidden)
    cap = getattr(config.text_config, "final_logit_softcapping", None)
    expected = expected if cap is None else cap * torch.tanh(expected / cap)
    torch.testing.assert_close(losses.head_logits(model, hidden), expected, atol=1e-3, rtol=1e-3)


def test_a_model_whose_head_does_not_run_alone_is_not_accused(
    patient_of: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = patient_of("gemma-3-1b-it", "eager").reduced
    monkeypatch.setattr(losses.compat, "decoder_output", lambda hidden: None)
    with pytest.raises(CouldNotLook, match="head cannot be run on its own"):
        losses.losses(model, torch.arange(10, 20))
    assert "forward" not in vars(losses.text_decoder(model))
    monkeypatch.undo()
    with pytest.raises(CouldNotLook, match="raises on a text: IndexError"):
        losses.measured(model, torch.arange(10**6, 10**6 + 9))
