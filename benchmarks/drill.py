"""The drill over families and backends: the score per check and family.

    python benchmarks/drill.py [--families NAME ...] [--faults NAME ...] [--write docs/drill.md]

One process, one thread. Exits 1 if an applicable fault was not caught. --write makes the table of the docs, which
stands for all families and all faults.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemma_doctor.drilled import APPLICABLE, Drilled, Verdict

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Family:
    """A family of models, by one of its published configurations.

    Attributes:
        name: as people say it.
        preset: which one is drilled.
        backends: attention implementations that the newest release offers it.
        overrides: laid over the published configuration.
    """

    name: str
    preset: str
    backends: tuple[str, ...] = ("sdpa", "eager")
    overrides: Mapping[str, Any] = field(default_factory=dict)


FAMILIES = (
    Family("gemma", "gemma-2b"),
    Family("gemma2", "gemma-2-2b", ("eager",)),
    Family("gemma3", "gemma-3-4b-it"),
    Family("gemma3n", "gemma-3n-E2B-it"),
    Family("gemma4", "gemma-4-E2B-it"),
    Family("gemma4 MoE", "gemma-4-26B-A4B-it"),
    Family("mistral", "mistral-7b-v0.1"),
    Family("cohere2", "c4ai-command-r7b-12-2024"),
    Family("gpt_oss", "gpt-oss-20b", ("eager",)),
    Family(
        "qwen2 with a window",
        "qwen2.5-7b-instruct",
        overrides={"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 14},
    ),
    Family("olmo3", "olmo-3.1-32b-instruct"),
    Family("starcoder2", "starcoder2-7b"),
    Family("phi3", "phi-3-mini-4k-instruct"),
    Family("llama", "llama-3.1-8b-instruct"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=[], choices=[one.name for one in FAMILIES], metavar="NAME")
    parser.add_argument("--backends", nargs="+", default=["sdpa", "eager"], metavar="NAME")
    parser.add_argument("--faults", nargs="+", default=[], metavar="NAME")
    parser.add_argument("-v", "--verbose", action="store_true", help="every fault, not only those that were not caught")
    given = parser.parse_args()
    missed = 0
    for family in FAMILIES:
        if given.families and family.name not in given.families:
            continue
        for backend in (one for one in family.backends if one in given.backends):
            started, applicable, caught = time.process_time(), 0, 0
            for one in drilled(family, backend, given.faults):
                applicable += one.verdict in APPLICABLE
                caught += one.verdict is Verdict.CAUGHT
                if given.verbose or (one.verdict in APPLICABLE and one.verdict is not Verdict.CAUGHT):
                    print(
                        f"  {one.verdict.value:15} {one.fault:32} {one.expected:20} {one.seconds:4.1f} s  {_said(one)}"
                    )
            missed += applicable - caught
            print(
                f"{family.name} {backend}: {caught} of {applicable} caught, {time.process_time() - started:.0f} s",
                flush=True,
            )
    return int(missed > 0)


def drilled(family: Family, backend: str, names: list[str]) -> Iterator[Drilled]:
    """The faults of one family, one after the other."""
    import torch

    from gemma_doctor.drill import Drills, chosen_faults
    from gemma_doctor.loading import admit
    from gemma_doctor.settings import Settings
    from gemma_doctor.subject import resolve

    torch.set_num_threads(1)
    settings = Settings(
        subject=family.preset, weights="skeleton", attn_implementation=backend, overrides=family.overrides
    )
    drills = Drills(admit(resolve(settings), settings, lambda line: None), settings)
    for one in chosen_faults(names):
        yield drills.of(one)


def _said(one: Drilled) -> str:
    if one.reason:
        return one.reason
    return f"causes {', '.join(one.causes) or 'none'}; follow {', '.join(one.consequences) or 'none'}; {one.observed}"


if __name__ == "__main__":
    raise SystemExit(main())
