"""The library's own process-wide switches: how loud it is, and whether it shows progress bars."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARY = "transformers"


@contextmanager
def switches_restored() -> Iterator[None]:
    """Whatever is done to the library's logger and progress bars in the block is undone."""
    from transformers.utils import logging as library

    library.get_verbosity()  # sets the logger up, where nobody has yet
    logger, bars = logging.getLogger(LIBRARY), library.is_progress_bar_enabled()
    level, handlers, propagates = logger.level, list(logger.handlers), logger.propagate
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagates
        (library.enable_progress_bar if bars else library.disable_progress_bar)()
