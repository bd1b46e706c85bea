"""Which kernel ran: the check on profiles made by hand, and the profile against torch's own profiler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.kernels import kernel_profile, timing
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.check import CouldNotLook
from gemma_doctor.checks.mask.attention_backend import FORCED, OTHER, UNEQUAL, attention_backend
from gemma_doctor.evidence import SLIDING, KernelProfile, KernelRun
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings
from gemma_doctor.testing import config_facts, model_facts, run_check

PatientOf = Callable[..., Patient]
FACTS = model_facts(config_facts(kinds=(SLIDING, SLIDING, SLIDING)))
LOADED = Settings(weights="skeleton")


def run(layer: int = 0, ran: str = "flash", decode: bool = False, **changes: Any) -> KernelRun:
    fields: dict[str, Any] = {
        "queries": 1 if decode else 16,
        "keys": 16,
        "unrestricted": "" if ran == "eager" else "flash",
        "seconds": 0.2,
        "seconds_unrestricted": None,
        "seconds_without_mask": None,
    }
    return KernelRun(layer=layer, decode=decode, ran=ran, **(fields | changes))


def profile(*runs: KernelRun, asked: str = "sdpa") -> KernelProfile:
    return KernelProfile(asked, "cpu", "profiled", runs)


def profile_of(patient: Patient) -> KernelProfile:
    return kernel_profile(patient, Collector(patient, LOADED, lambda line: None).passes)


# --- the check -------------------------------------------------------------------------------------------------------


def test_a_healthy_profile_passes() -> None:
    calls = profile(*(run(layer, decode=decode) for decode in (False, True) for layer in range(3)))
    result = run_check(attention_backend, profile=calls, facts=FACTS)
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None and result.examined.count == 6
    assert result.examined.sentence == (
        "sdpa on cpu: flash in 3 layers, prefill and decode step; the same with every kernel allowed"
    )


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        ("eager", "eager"),
        ("flash_attention_2", "flash_attn"),
        ("flex_attention", "flex"),
        ("somebody's own", "eager"),
        ("sdpa", "sdpa"),  # a kernel that was not seen
    ],
)
def test_what_was_asked_for_ran(asked: str, ran: str) -> None:
    result = run_check(attention_backend, profile=profile(run(ran=ran, unrestricted=""), asked=asked), facts=FACTS)
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence == f"{asked} on cpu: {ran} in 1 layer, prefill"


def test_the_math_kernel_where_a_fused_one_could_run() -> None:
    (finding,) = run_check(attention_backend, profile=profile(run(1, "math"), run(2, "math")), facts=FACTS).findings
    assert (finding.title, finding.severity) == (FORCED, Severity.WARNING)
    assert (finding.where.layers, finding.where.passes) == ((1, 2), ("profiled",))
    assert finding.observed == "math, for 16 x 16 scores a head"
    assert finding.expected.startswith("flash: ")


def test_the_math_kernel_where_torch_has_no_other_is_said() -> None:
    result = run_check(attention_backend, profile=profile(run(ran="math", unrestricted="math")), facts=FACTS)
    assert result.findings == ()
    assert result.examined is not None and "math in 1 layer" in result.examined.sentence


@pytest.mark.parametrize(("asked", "ran"), [("sdpa", "eager"), ("flex_attention", "eager"), ("eager", "flash")])
def test_another_implementation_than_the_one_asked_for(asked: str, ran: str) -> None:
    (finding,) = run_check(attention_backend, profile=profile(run(ran=ran), asked=asked), facts=FACTS).findings
    assert (finding.title, finding.severity) == (OTHER, Severity.WARNING)
    assert finding.expected.startswith(asked)


def test_one_layer_that_differs_from_those_of_its_kind() -> None:
    runs = [run(0), run(1, "efficient", unrestricted="efficient"), run(2)]
    (finding,) = run_check(attention_backend, profile=profile(*runs), facts=FACTS).findings
    assert (finding.title, finding.where.layers) == (UNEQUAL, (1,))
    assert finding.expected == "flash, as in 2 layers of the same kind"
    assert finding.where.boundary == "first in pass 'profiled', prefill, layer 1"


def test_layers_of_two_kinds_and_calls_of_other_lengths_may_differ() -> None:
    kinds = model_facts()  # one sliding, one full layer
    masked = run(0, "efficient", unrestricted="efficient")
    calls = profile(masked, run(1), run(0, decode=True), run(0, keys=32))
    result = run_check(attention_backend, profile=calls, facts=kinds)
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence.startswith("sdpa on cpu: efficient in 1 layer, flash in 2 layers, prefill; ")


def test_another_fused_kernel_is_said() -> None:
    result = run_check(attention_backend, profile=profile(run(unrestricted="cudnn")), facts=FACTS)
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence.endswith("; with every kernel allowed cudnn for flash")


def test_a_mask_that_forces_another_kernel_is_said() -> None:
    masked = [run(layer, "efficient", unrestricted="efficient", without_mask="flash") for layer in range(3)]
    result = run_check(attention_backend, profile=profile(*masked), facts=FACTS)
    assert result.findings == ()
    assert result.examined is not None
    forced = "in 3 calls the mask that is passed takes efficient where flash would run without it"
    assert result.examined.sentence.endswith(f"; {forced}")


def test_no_attention_call_proves_nothing() -> None:
    result = run_check(attention_backend, profile=profile(), facts=FACTS)
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "profiling showed no attention call")


def test_the_check_says_no_measured_time() -> None:
    def said(seconds: float) -> Any:
        runs = [run(0, "math", seconds=seconds, seconds_unrestricted=seconds / 3), run(1)]
        return run_check(attention_backend, profile=profile(*runs), facts=FACTS)

    assert said(0.25) == said(0.75)


# --- the profile -----------------------------------------------------------------------------------------------------


def by_torch_profiler(patient: Patient) -> set[str]:
    """Attention operators that torch's profiler sees in one prefill."""
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        patient.reduced(torch.arange(10, 82)[None])
    return {event.name for event in seen.events() if event.name.startswith("aten::_scaled_dot_product")}


@pytest.mark.parametrize(
    ("allowed", "operator", "kernel"),
    [
        (SDPBackend.FLASH_ATTENTION, "aten::_scaled_dot_product_flash_attention_for_cpu", "flash"),
        (SDPBackend.MATH, "aten::_scaled_dot_product_attention_math", "math"),
    ],
)
def test_the_profile_names_the_kernel_that_torchs_profiler_names(
    patient_of: PatientOf, allowed: SDPBackend, operator: str, kernel: str
) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")
    with sdpa_kernel(allowed):
        profiled = profile_of(patient)
        assert by_torch_profiler(patient) == {operator}
    assert [call.layer for call in profiled.runs] == [*range(6), *range(6)]
    assert [call.decode for call in profiled.runs] == [False] * 6 + [True] * 6
    assert {call.ran for call in profiled.runs} == {kernel}
    assert {call.unrestricted for call in profiled.runs} == {"flash"}
    assert all((call.seconds_unrestricted is None) == (kernel == "flash") for call in profiled.runs)
    assert all(call.seconds > 0 for call in profiled.runs)


def test_eager_has_no_kernel_of_torchs(patient_of: PatientOf) -> None:
    profiled = profile_of(patient_of("gemma-3-1b-it", "eager"))
    assert {(call.ran, call.unrestricted) for call in profiled.runs} == {("eager", "")}


def test_a_layer_that_is_eager_by_itself_is_seen(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")
    layer = attention_modules(patient.reduced)[2]
    monkeypatch.setattr(layer, "config", copy.deepcopy(layer.config))
    layer.config._attn_implementation = "eager"
    result = run_check(attention_backend, profile=profile_of(patient), facts=FACTS)
    (finding,) = result.findings
    assert (finding.title, finding.where.layers) == (OTHER, (2,))


def test_a_mask_that_says_no_more_than_is_causal_is_timed_without(patient_of: PatientOf) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")

    def spell_out(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        columns = kwargs["hidden_states"].shape[1] if "hidden_states" in kwargs else args[0].shape[1]
        if kwargs["attention_mask"] is None and columns > 1:
            kwargs["attention_mask"] = torch.ones(columns, columns, dtype=torch.bool).tril()[None, None]
        return args, kwargs

    with hooked(attention_modules(patient.reduced).values(), spell_out):
        runs = profile_of(patient).runs
    assert {(call.layer, call.decode) for call in runs if call.without_mask == "flash"} >= {(0, False), (5, False)}
    # the sliding layers' masks say more, and no mask is passed for a single query
    assert [(call.layer, call.decode) for call in runs if call.seconds_without_mask is not None] == [(5, False)]


def test_the_patient_is_as_it_was(patient_of: PatientOf) -> None:
    patient, ids = patient_of("gemma-3-1b-it", "sdpa"), torch.arange(10, 90)[None]
    with torch.inference_mode():
        before = patient.reduced(ids).logits
        profile_of(patient)
        assert torch.equal(patient.reduced(ids).logits, before)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_an_exception_is_no_finding(patient_of: PatientOf) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")

    def break_down(_module: Any, _args: Any, _kwargs: Any) -> None:
        raise RuntimeError("no such kernel")

    with (
        hooked(attention_modules(patient.reduced).values(), break_down),
        pytest.raises(CouldNotLook, match="RuntimeError: no such kernel"),
    ):
        profile_of(patient)


def test_times_are_for_all_layers_that_make_the_same_call() -> None:
    calls = profile(run(0), run(1), run(2, seconds=0.5), run(0, decode=True))
    assert [(entry["layers"], entry["decode"], entry["seconds"]) for entry in timing(calls)] == [
        ([0, 1], False, 0.2),
        ([2], False, 0.5),
        ([0], True, 0.2),
    ]
