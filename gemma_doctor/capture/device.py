"""The memory of the device that a model runs on, or would run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import DeviceMemory
from gemma_doctor.loading import Patient

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container; version 2
NVIDIA_SMI = ("--query-gpu=memory.total", "--format=csv,noheader,nounits", "--id=0")
MIB = 2**20


def device_memory(patient: Patient) -> DeviceMemory:
    """Memory of the device that the patient's model lies on, and what its weights take of it.

    Raises:
        CouldNotLook: nothing on this machine says how much there is.
    """
    weights = None
    if patient.subject.weights == "real":
        weights = sum(weight.nbytes for weight in patient.model.parameters())
    return DeviceMemory(patient.device, _total(patient.device), weights)


def this_machine() -> DeviceMemory:
    """Memory of the device that a run would choose by itself: the first NVIDIA GPU, else RAM. Imports no torch.

    Raises:
        CouldNotLook: nothing on this machine says how much there is.
    """
    gpu = _first_gpu()
    return DeviceMemory("cuda:0", gpu, None) if gpu is not None else DeviceMemory("cpu", _ram(), None)


def _total(device: str) -> int:
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if kind == "mps":
        return int(torch.mps.recommended_max_memory())
    return _ram()


def _first_gpu() -> int | None:
    """What the driver's own tool says; None without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        said = subprocess.run([tool, *NVIDIA_SMI], capture_output=True, text=True, timeout=10, check=True).stdout
        return int(said.strip()) * MIB
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _ram() -> int:
    """Of the machine, or what its container is allowed of it."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        raise CouldNotLook("this system does not say how much memory it has") from None
    try:
        return min(total, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return total


def peak_memory_mb(device: str) -> float | None:
    """Peak memory so far: of the GPU if the model is there, else of the process; None where nobody counts it."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
