"""`gemma-doctor presets`: the published configurations that are shipped."""

from __future__ import annotations

from gemma_doctor.cli.output import terminal_width, write
from gemma_doctor.cli.table import table


def list_presets() -> None:
    """List the configurations that are built in."""
    from gemma_doctor import presets
    from gemma_doctor.subject import not_a_decoder

    rows = []
    for one in map(presets.summary, presets.names()):
        refused = not_a_decoder(presets.load(one.name))
        pattern = f"not examined: {refused}" if refused else one.pattern
        rows.append((one.name, one.family, one.layers, one.window, pattern))
    write(table(("preset", "model_type", "layers", "window", "layer kinds"), rows, terminal_width()))
