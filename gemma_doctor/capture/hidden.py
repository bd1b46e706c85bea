"""Hidden states of every layer, column by column, so that the first layer that goes wrong can be named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import text_decoder

if TYPE_CHECKING:
    import torch


class HiddenStates:
    """What every decoder layer put out, by column of the sequence; what is fed twice counts as it was fed last.

    Attributes:
        layers: per layer, column -> states of all rows, shape (b, hidden).
    """

    def __init__(self) -> None:
        self.layers: list[dict[int, torch.Tensor]] = []
        self._fed: Fed | None = None

    def row(self, layer: int, row: int, pads: int) -> dict[int, torch.Tensor]:
        """One row's states in one layer, by token: its left pads are left out."""
        return {column - pads: states[row] for column, states in self.layers[layer].items() if column >= pads}

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Keep the states of all forwards of `model` in the block."""
        decoder = text_decoder(model)
        self.layers = [{} for _ in decoder.layers]
        with ExitStack() as stack:
            stack.enter_context(hooked([decoder], self._begin))
            for index, layer in enumerate(decoder.layers):
                stack.callback(layer.register_forward_hook(self._keeper(index)).remove)
            yield

    def _begin(self, decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fed = Fed.of(decoder, args, kwargs)

    def _keeper(self, index: int) -> Any:
        def keep(_module: Any, _args: Any, output: Any) -> None:
            states = (output[0] if isinstance(output, tuple) else output).detach().float()
            if states.ndim == 4:  # Gemma 3n carries several streams: (streams, b, columns, hidden)
                states = states.permute(1, 2, 0, 3).flatten(2)
            assert self._fed is not None  # the decoder's hook comes before those of its layers
            # layers with shared keys may compute the last columns only
            first = self._fed.start + self._fed.columns - states.shape[1]
            for offset in range(states.shape[1]):
                self.layers[index][first + offset] = states[:, offset]

        return keep
