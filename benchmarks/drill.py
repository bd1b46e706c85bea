"""The drill over families and backends: the score per check and family.

    python benchmarks/drill.py [--families NAME ...] [--backends NAME ...] [--faults NAME ...] [--jobs N] [-v]
    python benchmarks/drill.py --write docs/drill.md

One thread per process. Exits 1 if an applicable fault was not caught, or a healthy twin has a finding above a note.
--write makes the page of the docs, over all families and all faults (about half an hour of one core).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemma_doctor.check import GROUPS
from gemma_doctor.drilled import Drilled, Verdict

if TYPE_CHECKING:
    from gemma_doctor.drill import HealthyTwin
    from gemma_doctor.settings import Settings

ROOT = Path(__file__).parent.parent
COMMAND = "python benchmarks/drill.py --write docs/drill.md"


@dataclass(frozen=True)
class Family:
    """A family of models, by one of its published configurations.

    Attributes:
        name: as people say it.
        preset: which one is drilled.
        backends: attention implementations that the newest release offers it.
        overrides: laid over the published configuration.
        tiny: not the preset's skeleton, but the tests' small model with a tokenizer, saved with its weights.
    """

    name: str
    preset: str
    backends: tuple[str, ...] = ("sdpa", "eager")
    overrides: Mapping[str, Any] = field(default_factory=dict)
    tiny: bool = False


QWEN2_WINDOW = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 14}
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
    Family("qwen2 with a window", "qwen2.5-7b-instruct", overrides=QWEN2_WINDOW),
    Family("olmo3", "olmo-3.1-32b-instruct"),
    Family("starcoder2", "starcoder2-7b"),
    Family("phi3", "phi-3-mini-4k-instruct"),
    Family("llama", "llama-3.1-8b-instruct"),
)
COMBINATIONS = tuple((family, backend) for family in FAMILIES for backend in family.backends)
# Faults of tokens show on no skeleton.
TINY = Family("small gemma3 with a tokenizer", "", ("sdpa",), tiny=True)
EVERY_FAMILY = (*FAMILIES, TINY)
EVERY_COMBINATION = (*COMBINATIONS, (TINY, "sdpa"))
# Faults that only other subjects can have, and where they are drilled.
ELSEWHERE = {
    "far-keys-dropped": "the real Gemma 3 270M (tests/test_real_texts.py)",
    "positions-end-far-out": "the real Gemma 3 270M (tests/test_real_texts.py)",
    "head-untied": "the real Gemma 3 270M (tests/test_real.py)",
    "gguf-key-lost": "a small GGUF file (tests/test_gguf.py)",
}


@dataclass(frozen=True)
class Score:
    """What one family says with one backend.

    Attributes:
        twin: findings above a note on the healthy skeleton, as "check: title".
        drilled: one per fault.
    """

    family: Family
    backend: str
    twin: tuple[str, ...]
    drilled: tuple[Drilled, ...]

    @property
    def not_caught(self) -> list[Drilled]:
        return [one for one in self.drilled if one.not_caught]

    @property
    def applicable(self) -> int:
        return sum(one.put_in for one in self.drilled)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.drilled)


def twin_of(family: Family, backend: str, names: Sequence[str]) -> HealthyTwin:
    """The healthy skeleton (or small model), with every route looked at that some fault shows on."""
    from gemma_doctor.drill import HealthyTwin, chosen_faults, healthy

    settings = _settings(family, backend)
    patient = healthy(settings, lambda line: None)
    with patient.threads():
        return HealthyTwin(patient, settings, chosen_faults(names))


def _settings(family: Family, backend: str) -> Settings:
    from gemma_doctor.settings import Settings

    if family.tiny:
        return Settings(subject=_tiny().name, weights="real", attn_implementation=backend, depth="deep")
    return Settings(
        subject=family.preset,
        weights="skeleton",
        attn_implementation=backend,
        overrides=family.overrides,
        expect={"preset": family.preset, **family.overrides},
        depth="deep",
    )


@cache
def _tiny() -> tempfile.TemporaryDirectory[str]:
    """The folder of the small model; there until the process ends."""
    from tests.tiny_model import tiny_folder

    made = tempfile.TemporaryDirectory()
    tiny_folder(Path(made.name))
    return made


def score(combination: tuple[Family, str], names: Sequence[str]) -> Score:
    """Drill one family with one backend."""
    from gemma_doctor.drill import chosen_faults

    if combination[0].tiny:
        names = [one.id for one in chosen_faults(names) if one.id not in ELSEWHERE]
    twin = twin_of(*combination, names)
    with twin.patient.threads():
        drilled = tuple(map(twin.with_fault, chosen_faults(names)))
    return Score(*combination, tuple(f"{one.check}: {one.title}" for one in twin.findings), drilled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=[one.name for one in EVERY_FAMILY], metavar="NAME")
    parser.add_argument("--backends", nargs="+", default=["sdpa", "eager"], metavar="NAME")
    parser.add_argument("--faults", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="combinations at once")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page of the docs")
    parser.add_argument("-v", "--verbose", action="store_true", help="every fault, not only those that were not caught")
    given = parser.parse_args()
    if given.write and (given.families or given.faults):
        parser.error("--write is for all families and all faults")
    chosen = [
        (family, backend)
        for family, backend in EVERY_COMBINATION
        if (not given.families or family.name in given.families) and backend in given.backends
    ]
    scores = []
    for one in _scores(chosen, given.faults, given.jobs):
        scores.append(one)
        for line in _lines(one, given.verbose):
            print(line, flush=True)
    if given.write:
        given.write.write_text(page(scores), encoding="utf-8")
    return int(any(one.not_caught or one.twin for one in scores))


def _scores(chosen: Sequence[tuple[Family, str]], names: Sequence[str], jobs: int) -> Iterator[Score]:
    if jobs == 1:
        yield from map(partial(score, names=names), chosen)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(score, names=names), chosen)


def _lines(one: Score, verbose: bool) -> Iterator[str]:
    for drilled in one.drilled if verbose else one.not_caught:
        name = f"{drilled.verdict.value:15} {drilled.fault:34} {drilled.caught_by:20}"
        yield f"  {name} {drilled.seconds:4.1f} s  {_said(drilled)}"
    for said in one.twin:
        yield f"  the healthy twin: {said}"
    caught = one.applicable - len(one.not_caught)
    yield f"{one.family.name} {one.backend}: {caught} of {one.applicable} caught, {one.seconds:.0f} s"


def _said(one: Drilled) -> str:
    if one.reason:
        return one.reason
    return f"causes {', '.join(one.causes) or 'none'}; follow {', '.join(one.consequences) or 'none'}; {one.observed}"


# --- the page of the docs --------------------------------------------------------------------------------------------


def page(scores: Sequence[Score]) -> str:
    """The score per check and family, every fault, and what is not covered yet, as Markdown."""
    from gemma_doctor.facts import version_of
    from gemma_doctor.faults import WAITED_FOR

    every = [drilled for one in scores for drilled in one.drilled]
    applicable = sum(one.put_in for one in every)
    caught = sum(one.verdict is Verdict.CAUGHT for one in every)
    healthy = sum(not one.twin for one in scores)
    run = {(one.family.name, one.backend) for one in scores}
    left = [f"{family.name} {backend}" for family, backend in EVERY_COMBINATION if (family.name, backend) not in run]
    waiting = {one.fault for one in every if one.caught_by in WAITED_FOR}
    parts = [
        "# The drill: would the doctor have noticed?",
        f"Made by `{COMMAND}` with transformers {version_of('transformers')} and torch {version_of('torch')}; "
        "`gemma-doctor drill SUBJECT` does the same for one subject. Every fault is put into the healthy skeleton of "
        "every family with every attention backend that the release offers it, and into a small Gemma 3 that is saved "
        "with its tokenizer. It is caught if the expected check is "
        "the only cause and every other failing check is its consequence.",
        f"**{caught} of {applicable} caught; {healthy} of {len(scores)} healthy twins without a finding; "
        f"{len(waiting)} faults not yet covered.**" + (f" Not run this time: {', '.join(left)}." if left else ""),
        "## Caught, per check and family",
        "Caught / applicable, all faults of the check and both backends together; a blank where no fault of the check "
        "applies.",
        _table(("check", *(one.name for one in EVERY_FAMILY)), _per_check(scores)),
        "## Every fault",
        "*In*: with how many of the combinations of family and backend it could be put in.",
        _table(("fault", "what is done", "its cause must be", "in"), _per_fault(every)),
    ]
    return "\n\n".join(parts) + "\n"


def _per_check(scores: Sequence[Score]) -> Iterator[tuple[str, ...]]:
    names = {(one.group, one.caught_by) for score in scores for one in score.drilled}
    for group, check in sorted(names, key=lambda name: (GROUPS.index(name[0]), name[1])):
        cells = []
        for family in EVERY_FAMILY:
            own = [
                one
                for score in scores
                if score.family.name == family.name
                for one in score.drilled
                if one.caught_by == check
            ]
            put_in = sum(one.put_in for one in own)
            caught = sum(one.verdict is Verdict.CAUGHT for one in own)
            cells.append(f"{caught}/{put_in}" if put_in else "")
        if any(cells):
            yield (f"{group}: {check}", *cells)


def _per_fault(every: Sequence[Drilled]) -> Iterator[tuple[str, ...]]:
    from gemma_doctor.faults import WAITED_FOR

    for name in dict.fromkeys(one.fault for one in every):
        own = [one for one in every if one.fault == name]
        put_in = sum(one.put_in for one in own)
        where = ELSEWHERE.get(name, f"{put_in} of {len(own)}")
        where = "not yet covered" if own[0].caught_by in WAITED_FOR else where
        yield name, own[0].title.rstrip("."), own[0].caught_by, where


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
