"""What reading one row of all layers and heads costs, beside a bare forward and beside output_attentions=True.

    python benchmarks/readout.py [--lengths 1024 2048 4096 8192] [--rounds 3] [--attentions-up-to 4096]

Real Gemma 3 270M (or a skeleton without it). Each measurement is a process of its own; rounds alternate; the least
time and the median peak are printed. Memory is the peak above what the loaded model takes (Linux only).

bare: one forward over all tokens, last logits only. readout: what `gemma-doctor heatmap --pos N-1` runs: a prompt of
N-1 tokens and one decode step that is read. The bars, at 4,096 tokens: 300 MB above bare, 1.15 x its time.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.rows import Text, read_decode_steps
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.loading import Patient, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

MODES = ("bare", "readout", "attentions")


def peak_mb() -> float:
    """Peak resident memory since the last reset."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]


def run(mode: str, patient: Patient, ids: torch.Tensor) -> Any:
    if mode == "readout":
        layers = frozenset(range(len(compat.layer_kinds(compat.text_config(patient.model)))))
        return read_decode_steps(patient, Text(ids, 0), ids.shape[1] - 1, layers, masks=False)
    with (
        torch.inference_mode(),
        compat.attention_backend_set(patient.model, "eager" if mode == "attentions" else "sdpa"),
    ):
        return patient.model(ids, output_attentions=mode == "attentions", logits_to_keep=1)


def measure(mode: str, length: int) -> None:
    """In a process of its own: prints seconds and megabytes."""
    settings = Settings()
    patient = admit(resolve(settings), settings, lambda line: None)
    ids = Tokens(patient, (), 0).exact(length)[None]
    run("bare", patient, ids[:, :64])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    before, started = peak_mb(), time.perf_counter()
    result = run(mode, patient, ids)
    print(time.perf_counter() - started, peak_mb() - before)
    if mode == "readout":
        assert all(call.reading is not None for call in result.forwards[-1].calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attentions-up-to", type=int, default=4096)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one[0], int(arguments.one[1]))
        return
    print(f"{'tokens':>7} {'mode':<11} {'seconds':>8} {'x bare':>7} {'peak MB':>8} {'above bare':>10}")
    for length in arguments.lengths:
        modes = [mode for mode in MODES if mode != "attentions" or length <= arguments.attentions_up_to]
        found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in modes}
        for _ in range(arguments.rounds):
            for mode in modes:
                command = [sys.executable, __file__, "--one", mode, str(length)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, memory = map(float, done.stdout.split())
                found[mode].append((seconds, memory))
        least = {mode: min(seconds for seconds, _ in found[mode]) for mode in modes}
        peak = {mode: statistics.median(memory for _, memory in found[mode]) for mode in modes}
        for mode in modes:
            ratio, above = least[mode] / least["bare"], peak[mode] - peak["bare"]
            print(f"{length:>7,} {mode:<11} {least[mode]:>8.2f} {ratio:>7.2f} {peak[mode]:>8,.0f} {above:>10,.0f}")


if __name__ == "__main__":
    main()
