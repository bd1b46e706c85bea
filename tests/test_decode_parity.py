"""decode-parity compares what tokens read at their decode steps and in one forward: made by hand, and in skeletons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.checks.cache.decode_parity import AGREES, decode_parity
from gemma_doctor.evidence import Pass, frozen
from gemma_doctor.finding import CheckResult, Outcome
from gemma_doctor.testing import one_pass, run_check, trace, with_call, with_output, with_weight

# the tokens of the second, 10 of the prompt and 4 after it, are those of the first
SCORED, PROMPT = one_pass(14, 0, name="scored 2W", same_tokens_as="prompt 2W"), one_pass(10, 4, name="prompt 2W")


def examined(*passes: Pass, **changes: Any) -> CheckResult:
    return run_check(decode_parity, trace=trace(*passes, **changes))


def test_the_same_on_both_routes() -> None:
    result = examined(PROMPT, SCORED, one_pass(5, 4, name="prompt W-3"))
    assert result.outcome is Outcome.PASS
    assert result.examined is not None
    assert result.examined.sentence == "8 rows in 2 layers, decode step against one forward: they agree to 0e+00"


@pytest.mark.parametrize(("one", "step", "row"), [(PROMPT, 2, 0), (SCORED, 0, 11)])
def test_routes_that_disagree(one: Pass, step: int, row: int) -> None:
    odd = with_weight(one, step, 0, (0, 1, row, -1 if one is PROMPT else 11), 0.125 - 2 * AGREES)
    (finding,) = examined(*(odd if other is one else other for other in (PROMPT, SCORED))).findings
    assert finding.where.layers == ()
    assert finding.where.passes == ("prompt 2W", "scored 2W")
    assert finding.where.boundary == "first in layer 0, row 11; 1 layer in all"
    assert finding.observed == "weights differ by up to 0.002 there"


def test_the_first_row_is_named_and_not_the_worst() -> None:
    odd = with_weight(with_weight(PROMPT, 2, 0, (0, 0, 0, -1), 0.1), 3, 0, (0, 0, 0, -1), 0.2)
    (finding,) = examined(odd, SCORED).findings
    assert finding.where.boundary == "first in layer 0, row 11; 1 layer in all"
    assert finding.observed == "weights differ by up to 0.075 there"


def test_other_values_behind_the_same_keys() -> None:
    """Weights agree; what comes out of them does not."""
    (finding,) = examined(with_output(PROMPT, 4, 1, (0, 0, 3), 1.5), SCORED).findings
    assert finding.where.boundary == "first in layer 1, row 13; 1 layer in all"
    assert finding.observed == "the same weights, and outputs that differ by 0.5 of the largest: other values"


def test_the_same_tokens_at_other_places_agree() -> None:
    """A cache may hold its keys in any order."""
    call = PROMPT.forwards[2].calls[0]
    held = np.roll(np.arange(4, 12), 3)
    assert call.reading is not None and call.mask is not None
    turned = replace(call.reading, weights=frozen(np.roll(call.reading.weights, 3, axis=-1)))
    odd = with_call(PROMPT, 2, 0, key_positions=frozen(held[None]), reading=turned)
    assert examined(odd, SCORED).outcome is Outcome.PASS


def test_where_nothing_can_be_compared() -> None:
    odd = PROMPT
    for step, forward in enumerate(odd.forwards):
        for call in forward.calls:
            odd = with_call(odd, step, call.layer, query_dtype="bfloat16")
    assert examined(odd, SCORED).outcome is Outcome.SKIPPED
    assert examined(PROMPT, SCORED, unreadable="no compiler").reason == "no compiler"
    assert examined(PROMPT).outcome is Outcome.SKIPPED  # there are decode steps, and nothing to hold them against
    assert examined(SCORED).outcome is Outcome.NOT_APPLICABLE
    assert examined(PROMPT, SCORED, causal=False).outcome is Outcome.NOT_APPLICABLE
