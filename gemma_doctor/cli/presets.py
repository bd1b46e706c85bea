"""`gemma-doctor presets`: the published configurations that are shipped."""

from __future__ import annotations

from gemma_doctor.cli.output import terminal_width, write
from gemma_doctor.cli.table import table


def list_presets() -> None:
    """List the configurations that work offline."""
    from gemma_doctor import presets

    rows = [
        (one.name, one.family, one.layers, one.window, one.pattern) for one in map(presets.summary, presets.names())
    ]
    write(table(("preset", "model_type", "layers", "window", "layer kinds"), rows, terminal_width()))
