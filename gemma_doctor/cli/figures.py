"""Pictures of findings, one file each, in the folder that --figures names."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from gemma_doctor.cli.output import Destination
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import CheckResult, Finding, Report, Severity


def require_folder(folder: str) -> None:
    """Make the folder if it is missing.

    Raises:
        DoctorError: no file can be made in it.
    """
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = "is a file" if path.is_file() else error.strerror
        raise DoctorError(f"--figures {folder}: cannot be written to ({reason})", "name a writable folder") from None


def drawn(report: Report, folder: str) -> Report:
    """Draw every error and warning that has cells, as CHECK-N.png, and every curve that was measured, as CHECK.png.

    Older pictures of the same name are replaced.

    Returns:
        The report, its findings with the path of their figure; those of a check with a curve have that one.

    Raises:
        DoctorError: a file cannot be written.
    """
    count: Counter[str] = Counter()

    def with_figure(finding: Finding) -> Finding:
        if finding.cells is None or finding.severity < Severity.WARNING:
            return finding
        from gemma_doctor.charts import cells  # imports matplotlib

        count[finding.check] += 1
        path = str(Path(folder) / f"{finding.check}-{count[finding.check]}.png")
        with Destination(path, "--figures") as destination:
            destination.write(cells.render(finding.cells, finding.title))
        return replace(finding, figure=path)

    def with_figures(result: CheckResult) -> CheckResult:
        curve = result.examined.curve if result.examined else None
        if curve is None:
            return replace(result, findings=tuple(map(with_figure, result.findings)))
        from gemma_doctor.charts import curves  # imports matplotlib

        path = str(Path(folder) / f"{result.check}.png")
        with Destination(path, "--figures") as destination:
            destination.write(curves.render(curve))
        return replace(result, findings=tuple(replace(one, figure=path) for one in result.findings))

    return replace(report, results=tuple(map(with_figures, report.results)))
