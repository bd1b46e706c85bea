"""Routes, on a skeleton: healthy ones give the reference's logits; what is changed on purpose is seen and placed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gemma_doctor import compat
from gemma_doctor.capture import material
from gemma_doctor.capture.attempt import Attempt
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.hooks import fed_columns, hooked
from gemma_doctor.capture.lab import Lab
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.check import NotApplicable
from gemma_doctor.evidence import CHOICES, LOGITS, SCORE, RouteRun
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import FINDING_FLOORS
from gemma_doctor.routes import BY_NAME, DEPTHS, all_routes, included
from gemma_doctor.settings import Settings

# On a CPU, in this release, without further packages: what is not offered, and why.
NOT_OFFERED = {
    "flash-attention": "needs a GPU",
    "flex-attention": "needs a GPU",
    "offloaded-cache": "there is none",
    "quantised-cache": "installed",
}
# Dynamic caches that hold the whole prompt are fed all of it again, silently, in every release from 5.0 on.
SICK = {"full-cache"}


@pytest.fixture(scope="module")
def collectors() -> dict[str, Collector]:
    """One for all tests: each route is run once."""
    return {}


@pytest.fixture
def collector(patient_of: Callable[..., Patient], collectors: dict[str, Collector]) -> Collector:
    if not collectors:
        settings = Settings(subject="gemma-3-1b-it", weights="skeleton")
        collectors["one"] = Collector(patient_of("gemma-3-1b-it"), settings, lambda line: None)
    return collectors["one"]


@pytest.fixture
def lab(collector: Collector) -> Lab:
    return Lab(collector.patient, collector.passes, thorough=True)


@pytest.mark.parametrize("name", sorted(all_routes()))
def test_a_healthy_model(name: str, collector: Collector) -> None:
    try:
        run = collector.get(RouteRun, name)
    except NotApplicable as error:
        assert NOT_OFFERED[name] in str(error)
        return
    assert name not in NOT_OFFERED or torch.cuda.is_available()
    assert run.cases
    for case in run.cases:
        if name in SICK:
            continue
        assert case.crash is None
        assert case.finite
        assert len(case.positions) > 0
        assert not case.beyond(FINDING_FLOORS).any(), case.name
        assert not case.flips.any()
    if name in SICK:
        assert all(case.crash is None and case.beyond(FINDING_FLOORS).all() for case in run.cases)
        assert "plain generate()" in run.right


def test_what_is_compared_crosses_the_edge(collector: Collector) -> None:
    """Each route that takes the usual texts looks at predictions on both sides of the edge and beyond it."""
    edge = collector.passes.edge
    for name in ("cached", "uncached", "forward-loop", "own-cache", "static-cache", "crop", "assisted"):
        tokens = np.concatenate([case.positions for case in collector.get(RouteRun, name).cases])
        assert tokens.min() < edge, name
        assert edge in tokens, name
        assert tokens.max() >= edge + 32, name


def test_depths_include_each_other() -> None:
    quick, default, deep = (included(depth) for depth in DEPTHS)
    assert quick == {"cached", "second-turn", "left-padded"}
    named_only = {one.id for one in all_routes().values() if one.depth == BY_NAME}
    assert quick < default < deep
    assert deep | named_only == set(all_routes())
    assert not deep & named_only


# --- each kind of comparison -----------------------------------------------------------------------------------------


@pytest.fixture
def attempt(lab: Lab) -> Attempt:
    """One that is right: W-1 tokens, then three."""
    text = lab.text(lab.edge - 1, 3)
    assert text is not None
    return lab.generate(text)


def test_other_logits_are_seen(attempt: Attempt, collector: Collector) -> None:
    assert attempt.logits is not None
    logits = attempt.logits.clone()
    order = logits[1].argsort(descending=True)
    logits[1, order[5]] = logits[1, order[0]] + 1
    expected = float(logits[1, order[5]] - attempt.logits[1, order[5]])
    case = collector.routes.case(replace(attempt, logits=logits))
    where = collector.passes.edge - 1 + 1  # what came out at token W-1 predicts token W
    assert case.positions[case.beyond(FINDING_FLOORS)].tolist() == [where]
    assert case.positions[case.flips].tolist() == [where]
    assert case.worst == pytest.approx(expected, rel=1e-3)


def test_logits_that_are_not_finite_are_seen(attempt: Attempt, collector: Collector) -> None:
    assert attempt.logits is not None
    logits = attempt.logits.clone()
    logits[2, 7] = torch.nan
    case = collector.routes.case(replace(attempt, logits=logits))
    assert not case.finite
    assert case.beyond(FINDING_FLOORS).tolist() == [False, False, True]


def test_other_choices_are_seen(attempt: Attempt, collector: Collector) -> None:
    right = collector.routes.case(replace(attempt, logits=None, compared=CHOICES))
    assert not right.beyond(FINDING_FLOORS).any()
    assert attempt.logits is not None
    tokens = attempt.tokens.clone()
    tokens[-1] = attempt.logits[-1].argsort()[-9]
    case = collector.routes.case(replace(attempt, logits=None, compared=CHOICES, tokens=tokens))
    gap = float(attempt.logits[-1].max() - attempt.logits[-1][tokens[-1]])
    assert case.positions[case.flips].tolist() == [len(tokens) - 1]
    assert case.worst == pytest.approx(gap, rel=1e-3)


def test_another_score_is_seen(attempt: Attempt, collector: Collector) -> None:
    assert attempt.logits is not None
    chosen = attempt.tokens[attempt.first + 1 :]
    score = float(attempt.logits.log_softmax(dim=1).gather(1, chosen[:, None]).sum())
    made = replace(attempt, logits=None, compared=SCORE, score=score)
    assert not collector.routes.case(made).beyond(FINDING_FLOORS).any()
    case = collector.routes.case(replace(made, score=score - 0.5))
    assert case.beyond(FINDING_FLOORS).all()
    assert case.worst == pytest.approx(0.5, rel=1e-2)


# --- where it begins -------------------------------------------------------------------------------------------------


@contextmanager
def later_steps_changed(model: Any, index: int) -> Iterator[None]:
    """One layer puts out something else at its decode steps: at a total length that only a cache can know."""

    def change(_module: Any, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        if states.shape[1] > 1:
            return output
        return (states + 1, *output[1:]) if isinstance(output, tuple) else states + 1

    handle = text_decoder(model).layers[index].register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(("layer", "name"), [(1, "forward-loop"), (3, "own-cache"), (2, "static-cache")])
def test_the_first_layer_that_differs(layer: int, name: str, patient_of: Callable[..., Patient]) -> None:
    patient = patient_of("gemma-3-1b-it")
    fresh = Collector(patient, Settings(subject="gemma-3-1b-it", weights="skeleton"), lambda line: None)
    with later_steps_changed(patient.reduced, layer):
        run = fresh.get(RouteRun, name)
    first = run.cases[0]
    assert first.first_layer == layer
    assert first.first_layer_at == first.positions[0]  # the first token after the prompt
    assert "use_cache=False" in run.right


def test_streamed_tokens_that_are_not_the_returned_ones(lab: Lab, collector: Collector) -> None:
    text = lab.text(lab.edge - 1, 3)
    assert text is not None
    put = material.Streamer.put

    def lossy(self: material.Streamer, ids: torch.Tensor) -> None:
        put(self, ids if ids.numel() > 1 else (ids + 1) % 100)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(material.Streamer, "put", lossy)
        case = collector.routes.case(lab.streamed(text))
    assert case.crash is not None and "they are not the" in case.crash.message


# --- material --------------------------------------------------------------------------------------------------------


def test_half_precision_keeps_what_from_pretrained_keeps(lab: Lab) -> None:
    half = lab.in_dtype("bfloat16").model
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    frequencies = [buffer.dtype for name, buffer in half.named_buffers() if name.endswith("inv_freq")]
    assert frequencies
    assert set(frequencies) == {torch.float32}
    assert next(lab.model.parameters()).dtype is torch.float32


def test_the_drafter_errs_at_times_and_drafts_several(lab: Lab) -> None:
    before = lab.model.generation_config.num_assistant_tokens
    drafter, text = lab.drafter(), lab.text(lab.edge, 1)
    assert text is not None
    with torch.inference_mode():
        ours, theirs = (model(text.ids[None]).logits[0].argmax(dim=1) for model in (lab.model, drafter))
    right = float((ours == theirs).float().mean())
    assert 0.3 < right < 1.0
    assert drafter.generation_config.num_assistant_tokens == material.DRAFTED
    assert lab.model.generation_config.num_assistant_tokens == before


def test_a_mixture_of_experts_has_no_half_precision_route(patient_of: Callable[..., Patient]) -> None:
    made = Collector(patient_of("gpt-oss-20b"), Settings(subject="gpt-oss-20b", weights="skeleton"), lambda line: None)
    with pytest.raises(NotApplicable, match="experts"):
        made.get(RouteRun, "bfloat16")


def test_a_bidirectional_model_has_the_routes_that_do_not_generate(patient_of: Callable[..., Patient]) -> None:
    patient = patient_of("embeddinggemma-300m")
    made = Collector(patient, Settings(subject="embeddinggemma-300m", weights="skeleton"), lambda line: None)
    for one in all_routes().values():
        if one.generates:
            with pytest.raises(NotApplicable):
                made.get(RouteRun, one.id)
            continue
        run = made.get(RouteRun, one.id)
        assert not any(case.crash or case.beyond(FINDING_FLOORS).any() for case in run.cases), one.id


def test_the_library_prints_nothing(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("assisted", "prompt-lookup", "uncached-generate", "static-cache", "beams"):
        list(all_routes()[name].run(lab))
    assert capfd.readouterr().err == ""


def test_routes_import_no_torch() -> None:
    code = "import sys; from gemma_doctor.routes import all_routes; all_routes(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("preset", ["gemma-2b", "gemma-3-1b-it"])
def test_looked_up_tokens_are_verified_on_a_warm_cache_taken_and_rejected(
    patient_of: Callable[..., Patient], preset: str
) -> None:
    collector = Collector(patient_of(preset), Settings(subject=preset), lambda line: None)
    fed: list[int] = []
    with hooked(
        [text_decoder(collector.patient.reduced)], lambda module, args, kwargs: fed.append(fed_columns(args, kwargs))
    ):
        for attempt in all_routes()["prompt-lookup"].run(Lab(collector.patient, collector.passes, thorough=True)):
            steps, fed[:] = fed[1:], []
            assert any(step > 1 for step in steps)  # something was drafted after the prompt
            assert len(steps) < attempt.asked - 1  # and taken
            assert sum(steps) > attempt.asked - 1  # and rejected


def test_end_tokens_are_kept_out(lab: Lab) -> None:
    text = lab.text(lab.edge - 4, 8)
    assert text is not None
    for options in ({}, {"num_beams": 3}, {"assistant_model": lab.drafter()}):
        compared = LOGITS if not options else CHOICES
        attempt = lab.generate(text, compared=compared, **options)
        assert len(attempt.tokens) == text.prompt + text.new
        assert not set(attempt.tokens[text.prompt :].tolist()) & set(compat.end_tokens(lab.model))
