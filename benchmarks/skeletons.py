"""Prints, for every preset, how long its skeleton takes to build, how large it is, and the memory it peaks at.

    python benchmarks/skeletons.py [--attn-implementation eager] [PRESET ...]

Each preset has a process of its own with one thread; times are CPU seconds, so that a busy machine does not blur them.
"crossing" is one greedy generation at the true window W: prefill W - 8 tokens, then 16 cached steps (W = 64 where no
layer slides). "floor" is the peak before anything is built.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

from gemma_doctor import compat, presets, skeleton
from gemma_doctor.errors import DoctorError
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

STEPS = 16


def peak_megabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(name: str, attention: str | None) -> str:
    """One line of the table.

    Raises:
        DoctorError: the preset is no decoder, or the installed transformers cannot build it.
    """
    settings = Settings(subject=name, weights="skeleton", attn_implementation=attention)
    subject = resolve(settings)
    import torch
    from transformers import GenerationMixin, PreTrainedModel

    assert GenerationMixin and PreTrainedModel  # otherwise imported by the first build, and part of the floor
    torch.set_num_threads(1)
    floor, start = peak_megabytes(), time.process_time()
    model, _, cut = skeleton.build(subject, settings)
    built = time.process_time()
    prompt = (compat.window(model.config) or 64) - 8
    ids = torch.randint(3, model.config.vocab_size, (1, prompt), generator=torch.Generator().manual_seed(0))
    compat.generate(model, ids, torch.ones_like(ids), STEPS)
    crossed = time.process_time()
    millions = sum(one.numel() for one in model.parameters()) / 1e6
    return (
        f"{name:28} {compat.attention_backend(model):6} {built - start:5.2f} s {millions:6.1f} M "
        f"{prompt + 8:5} {crossed - built:6.2f} s {floor:6.0f} MB {peak_megabytes():6.0f} MB  {cut}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    parser.add_argument("--attn-implementation")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        try:
            print(measure(arguments.presets[0], arguments.attn_implementation))
        except DoctorError as error:
            print(f"{arguments.presets[0]:28} {error.message}")
        return
    print(f"{'preset':28} {'kernel':6} {'build':>7} {'size':>8} {'W':>5} {'crossing':>8} {'floor':>9} {'peak':>9}  cut")
    backend = ["--attn-implementation", arguments.attn_implementation] if arguments.attn_implementation else []
    for name in arguments.presets or presets.names():
        command = [sys.executable, __file__, "--here", name, *backend]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
