"""What was generated, as evidence."""

from __future__ import annotations

import torch

from gemma_doctor import compat
from gemma_doctor.capture.passes import Passes
from gemma_doctor.evidence import Floats, Generation, Generations, frozen
from gemma_doctor.oracle import FLIP_FLOORS


def generations(passes: Passes) -> Generations:
    """All generations of a patient that generates; they are run here if they have not been run yet."""
    return Generations((_long(passes),))


def _long(passes: Passes) -> Generation:
    crossing, patient = passes.crossing, passes.patient
    prompt = crossing.recorded.prompt_length
    tokens = crossing.run.tokens[0, prompt:]
    not_finite = next((i for i, one in enumerate(crossing.run.logits) if not one.isfinite().all()), None)
    best, clear = tokens, torch.zeros_like(tokens, dtype=torch.bool)
    reference_entropy = torch.zeros(0)
    if crossing.reference is not None:
        logits = crossing.reference.logits[:-1].clone()
        reference_entropy = entropy(logits)
        logits[:, compat.end_tokens(patient.reduced)] = float("-inf")  # as the generation did
        best = logits.argmax(dim=1)
        chosen = logits.gather(1, tokens[:, None])[:, 0]
        clear = logits.max(dim=1).values - chosen > FLIP_FLOORS * crossing.reference.floor
    return Generation(
        window=patient.reduced_window,
        prompt_length=prompt,
        margin=passes.settings.margin,
        tokens=frozen(tokens.cpu().numpy()),
        reference=frozen(best.cpu().numpy()),
        clear=frozen(clear.cpu().numpy()),
        crash=crossing.run.crash,
        pass_name=crossing.recorded.name,
        not_finite=not_finite,
        bad_weight="" if not_finite is None else _bad_weight(patient.reduced),
        no_reference=crossing.why_no_reference,
        entropy=_numbers(torch.cat([entropy(one[:1]) for one in crossing.run.logits] or [torch.zeros(0)])),
        reference_entropy=_numbers(reference_entropy),
    )


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Of next-token distributions, in nats: logits of shape (n, vocabulary) to shape (n,)."""
    logarithms = logits.float().log_softmax(dim=-1)
    return -(logarithms.exp() * logarithms).nan_to_num().sum(dim=-1)  # 0 x -inf where a token cannot come


def _numbers(values: torch.Tensor) -> Floats:
    return frozen(values.double().cpu().numpy())


def _bad_weight(model: torch.nn.Module) -> str:
    return next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), "")
