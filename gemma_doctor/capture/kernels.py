"""Which attention kernels really run, layer by layer, and how long they take.

A dispatch mode sees every operator that a call reaches, with the name of the kernel that torch chose. torch's profiler
names the same ones (a test compares the two), but writes to stderr at every start and stop (torch 2.13) and gives no
exact place for a call.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from gemma_doctor import compat
from gemma_doctor.capture import ledger
from gemma_doctor.capture.hooks import fed_columns, hooked
from gemma_doctor.capture.masks import readable
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.readout import KERNEL_ARGUMENTS, named_arguments
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import KernelProfile, KernelRun
from gemma_doctor.loading import Patient

# Part of an operator's name -> the kernel, as KernelRun.ran names it. The first one that fits.
OPERATORS = {
    "flash_attn": "flash_attn",  # the package of that name
    "flash_attention": "flash",
    "efficient_attention": "efficient",
    "cudnn_attention": "cudnn",
    "attention_math": "math",
    "attention_overrideable": "overrideable",  # that of another vendor's device
}
TORCH_KERNELS = ("flash", "efficient", "cudnn", "math", "overrideable")
EVERY_KERNEL = [kernel for name, kernel in SDPBackend.__members__.items() if name != "ERROR"]
PASS_NAME = "profiled"
BEYOND_EDGE = 8
REPETITIONS = 3


def kernel_profile(patient: Patient, passes: Passes) -> KernelProfile:
    """Profile one prefill that is longer than the window and one decode step of the reduced model.

    Which kernel runs does not depend on how far the window is crossed, and a short prefill is cheap. Times are the
    least of a few repetitions of the same call, not profiled, measured once for all layers that make it with the same
    shapes and mask.

    Raises:
        CouldNotLook: the attention function cannot be watched, or the pass or a repetition raised an exception.
    """
    model, limit = patient.reduced, passes.facts.loaded.max_positions or 0
    length = passes.edge + BEYOND_EDGE
    length = min(length, limit - 1) if limit > 1 else length
    ids = passes.text.exact(length)[None].to(patient.device)
    passes.progress(f"profiling the attention kernels: {length:,} tokens and a decode step")
    profiler = _Profiler(compat.attention_backend(model))
    try:
        with torch.inference_mode(), _profiling(model, profiler):
            if passes.facts.causal:
                compat.generate(model, ids, torch.ones_like(ids), 2)
            else:
                model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        ledger.count(2 if passes.facts.causal else 1, length + passes.facts.causal)
    except compat.CannotWatch as error:
        raise CouldNotLook(str(error)) from error
    except Exception as error:  # what the subject raises is no finding here: other passes meet it as well
        compat.forget_kept_cache(model)
        if is_ours(error):
            raise
        raise CouldNotLook(f"profiling ended in {type(error).__name__}: {in_one_line(error)}") from error
    return KernelProfile(profiler.asked, patient.device, PASS_NAME, tuple(profiler.runs))


def timing(profile: KernelProfile) -> list[dict[str, Any]]:
    """Measured times for the report's `timing`, one entry for all layers with the same ones. Seconds a call."""
    layers: dict[KernelRun, list[int]] = {}
    for run in profile.runs:
        layers.setdefault(replace(run, layer=0), []).append(run.layer)
    entries = [{"layers": those} | asdict(call) for call, those in layers.items()]
    for entry in entries:
        del entry["layer"]
    return entries


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees which operators a call reaches.

    Attributes:
        kernels: attention kernels among them, in order.
        softmax: a softmax of its own was among them: attention by hand.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[str] = []
        self.softmax = False

    def __torch_dispatch__(self, operator: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator is torch.ops.aten.scaled_dot_product_attention.default:
            # arrives whole in inference mode; what it is made of tells the kernel
            with self:
                return operator.decompose(*args, **(kwargs or {}))
        name = operator.name()
        self.softmax |= "softmax" in name
        kernel = next((kernel for part, kernel in OPERATORS.items() if part in name), None)
        if kernel is not None:
            self.kernels.append(kernel)
        return operator(*args, **(kwargs or {}))


class _Measured(NamedTuple):
    """Fields of a KernelRun that all layers with the same call share."""

    unrestricted: str
    seconds: float
    seconds_unrestricted: float | None
    seconds_without_mask: float | None
    without_mask: str


@dataclass
class _Profiler:
    """Profiles the attention calls of one generation by a model that is set to the implementation `asked`."""

    asked: str
    runs: list[KernelRun] = field(default_factory=list)
    _prefilled: bool = False
    _decode: bool = False
    # with their masks, which are held so that no address is used twice
    _measured: dict[tuple[Any, ...], tuple[_Measured, Any]] = field(default_factory=dict)

    def start_forward(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._decode, self._prefilled = self._prefilled and fed_columns(args, kwargs) == 1, True

    def watch(self, name: str, own: set[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A wrapper for the attention function `name` that profiles calls from the modules with ids in `own`."""

        def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                call = named_arguments(args, kwargs)
                if id(call.get("module")) not in own:
                    return kernel(*args, **kwargs)
                output, ran = _seen(name, lambda: kernel(*args, **kwargs))
                self._add(name, kernel, call, ran)
                return output

            return watched

        return wrap

    def _add(self, name: str, kernel: Callable[..., Any], call: dict[str, Any], ran: str) -> None:
        query, key, mask = call["query"], call["key"], call.get("attention_mask")
        same = (ran, self._decode, query.shape, key.shape, query.dtype, _handle(mask))
        if same not in self._measured:
            self._measured[same] = _measure(name, kernel, call, ran), mask
        self.runs.append(
            KernelRun(
                layer=int(call["module"].layer_idx),
                decode=self._decode,
                queries=int(query.shape[2]),
                keys=int(key.shape[2]),
                ran=ran,
                **self._measured[same][0]._asdict(),
            )
        )


def _handle(mask: Any) -> tuple[Any, ...]:
    """The same for the masks of one kind of layer: some releases hand every layer a view of its own."""
    return (mask.data_ptr(), mask.shape, mask.dtype) if isinstance(mask, torch.Tensor) else (id(mask),)


def _seen(name: str, call: Callable[[], Any]) -> tuple[Any, str]:
    """The output of a call of the attention function `name`, and the kernel that ran; that name if none was seen."""
    if name.startswith("flex"):  # under a dispatch mode it would not be compiled
        return call(), "flex"
    with _Operators() as seen:
        output = call()
    by_hand = "eager" if seen.softmax else "flash_attn" if name.startswith("flash_attention") else name
    return output, " + ".join(dict.fromkeys(seen.kernels)) or by_hand


def _measure(name: str, kernel: Callable[..., Any], call: dict[str, Any], ran: str) -> _Measured:
    """Make a call again: as it was, with every kernel allowed, and without its mask where that says the same."""

    def again(**changes: Any) -> Any:
        changed = {**call, **changes}
        by_position = [changed.pop(argument, None) for argument in KERNEL_ARGUMENTS]
        return kernel(*by_position, **changed)

    seconds = _least_seconds(again)
    if ran not in TORCH_KERNELS:
        return _Measured("", seconds, None, None, "")
    with sdpa_kernel(EVERY_KERNEL):
        _, unrestricted = _seen(name, again)
        seconds_unrestricted = _least_seconds(again) if unrestricted != ran else None
    without_mask, seconds_without_mask = "", None
    if call.get("attention_mask") is not None:
        unmasked = functools.partial(again, attention_mask=None, is_causal=call["query"].shape[2] > 1)
        _, without_mask = _seen(name, unmasked)
        seconds_without_mask = _least_seconds(unmasked) if _only_causal(call) else None
    return _Measured(unrestricted, seconds, seconds_unrestricted, seconds_without_mask, without_mask)


def _least_seconds(call: Callable[[], Any]) -> float:
    def once() -> float:
        started = time.perf_counter()
        call()[0].flatten()[0].item()  # one number of the output: waits for the device
        return time.perf_counter() - started

    return min(once() for _ in range(REPETITIONS))


def _only_causal(call: dict[str, Any]) -> bool:
    """The call has a mask, and it says no more than is_causal would."""
    mask, queries, keys = call.get("attention_mask"), call["query"].shape[2], call["key"].shape[2]
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or queries != keys or queries == 1:
        return False
    causal = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    return bool((readable(mask)[..., :keys] == causal).all())


@contextlib.contextmanager
def _profiling(model: Any, profiler: _Profiler) -> Iterator[None]:
    """Attach `profiler` to `model` for the duration of the block.

    Besides the attention function that is asked for the eager one is watched, in case that one runs instead.

    Raises:
        compat.CannotWatch: the attention function cannot be watched.
    """
    attention = attention_modules(model).values()
    own = {id(module) for module in attention}
    with contextlib.ExitStack() as stack:
        for module in sorted({type(module).__module__ for module in attention}):
            if profiler.asked != "eager":
                with contextlib.suppress(compat.CannotWatch):
                    watch = profiler.watch("eager", own)
                    stack.enter_context(compat.attention_function_wrapped(module, "eager", watch))
            watch = profiler.watch(profiler.asked, own)
            stack.enter_context(compat.attention_function_wrapped(module, profiler.asked, watch))
        stack.enter_context(hooked([text_decoder(model)], profiler.start_forward))
        yield
