"""cache-growth catches caches that keep too much, and passes what healthy ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gemma_doctor.checks.cache.cache_growth import LEAK, MORE, SHARING, cache_growth
from gemma_doctor.evidence import FULL, Pass, Trace
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.testing import kernel_call, one_pass, run_check, trace, with_forward

KEY = 100  # bytes of one key and value


def with_memory(one: Pass, behind: Sequence[int], layer: int = 0, **changes: bool | int) -> Pass:
    """`one`, with the bytes of its keys, and `behind` more per forward allocated for one layer."""
    forwards = []
    for forward, more in zip(one.forwards, behind, strict=True):
        cache = [
            replace(held, bytes=held.stored * KEY, allocated=held.stored * KEY + (more if held.layer == layer else 0))
            for held in forward.cache
        ]
        cache[layer] = replace(cache[layer], **changes)
        forwards.append(replace(forward, cache=tuple(cache)))
    return replace(one, forwards=tuple(forwards))


def sick(one: Pass) -> Trace:
    """A healthy pass and a sick one."""
    return trace(one_pass(), replace(one, name="sick"))


@pytest.mark.parametrize(
    ("prompt", "behind"),
    [
        (5, [0, 0, 0, KEY, KEY, KEY, KEY]),  # the first key is dropped, and stays behind until the next step
        (16, [9 * KEY, KEY, KEY, KEY, KEY, KEY, KEY]),  # after a long prompt: a view of all of it
        (5, [0, 0, KEY, 0, KEY, 0, 0]),  # given back
    ],
)
def test_healthy_views_pass(prompt: int, behind: list[int]) -> None:
    result = run_check(cache_growth, trace=trace(with_memory(one_pass(prompt), behind)))
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence == (
        "7 forwards x 2 cache layers: full layers +1 a token, sliding layers W-1 keys, nothing kept behind; "
        "0.0 MB at most"
    )


@pytest.mark.parametrize("layer", [0, 1])
def test_memory_that_grows_behind_the_keys_is_a_warning(layer: int) -> None:
    leaking = with_memory(one_pass(), [0, 0, 0, 0, KEY, 2 * KEY, 3 * KEY], layer)
    (finding,) = run_check(cache_growth, trace=sick(leaking)).findings
    assert (finding.title, finding.severity) == (LEAK, Severity.WARNING)
    assert (finding.where.layers, finding.where.passes) == ((layer,), ("sick",))
    assert finding.where.boundary == "first in pass 'sick', step 4, total length 9 (W+1)"
    assert finding.observed == "100 bytes more with a step, 300 after the last"


def test_slots_that_are_added_are_a_warning() -> None:
    growing = with_memory(one_pass(), [KEY * step for step in range(7)], static=True, stored=8)
    (finding,) = run_check(cache_growth, trace=sick(growing)).findings
    assert finding.title == LEAK


def test_slots_and_what_is_recorded_for_a_rollback_are_healthy() -> None:
    slots = with_memory(one_pass(), [0] * 7, static=True, stored=16, bytes=1600, allocated=1600)
    result = run_check(cache_growth, trace=trace(slots))
    assert result.findings == ()
    assert result.examined is not None and "a fixed number of slots" in result.examined.sentence
    recording = with_memory(one_pass(), [KEY * step for step in range(7)], recording=True, stored=12)
    assert run_check(cache_growth, trace=trace(recording)).findings == ()


@pytest.mark.parametrize(("layer", "due"), [(0, 7), (1, 11)])
def test_keys_that_no_query_can_read_are_a_warning(layer: int, due: int) -> None:
    one = one_pass()
    cache = list(one.forwards[6].cache)
    cache[layer] = replace(cache[layer], stored=due + 1)
    more = replace(one, forwards=(*one.forwards[:6], replace(one.forwards[6], cache=tuple(cache))))
    (finding,) = run_check(cache_growth, trace=sick(more)).findings
    assert (finding.title, finding.severity, finding.where.layers) == (MORE, Severity.WARNING, (layer,))
    assert (finding.observed, finding.expected) == (f"{due + 1} keys", f"{due} keys")


def test_kept_keys_that_are_read_are_left_to_the_mask() -> None:
    one = one_pass(12, 2)
    step = one.forwards[1]
    cache = (replace(step.cache[0], stored=13), *step.cache[1:])
    sees_all = kernel_call(0, None, 1, 1, 13, causal_when_none=False)
    read = with_forward(one, 1, cache=cache, calls=(sees_all, *step.calls[1:]))
    result = run_check(cache_growth, trace=sick(read))
    assert result.findings == ()
    assert result.examined is not None and "are read in 1 layer: see mask-pattern" in result.examined.sentence


def test_a_sharing_layer_stores_nothing() -> None:
    one = one_pass()
    (finding,) = run_check(cache_growth, trace=trace(one, shares_kv_with={1: 0})).findings
    assert (finding.title, finding.severity, finding.where.layers) == (SHARING, Severity.WARNING, (1,))
    own = [replace(forward, cache=forward.cache[:1]) for forward in one.forwards]
    shared = trace(replace(one, forwards=tuple(own)), shares_kv_with={1: 0})
    assert run_check(cache_growth, trace=shared).findings == ()


def test_without_a_window_every_layer_keeps_everything() -> None:
    one = one_pass(window=None, kinds=(FULL, FULL))
    assert run_check(cache_growth, trace=trace(one, layer_kinds={0: FULL, 1: FULL})).outcome is Outcome.PASS


def test_no_cache_is_not_applicable() -> None:
    one = one_pass(5, 0)
    uncached = replace(one, forwards=(replace(one.forwards[0], cache=()),))
    assert run_check(cache_growth, trace=trace(uncached)).outcome is Outcome.NOT_APPLICABLE
