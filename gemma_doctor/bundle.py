"""What goes into a bug report: what was found, with what, and a script that shows it, without anything private.

Everything is made from a report whose texts have been redacted first, pictures included.
"""

from __future__ import annotations

import io
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

from gemma_doctor import bundle_readme
from gemma_doctor.facts import version_of
from gemma_doctor.finding import Report
from gemma_doctor.redaction import Redactor, redactor, stand_ins, technical
from gemma_doctor.report import json as json_report
from gemma_doctor.report import text as text_report
from gemma_doctor.reproduction import Attempts
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject

# Earliest that a zip file knows: two bundles of the same run have the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)
PACKAGES = (
    "gemma-doctor", "transformers", "torch", "tokenizers", "safetensors", "huggingface_hub", "numpy", "accelerate",
    "peft", "gguf", "kernels", "flash-attn", "bitsandbytes", "optimum-quanto", "hqq",
)  # fmt: skip
OPEN_KINDS = ("preset", "hub id")  # subjects that everybody knows by the same name
SLUGS = ("check", "group", "follows_from", "gate", "route")
LEFT_OUT = "<left out>"


@dataclass(frozen=True)
class Keep:
    """What is asked to stay in.

    Attributes:
        prompts: the user's prompts are run as they are, and may be quoted.
        paths: paths, and names of files.
    """

    prompts: bool = False
    paths: bool = False


def to_examine(settings: Settings, keep: Keep) -> Settings:
    """The settings of a run that may be shown: prompts have stand-ins, and no baseline is read or written."""
    prompts = settings.prompts if keep.prompts else stand_ins(settings.prompts)
    if not keep.paths:
        prompts = tuple(
            replace(one, name=f"{one.name.split(' file ')[0]} file {number}") if " file " in one.name else one
            for number, one in enumerate(prompts, start=1)
        )
    return replace(settings, prompts=prompts, baseline=None, update_baseline=False)


def redactor_of(settings: Settings, subject: Subject, keep: Keep) -> Redactor:
    """What is private about this run and this machine."""
    named = (settings.run_file, *settings.checks_dir, settings.output, settings.figures, settings.baseline)
    paths = [one for one in named if one] + [path for _, path in settings.report]
    if subject.kind not in OPEN_KINDS:
        paths.append(subject.name)
        paths += [str(subject.folder)] if subject.folder else []
    paths += [subject.adapter.base] if subject.adapter and Path(subject.adapter.base).exists() else []
    return redactor(paths, paths=keep.paths)


def publishable(report: Report, subject: Subject, redact: Redactor, keep: Keep) -> Report:
    """The report with nothing private in any of its texts."""
    about = dict(report.subject)
    if not keep.paths:
        about["subject_source"] = str(about["subject_source"]).split(" file ")[0]
        if subject.kind not in OPEN_KINDS:
            about["name"] = f"a {subject.kind}"
    suppressed = tuple(replace(one, reason=LEFT_OUT) for one in report.suppressed)
    shown: Report = _redacted(replace(report, subject=about, suppressed=suppressed), redact)
    return shown


def _redacted(value: Any, redact: Redactor) -> Any:
    """Of the same shape; slugs, which are this tool's own words, stay."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return redact(value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in fields(value) if one.name not in SLUGS]
        return replace(value, **{name: _redacted(getattr(value, name), redact) for name in names})
    if isinstance(value, Mapping):
        return {redact(str(key)): _redacted(one, redact) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_redacted(one, redact) for one in value)
    return value


def files(
    report: Report,
    subject: Subject,
    redact: Redactor,
    attempts: Attempts,
    figures: Mapping[str, bytes],
    left_out: Sequence[str],
) -> dict[str, bytes]:
    """The content of the bundle, by name.

    Args:
        report: as `publishable` gives it.
        attempts: scripts, and what came of them.
        figures: pictures, by file name.
        left_out: what is not in it, in words.
    """
    environment = redact.all(environment_of(report))
    texts = {
        "report.txt": text_report.render(report, None, False, verbosity=1),
        "report.json": json_report.render(report),
        "environment.json": json_report.dumped(environment),
        "config.json": json_report.dumped(redact.all(technical(subject.published))),
    }
    if attempts.chosen[0] is not None:
        texts["reproduce.py"] = attempts.chosen[0].text
    names = [*texts, *(f"figures/{name}" for name in sorted(figures))]
    readme = bundle_readme.render(report, environment, names, _redacted(attempts, redact), left_out)
    made = {
        name: text.encode("utf-8", errors="backslashreplace") for name, text in {"README.md": readme, **texts}.items()
    }
    return made | {f"figures/{name}": picture for name, picture in sorted(figures.items())}


def with_figures(report: Report) -> Report:
    """Findings name their picture by its place in the bundle."""

    def placed(name: str) -> str:
        return f"figures/{PurePath(name).name}" if name else ""

    results = tuple(
        replace(result, findings=tuple(replace(one, figure=placed(one.figure)) for one in result.findings))
        for result in report.results
    )
    return replace(report, results=results)


def environment_of(report: Report) -> dict[str, Any]:
    """What the run stood on: what the report says, the machine in general terms, and versions of packages."""
    packages = {name: version_of(name) for name in PACKAGES}
    return {
        **report.environment,
        "gemma_doctor": report.version,
        "system": platform.system(),
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "accelerator": _accelerator(str(report.environment.get("device") or "")),
        "packages": {name: version for name, version in packages.items() if version},
    }


def _accelerator(device: str) -> str | None:
    """The name of the GPU that was run on."""
    if not device.startswith("cuda"):
        return None
    import torch

    return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"


def zipped(content: Mapping[str, bytes]) -> bytes:
    """A zip file; the same content gives the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return stream.getvalue()
