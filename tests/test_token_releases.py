"""Older releases are patients: what they make of the tokenizer in the packaged GGUF file of Gemma 3 270M.

5.12 and 5.16 lose BOS and nearly all merges, 4.57 the merges; 5.24 neither. The overlays are built by a script that is
not part of this repository: TRANSFORMERS_OVERLAY names it.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from gemma_doctor import demo
from tests.test_releases import OVERLAY, run_in

CHECKS = "bos-token,pad-token,tokenizer-integrity,truncation,stop-tokens"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not OVERLAY, reason="TRANSFORMERS_OVERLAY names no script that builds overlays of releases"),
    pytest.mark.skipif(not demo.installed(), reason="needs the demo extra: pip install 'gemma-doctor[demo]'"),
]


# Each reads and dequantises the file once more: CI takes the sickest.
CAUSES = {
    "5.12.0": {"bos-token", "tokenizer-integrity"},
    "5.16.1": {"bos-token", "tokenizer-integrity"},
    "4.57.6": {"tokenizer-integrity"},
    "5.24.0": set[str](),
}
RELEASES = CAUSES if "GEMMA_DOCTOR_WHOLE_MATRIX" in os.environ else ("5.12.0",)


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_makes_of_the_packaged_tokenizer(release: str) -> None:
    causes = CAUSES[release]
    done = run_in(
        release, "-m", "gemma_doctor", "check", "--select", CHECKS, "--weights", "real", "--format", "json", "-q"
    )
    assert done.returncode == bool(causes), done.stderr
    report = json.loads(done.stdout)
    assert report["environment"]["transformers"] == release
    found = [one for result in report["results"] for one in result["findings"] if one["severity"] != "note"]
    assert {one["check"] for one in found} == causes
    said = {one["check"]: one["effect"] for one in found if one["effect"]}
    assert said.keys() == causes
    if "bos-token" in said:
        cost = re.match(r"\+([\d.]+) nats per token", said["bos-token"])
        assert cost is not None
        assert float(cost[1]) > 0.3
    if "tokenizer-integrity" in said:
        numbers = re.match(r"([\d.]+) nats per character against ([\d.]+) in whole words", said["tokenizer-integrity"])
        assert numbers is not None
        assert float(numbers[1]) > 1.5 * float(numbers[2])
