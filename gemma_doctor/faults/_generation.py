"""What generate() is asked for, while it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gemma_doctor.loading import Patient
from gemma_doctor.undone import method_replaced

Options = dict[str, Any]


@contextmanager
def generate_watched(
    patient: Patient, change: Callable[[Any, Options], None] = lambda ids, options: None
) -> Iterator[Options]:
    """Know with which arguments generate() was called, and change them.

    Stands in for the method of the class: a drafter that is copied from the model is watched as well, and what it
    generates counts as part of the call that uses it.

    Args:
        patient: whose models are watched.
        change: from ids and keyword arguments of a call; changes the latter in place.

    Yields:
        The keyword arguments of the call that runs; empty where none does.
    """
    running: Options = {}

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            if running:
                return original(model, *args, **kwargs)
            change(args[0], kwargs)
            running.update(kwargs)
            try:
                return original(model, *args, **kwargs)
            finally:
                running.clear()

        return generate

    with ExitStack() as replaced:
        for one in {type(model) for model in patient.models}:
            replaced.enter_context(method_replaced(one, "generate", watching(one.generate)))
        yield running


def asked_for(running: Options, name: str) -> Any:
    """A field of the generation config of the call that runs, None where none does."""
    return getattr(running.get("generation_config"), name, None)
