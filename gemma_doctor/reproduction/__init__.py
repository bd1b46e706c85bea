"""Scripts that reproduce the causes of a report with torch and transformers alone: for those who mend the library."""

from __future__ import annotations

from gemma_doctor.reproduction.trial import Attempts, Trial, attempted
from gemma_doctor.reproduction.writing import Script, Written, written

__all__ = ["Attempts", "Script", "Trial", "Written", "attempted", "written"]
