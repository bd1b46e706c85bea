"""`gemma-doctor facts`: what each layer is built for, to hold against another engine.

Exit codes: 0, or 2 where the facts are not to be had.
"""

from __future__ import annotations

import os
from typing import Annotated

from gemma_doctor.cli import options
from gemma_doctor.cli.options import Word, option
from gemma_doctor.cli.output import aside, write


def facts(
    subject: options.Subject = None,
    config: options.Config = None,
    source: Annotated[
        Word,
        option("auto|published|loaded", "The file alone, or what transformers builds of it, without weights. [auto]"),
    ] = None,
    offline: options.Offline = False,
    revision: options.Revision = None,
    format: Annotated[Word, option("text|json", "Form of the facts. [text]")] = None,
) -> None:
    """Say window, rotation and head sizes of every layer."""
    flags = {"subject": subject, "config": config, "offline": offline or None, "revision": revision, "format": format}
    from gemma_doctor.layer_facts import SOURCES, layer_facts
    from gemma_doctor.report import facts as report
    from gemma_doctor.settings import resolve

    chosen = options.choice("--source", source, *SOURCES)
    options.choice("--format", format, "text", "json")
    settings = resolve({name: value for name, value in flags.items() if value is not None}, os.environ)
    with aside():
        found = layer_facts(settings, chosen)
    write(report.document(found) if settings.format == "json" else report.text(found))
