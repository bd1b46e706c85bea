"""What was generated, as evidence."""

from __future__ import annotations

import torch

from gemma_doctor import compat
from gemma_doctor.capture.continuations import ended_by
from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.taken import Crossing
from gemma_doctor.evidence import GREEDY, Floats, Generation, Generations, frozen
from gemma_doctor.oracle import FLIP_FLOORS


def generations(passes: Passes) -> Generations:
    """All generations of a patient that generates; they are run here if they have not been run yet."""
    return Generations(tuple(_generation(passes, one) for one in passes.continuations.all))


def _generation(passes: Passes, made: Crossing) -> Generation:
    model, prompt, greedy = passes.patient.reduced, made.recorded.prompt_length, made.way == GREEDY
    drawn = bool(made.settings.get("do_sample"))
    tokens = made.run.tokens[0, prompt:]
    not_finite = next((i for i, one in enumerate(made.run.logits) if not one.isfinite().all()), None)
    best, clear = tokens, torch.zeros_like(tokens, dtype=torch.bool)
    reference_entropy = torch.zeros(0)
    if made.reference is not None:
        logits = made.reference.logits[:-1]
        reference_entropy = entropy(logits)
        if greedy:
            logits = compat.suppressed(logits, compat.end_tokens(model))  # as the generation did
        if not drawn:
            chosen = logits.gather(1, tokens[:, None])[:, 0]
            clear = logits.max(dim=1).values - chosen > FLIP_FLOORS * made.reference.floor
        best = logits.argmax(dim=1)
    return Generation(
        window=passes.patient.reduced_window,
        prompt_length=prompt,
        margin=passes.settings.margin,
        tokens=frozen(tokens.cpu().numpy()),
        reference=frozen(best.cpu().numpy()),
        clear=frozen(clear.cpu().numpy()),
        crash=made.run.crash,
        pass_name=made.recorded.name,
        not_finite=not_finite,
        bad_weight="" if not_finite is None else _bad_weight(model),
        no_reference=made.why_no_reference,
        way=made.way,
        settings=made.settings,
        entropy=_numbers(torch.cat([entropy(one[:1]) for one in made.run.logits] or [torch.zeros(0)])),
        reference_entropy=_numbers(reference_entropy),
        ended_by=ended_by(made, model),
    )


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Of next-token distributions, in nats: logits of shape (n, vocabulary) to shape (n,)."""
    logarithms = logits.float().log_softmax(dim=-1)
    return -(logarithms.exp() * logarithms).nan_to_num().sum(dim=-1)  # 0 x -inf where a token cannot come


def _numbers(values: torch.Tensor) -> Floats:
    return frozen(values.double().cpu().numpy())


def _bad_weight(model: torch.nn.Module) -> str:
    return next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), "")
