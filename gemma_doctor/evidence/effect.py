"""What another rotation does to trained weights."""

from __future__ import annotations

from dataclasses import dataclass

from gemma_doctor.evidence.arrays import Floats


@dataclass(frozen=True)
class RopeEffect:
    """Loss per token of one text, shorter than the weights were trained for, under two rotations.

    Attributes:
        own, other: the subject's rotation and the one that it is held against, in words.
        of_base: the other is that of the preset which the subject comes from; else what a stretch would need.
        own_losses, other_losses: nats per token, the same tokens, shape (n,).
        source: of the text, in words.
    """

    own: str
    other: str
    of_base: bool
    own_losses: Floats
    other_losses: Floats
    source: str

    @property
    def cost(self) -> float:
        """Nats per token that the subject's own rotation costs against the other; negative where it is better."""
        return float((self.own_losses - self.other_losses).mean())

    @property
    def noise(self) -> float:
        """Standard error of `cost`: the spread of the tokens' differences over the root of their number."""
        difference = self.own_losses - self.other_losses
        return float(difference.std() / max(difference.size, 1) ** 0.5)

    def __str__(self) -> str:
        """ "2.678 nats a token with theta 1,000,000, 2.676 with theta 4,044,000 (1,023 tokens of ...)"."""
        return (
            f"{self.own_losses.mean():.3f} nats a token with {self.own}, {self.other_losses.mean():.3f} with "
            f"{self.other} ({self.own_losses.size:,} tokens of {self.source})"
        )
