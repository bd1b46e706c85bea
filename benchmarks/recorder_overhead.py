"""What the recorder adds to a bare generate of the same tokens, on the real Gemma 3 270M (or a skeleton without it).

    python benchmarks/recorder_overhead.py [--pairs 5] [--prompt 504] [--tokens 32]

Bare and recorded runs alternate in one process; printed are the least of each and the ratio. The bar: 1.05.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture.recorder import Recorder, recording
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.loading import admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve


def timed(model: Any, ids: torch.Tensor, tokens: int, recorder: Recorder | None) -> float:
    """Seconds of one generation."""
    started = time.perf_counter()
    with torch.inference_mode():
        if recorder is None:
            compat.generate(model, ids, torch.ones_like(ids), tokens)
        else:
            with recording(model, recorder):
                compat.generate(model, ids, torch.ones_like(ids), tokens)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=504)
    parser.add_argument("--tokens", type=int, default=32)
    arguments = parser.parse_args()
    settings = Settings()
    patient = admit(resolve(settings), settings, print)
    ids = Tokens(patient, (), 0).exact(arguments.prompt)[None]
    bare = recorded = float("inf")
    timed(patient.model, ids, arguments.tokens, None)
    for _ in range(arguments.pairs):
        bare = min(bare, timed(patient.model, ids, arguments.tokens, None))
        recorder = Recorder(np.ones((1, arguments.prompt), dtype=bool))
        recorded = min(recorded, timed(patient.model, ids, arguments.tokens, recorder))
    print(f"{patient.subject.weights} weights, prompt {arguments.prompt}, {arguments.tokens} tokens")
    print(f"bare {bare:.3f} s, recorded {recorded:.3f} s, ratio {recorded / bare:.3f}")


if __name__ == "__main__":
    main()
