"""In a batch that generates, every row ends with a real token.

What it proves
    In a batch that is padded as the subject's tokenizer is set, the last column of each row is a real token; where it
    is a pad, the row's next-token logits are compared with the same row run alone. The tokenizer's setting, where
    there is one, is compared with the side on which the batch was padded, and read again after generate() ran.

Why it matters
    `generate` continues from the last column. If that is a pad, the model continues a sentence that ends in padding: on
    Gemma 3 270M with 40 right pads the logits there were off by 13.5 and another token came first.

How to fix
    `tokenizer.padding_side = "left"` before batching for generation, and always pass the attention mask. Where a
    wrapper of generate() changes the setting, set it again before every batch.

Known limits
    Left padding cuts nothing off: with the mask passed, the last column stayed within 6e-5 (measured). Right padding is
    right for training and for embeddings, and many tokenizers are published so: a warning, since only who generates in
    batches meets it; a note where the tokenizer has no token to pad with. One batch of three rows is looked at; whether
    rows depend on the batch that they stand in is left-padded-parity's business.

References
    Measured on Gemma 3 270M, float32, 600 real tokens and 40 pads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import PaddedBatch, TokenizerFacts
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted
from gemma_doctor.oracle import FINDING_FLOORS

DO = 'tokenizer.padding_side = "left" before generate()'


@check()
def padding_side(batch: PaddedBatch, tokenizer: TokenizerFacts | None) -> Iterator[Finding | Examined]:
    """Batches that generate end with real tokens."""
    if batch.side_after != batch.side_before:
        yield _flipped(batch)
    rows = np.flatnonzero(~batch.real[:, -1])
    if not np.isfinite(batch.deviation[rows]).all():
        raise CouldNotLook("the logits of the padded batch are not finite")
    if len(rows):
        cannot_pad = tokenizer is not None and tokenizer.pad_token_id is None
        yield _ends_in_pads(batch, rows.tolist(), _setting(batch, tokenizer), cannot_pad)
    elif tokenizer is not None and tokenizer.padding_side == "right":
        yield Finding(
            title="the tokenizer is set to pad on the right",
            severity=Severity.NOTE,
            observed=f"{_setting(batch, tokenizer)}; no row of this batch ends in a pad",
            expected="left, for batches that generate",
            do=DO,
            standing=True,
        )
    padded = int((~batch.real).any(axis=1).sum())
    said = f"{counted(len(batch.real), 'row')}, {padded} padded on the {batch.side}"
    said += f" ({_setting(batch, tokenizer)})" if tokenizer is not None else ""
    yield Examined(len(batch.real), said)


def _setting(batch: PaddedBatch, tokenizer: TokenizerFacts | None) -> str:
    """What decides the side, against the side on which the batch was really padded."""
    if tokenizer is None:
        return f"side set by {batch.side_from}"
    against = "" if tokenizer.padding_side == batch.side else f", batch padded on the {batch.side}"
    return f"tokenizer set to {tokenizer.padding_side}{against}"


def _flipped(batch: PaddedBatch) -> Finding:
    """Right from the next batch on: the one that ran was padded before."""
    wrong = batch.side_after == "right"
    return Finding(
        title="generate() changes the tokenizer's padding side",
        severity=Severity.ERROR if wrong else Severity.WARNING,
        observed=f"{batch.side_before} before, {batch.side_after} after",
        expected=f"{batch.side_before}: what a wrapper changes, it sets back",
        effect="from the second batch on, generate() continues from pads" if wrong else "",
        do=f'set tokenizer.padding_side = "{batch.side_before}" before every batch, or generate without that wrapper',
        standing=True,
    )


def _ends_in_pads(batch: PaddedBatch, rows: list[int], decided: str, cannot_pad: bool) -> Finding:
    worst, flips = float(batch.deviation[rows].max()), int(batch.flips[rows].sum())
    return Finding(
        title=f"rows are padded on the {batch.side}: generate() continues from the pad (if you generate in batches)",
        severity=Severity.NOTE if cannot_pad or worst <= FINDING_FLOORS * batch.floor else Severity.WARNING,
        where=Location(boundary=f"rows {', '.join(map(str, rows))}"),
        observed=f"{len(rows)} of {len(batch.real)} rows end in a pad ({decided})",
        expected="the last column of every row is a real token",
        effect=f"next-token logits off by {worst:.3g} from the same row alone (noise {batch.floor:.2g}); "
        f"{flips} of {len(rows)} top tokens change",
        do=DO,
        standing=True,
    )
