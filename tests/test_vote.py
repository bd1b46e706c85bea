"""Which routes are looked at, what may explain what, and which side is wrong where a route leaves the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import torch

from gemma_doctor import registry, routes
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.check import needs_of
from gemma_doctor.diagnosis import chosen_checks, diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import RouteRun, Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings

PatientOf = Callable[..., Patient]


def ids_of(settings: Settings) -> set[str]:
    return {one.id for one in chosen_checks(settings)}


def test_a_route_is_named_by_its_annotation() -> None:
    def example(route: Annotated[RouteRun, "crop"]) -> Iterator[Finding | Examined]:
        yield Examined(len(route.cases), "")

    (need,) = needs_of(example)
    assert (need.type, need.of) == (RouteRun, "crop")


def test_a_route_without_a_name_and_a_name_without_a_route_are_refused() -> None:
    def nameless(route: RouteRun) -> Iterator[Finding | Examined]:
        yield Examined(len(route.cases), "")

    def named(trace: Annotated[Trace, "crop"]) -> Iterator[Finding | Examined]:
        yield Examined(len(trace.passes), "")

    for function in (nameless, named):
        with pytest.raises(TypeError, match="names its route"):
            needs_of(function)


def test_every_route_has_its_check_and_every_check_its_route() -> None:
    wanted = [(one.id, name) for one in registry.built_in() for name in one.routes]
    parity = [name for check, name in wanted if check.endswith("-parity")]
    assert sorted(parity) == sorted(routes.all_routes())
    assert [pair for pair in wanted if not pair[0].endswith("-parity")] == [("recompilation", "compiled")]


def test_deep_looks_at_all_routes_but_those_that_must_be_named() -> None:
    looked_at = {name for one in chosen_checks(Settings(depth="deep")) for name in one.routes}
    named = {one.id for one in routes.all_routes().values() if one.depth == routes.BY_NAME}
    assert looked_at == set(routes.all_routes()) - named
    assert "full-cache-parity" in ids_of(Settings(routes=("full-cache",)))


def test_the_depth_decides_what_is_looked_at() -> None:
    quick, usual, deep = (ids_of(Settings(depth=depth)) for depth in routes.DEPTHS)
    assert quick < usual < deep
    assert {"cache-parity", "second-turn-parity", "left-padded-parity"} <= quick
    assert "assisted-parity" in usual - quick


def test_a_route_in_use_is_looked_at_at_any_depth() -> None:
    assert "assisted-parity" in ids_of(Settings(depth="quick", routes=("assisted",)))
    assert "cache-parity" not in ids_of(Settings(depth="quick", routes=("assisted",)))
    assert "cache-parity" in ids_of(Settings(routes=("assisted",)))
    assert ids_of(Settings(depth="quick", select=("assisted-parity",))) == {"assisted-parity"}


def test_a_group_selects_no_more_than_the_depth_includes() -> None:
    assert "assisted-parity" not in ids_of(Settings(depth="quick", select=("cache",)))


def test_what_is_in_use() -> None:
    assert routes.declared((), "default") == {"cached", "second-turn", "left-padded"}
    assert routes.declared(("crop",), "default") == {"crop"}
    assert routes.declared((), "deep") == routes.included("deep")
    assert routes.declared(("full-cache",), "deep") == routes.included("deep") | {"full-cache"}
    with pytest.raises(DoctorError, match="no route 'corp'; did you mean crop"):
        routes.declared(("corp",), "default")


def test_a_route_of_its_own_explains_nothing_and_is_explained_by_any() -> None:
    own, recorded = Location(route="crop"), Location(layers=(1,), passes=("long generate",))
    assert recorded.can_explain(own)
    assert not own.can_explain(recorded)
    assert not own.can_explain(Location(route="beams"))
    assert Location(passes=("long generate",), route="cached").can_explain(recorded)


# --- on a running model ----------------------------------------------------------------------------------------------


def findings_with(patient: Patient, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> list[Finding]:
    monkeypatch.setattr("gemma_doctor.loading.admit", lambda *_: patient)
    return list(diagnose(settings, lambda line: None).findings)


def test_the_reference_votes_where_it_is_well(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode steps whose states are scaled in the last layer: nothing but the logits shows it."""
    patient = patient_of("gemma-3-1b-it")

    def scale(_module: Any, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        if states.shape[1] == 1:
            states.add_(states.roll(1, dims=-1))
        return output

    handle = text_decoder(patient.reduced).layers[-1].register_forward_hook(scale)
    try:
        found = findings_with(
            patient, monkeypatch, Settings(depth="quick", weights="skeleton", subject="gemma-3-1b-it")
        )
    finally:
        handle.remove()
    parity = next(one for one in found if one.check == "cache-parity")
    last = len(text_decoder(patient.reduced).layers) - 1
    assert parity.severity is Severity.ERROR
    assert not parity.follows_from
    assert parity.wrong_side.startswith("this route: the reference passes sliding-window")
    assert f"layer {last} is the first to differ" in parity.where.boundary
    assert parity.meanwhile == "use_cache=False is right (measured)"


def test_a_sick_reference_does_not_vote(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that count from 5 on in whole texts, and rightly at decode steps."""
    patient = patient_of("gemma-3-1b-it")

    def shift(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        positions = kwargs.get("position_ids")
        if positions is not None and positions.shape[1] > 1:
            kwargs["position_ids"] = positions * 2
        return args, kwargs

    rotary = [module for module in text_decoder(patient.reduced).modules() if "Rotary" in type(module).__name__]

    def shift_rotary(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = tuple(
            value * 2 if isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] > 1 else value
            for value in args
        )
        return shift(_module, args, kwargs)

    with hooked(rotary, shift_rotary):
        found = findings_with(
            patient, monkeypatch, Settings(depth="quick", weights="skeleton", subject="gemma-3-1b-it")
        )
    parity = next(one for one in found if one.check == "cache-parity")
    assert parity.wrong_side == "undecided: the reference is sick as well (position-ids)"
    assert parity.follows_from == "position-ids"


def test_a_cause_says_how_far_it_reaches_the_output(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cause that measures no logits gets the effect, and what is right meanwhile, from the route that follows."""
    patient = patient_of("gemma-3-1b-it")
    module = next(iter(attention_modules(patient.reduced).values()))

    def later(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.shape[2] == 1:
            mask = mask.clone()
            mask[..., :3] = False
            kwargs["attention_mask"] = mask
        return args, kwargs

    with hooked([module], later):
        found = findings_with(
            patient, monkeypatch, Settings(depth="quick", weights="skeleton", subject="gemma-3-1b-it")
        )
    cause = next(one for one in found if one.severity is Severity.ERROR and not one.follows_from)
    assert cause.check == "mask-pattern"
    assert cause.effect.startswith("off by ")
