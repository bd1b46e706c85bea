"""The arithmetic of the cache: against figures worked out by hand, and against the caches of running skeletons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_healthy_matrix import NOT_DECODERS

from gemma_doctor import compat, presets, published
from gemma_doctor.budget import budget, memory
from gemma_doctor.checks.cache.kv_budget import MORE, TOO_LARGE, kv_budget
from gemma_doctor.evidence import FULL, SLIDING, Claim, ConfigFacts, DeviceMemory, Trace
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import ITEM_BYTES, KvLayer, kv_layers, size_in_words
from gemma_doctor.plan import class_facts
from gemma_doctor.testing import config, config_facts, model_facts, one_pass, run_check, trace

PatientOf = Callable[..., Patient]
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
PROMPT, NEW = 80, 4


def preset(name: str) -> ConfigFacts:
    return published.read(presets.load(name), f"preset {name}")


GENERATE = [name for name in presets.names() if name not in NOT_DECODERS and preset(name).causal]


# --- figures ---------------------------------------------------------------------------------------------------------


def test_gemma_3_1b_at_32k_by_hand() -> None:
    made = budget(preset("gemma-3-1b-it"), 32_768, batch=2)
    per_layer = 2 * 1 * 256 * 2
    assert [(kind.layer.kind, kind.layers, kind.keys) for kind in made.kinds] == [(SLIDING, 22, 512), (FULL, 4, 32_768)]
    assert made.bytes == 2 * per_layer * (22 * 512 + 4 * 32_768)
    assert made.bytes_without_window == 2 * per_layer * 26 * 32_768
    assert [kind.bytes_per_token for kind in made.kinds] == [22 * per_layer, 4 * per_layer]


def test_gemma_4_has_other_heads_in_full_layers_and_shares() -> None:
    assert set(kv_layers(preset("gemma-4-31B-it"))) == {KvLayer(SLIDING, 1024, 16, 256), KvLayer(FULL, None, 4, 512)}
    layers = kv_layers(preset("gemma-4-E2B-it"))
    assert [layer.shares for layer in layers] == [False] * 15 + [True] * 20
    assert budget(preset("gemma-4-E2B-it"), 100).kinds[-1].bytes == 0


@unhurried
@given(
    context=st.integers(1, 10**6),
    batch=st.integers(1, 64),
    dtype=st.sampled_from(sorted(ITEM_BYTES)),
    window=st.integers(1, 5000),
)
def test_a_window_never_costs_and_all_grows_in_proportion(context: int, batch: int, dtype: str, window: int) -> None:
    facts = config_facts(window=window)
    made = budget(facts, context, batch, dtype)
    assert made.bytes <= made.bytes_without_window
    assert (made.bytes == made.bytes_without_window) == (context <= window)
    assert made.bytes == batch * ITEM_BYTES[dtype] * budget(facts, context).bytes // 2
    assert made.bytes_without_window == context * batch * sum(kind.bytes_per_token for kind in made.kinds)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_kinds": None}, "no kind for each"),
        ({"layers": 3}, "no kind for each"),
        ({"layer_kinds": ("chunked_attention", FULL)}, "layers of kind chunked_attention"),
        ({"window": None}, "no usable window"),
        ({"window": Claim("sliding_window", -1)}, "no usable window"),
        ({"window": Claim("sliding_window", "wide")}, "no usable window"),
        ({"kv_heads": None}, "no usable num_key_value_heads"),
        ({"kv_heads": 0}, "no usable num_key_value_heads"),
        ({"raw": {"multi_query": True}}, "names multi_query"),
        ({"raw": {"multi_query": False}}, "names multi_query"),
        ({"raw": {"num_kv_heads": 8}}, "names num_kv_heads"),
        ({"raw": {"n_head_kv": 8}}, "names n_head_kv"),
        ({"raw": {"kv_n_heads": 8}}, "names kv_n_heads"),
        ({"raw": {"kv_channels": 128}}, "names kv_channels"),
        ({"head_dim": 0}, "no usable head_dim"),
        ({"raw": {"kv_lora_rank": 512}}, "latent attention"),
        ({"raw": {"num_kv_shared_layers": "all"}}, "num_kv_shared_layers"),
        ({"raw": {"num_kv_shared_layers": 2}}, "num_kv_shared_layers"),
        ({"raw": {"per_layer_config": [512]}}, "per_layer_config is no mapping"),
        ({"raw": {"per_layer_config": {"0": {"head_dim": "large"}}}}, "no usable head_dim"),
        ({"family": "gemma3n_text"}, "no num_kv_shared_layers"),
        ({"family": "gemma4_text", "raw": {"num_kv_shared_layers": 0}}, "no attention_k_eq_v"),
    ],
)
def test_what_is_not_named_is_not_guessed(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        budget(replace(config_facts(), **changes), 100)


@pytest.mark.parametrize(("context", "batch"), [(0, 1), (1, 0)])
def test_there_is_at_least_one_token(context: int, batch: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        budget(config_facts(), context, batch)


def test_a_window_that_is_switched_off_costs_as_none() -> None:
    off = replace(config_facts(), window_switch=Claim("use_sliding_window", False))
    assert budget(off, 100).bytes == budget(off, 100).bytes_without_window
    assert {layer.window for layer in kv_layers(replace(off, layer_kinds=None))} == {None}


@pytest.mark.parametrize(
    ("written", "size"),
    [
        *((written, 24 * 10**9) for written in ("24GB", "24G", "24gb", "24 g", " 24.0GB ", "24Gb", "24000MB")),
        *((written, 24 * 2**30) for written in ("24GiB", "24Gi", "24gib", "24 gI")),
        *(("0.5TB", 5 * 10**11), (".5GB", 5 * 10**8), ("512MB", 512 * 10**6), ("640kB", 640_000), ("640K", 640_000)),
        *(("22.5 GiB", 45 * 2**29), ("1TiB", 2**40), ("3Mi", 3 * 2**20), ("4KiB", 4096), ("1000B", 1000), ("1b", 1)),
    ],
)
def test_sizes_are_read(written: str, size: int) -> None:
    assert memory(written) == size


@pytest.mark.parametrize(
    "written",
    [
        *("", "24", "1000", "9" * 40, "-1GB", "lots", "GB", ".GB", "5.GB"),
        *("24 PB", "24iB", "24GBi", "1e3GB", "1,000GB"),
        *("\u0662GB", "24\u212a"),  # an Arabic two, the sign of Kelvin
    ],
)
def test_what_has_no_number_and_unit_is_refused_with_all_units(written: str) -> None:
    with pytest.raises(ValueError, match=r"it takes a number and a unit, such as 24GB: B, kB, MB, GB, TB .* GiB, TiB"):
        memory(written)


@pytest.mark.parametrize("written", ["0GB", "0.9B", "9000000000TB", "9" * 400 + "GB"])
def test_what_no_device_has_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="it takes 1 byte to 8 EiB"):
        memory(written)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (2_304, "2,304 bytes"),
        (7_864_320, "7.9 MB"),
        (82_400_000_000, "82.4 GB"),
        (10**15, "1,000.0 TB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_in_words(size) == words


# --- against running models ------------------------------------------------------------------------------------------


def held_bytes(model: Any) -> tuple[dict[int, int], int]:
    """Bytes of keys and values by layer after a generation, and the columns fed."""
    output = model.generate(
        torch.arange(10, 10 + PROMPT)[None],
        attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        use_cache=True,  # OLMo 3 publishes false
        return_dict_in_generate=True,
    )
    layers = compat.returned_cache(output).layers
    held = {
        index: layer.keys.nbytes + layer.values.nbytes for index, layer in enumerate(layers) if layer.keys is not None
    }
    return held, PROMPT + NEW - 1


@pytest.mark.parametrize("name", GENERATE)
def test_a_running_cache_takes_what_is_computed(patient_of: PatientOf, name: str) -> None:
    model = patient_of(name).reduced
    facts = class_facts(compat.text_config(model))
    held, total = held_bytes(model)
    for index, layer in enumerate(kv_layers(facts)):
        kept = max(layer.keys(total + 1) - 1, 0)  # the token that comes brings its own
        assert held.get(index, 0) == kept * layer.token_bytes("float32"), (index, layer)


@pytest.mark.parametrize("name", ["gemma-3-1b-it", "gemma-4-E2B-it", "gemma-4-31B-it", "gemma-3n-E4B-it"])
def test_the_published_file_and_the_class_say_the_same(name: str) -> None:
    text = published.text_part(presets.load(name))[0]
    assert kv_layers(class_facts(compat.new_text_config(text["model_type"], text))) == kv_layers(preset(name))


@pytest.mark.parametrize("family", ["falcon", "gpt_bigcode", "gpt_neox", "opt"])
def test_a_class_without_key_value_heads_is_not_taken_to_have_one_per_query_head(family: str) -> None:
    """Even if the file names some: the class does not read them."""
    config = compat.new_text_config(family, {"num_key_value_heads": 8, "num_hidden_layers": 2})
    assert class_facts(config).kv_heads is None
    with pytest.raises(ValueError):
        kv_layers(class_facts(config))


@pytest.mark.parametrize(
    ("family", "named", "kv_heads"),
    [
        ("llama", {}, 8),
        ("llama", {"num_key_value_heads": None}, 8),
        ("llama", {"num_key_value_heads": 0}, 0),
        ("mistral", {"num_key_value_heads": 2}, 2),
    ],
)
def test_a_class_with_key_value_heads_has_all_where_it_names_none(
    family: str, named: dict[str, Any], kv_heads: int
) -> None:
    config = compat.new_text_config(family, {"num_attention_heads": 8, "num_hidden_layers": 2, **named})
    assert class_facts(config).kv_heads == kv_heads


# --- the check -------------------------------------------------------------------------------------------------------

ROOM = DeviceMemory("cpu", 24 * 10**9, None)


def sized(one: Trace, factor: float = 1) -> Trace:
    """The caches of a trace of `testing.trace` take `factor` times what 1 key head of 8 float32 numbers takes."""
    passes = []
    for each in one.passes:
        forwards = [
            replace(
                forward,
                cache=tuple(
                    replace(layer, bytes=int(factor * 2 * 1 * 8 * 4 * len(forward.real) * layer.stored))
                    for layer in forward.cache
                ),
            )
            for forward in each.forwards
        ]
        passes.append(replace(each, forwards=tuple(forwards)))
    return replace(one, passes=tuple(passes))


def examined(one: Trace, **evidence: Any) -> CheckResult:
    return run_check(kv_budget, **{"trace": one, "facts": model_facts(), "config": config(), "memory": ROOM} | evidence)


def test_a_healthy_cache_passes() -> None:
    result = examined(sized(trace()))
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    said = "14 cache layers: 64 bytes per key as computed; at 64 tokens 4,608 bytes in float32 of 24.0 GB (cpu)"
    assert result.examined.sentence == said


def test_rows_of_a_batch_count() -> None:
    assert examined(sized(trace(one_pass(np.ones((3, 5), bool))))).outcome is Outcome.PASS


@pytest.mark.parametrize(("factor", "like"), [(2, "as float64 or one copy per query head would"), (1.5, "needed")])
def test_more_bytes_are_a_warning(factor: float, like: str) -> None:
    result = examined(sized(trace(), factor))
    (finding,) = result.findings
    assert (finding.title, finding.severity) == (MORE, Severity.WARNING)
    assert finding.observed.startswith(
        f"{64 * factor:.0f} bytes per key and row in layer 0, {factor:g} x what is needed"
    )
    assert finding.observed.endswith(like)
    assert finding.expected == "64 bytes: 2 x 1 x 8 numbers in float32"
    assert finding.where.layers == (0, 1)
    assert finding.where.boundary == "first in pass 'prompt W-3', step 0, total length 5 (W-3)"


def test_fewer_bytes_are_said() -> None:
    result = examined(sized(trace(), 0.5))
    assert result.outcome is Outcome.PASS
    assert result.examined is not None
    assert "64 bytes per key, in places 0.5 x of it;" in result.examined.sentence


def test_a_context_that_does_not_fit_beside_real_weights_is_a_note() -> None:
    small = DeviceMemory("cuda:0", 10_000, 6_000)
    result = examined(sized(trace()), memory=small)
    (finding,) = result.findings
    assert (result.outcome, finding.title, finding.severity) == (Outcome.PASS, TOO_LARGE, Severity.NOTE)
    assert finding.observed == "4,608 bytes for 64 tokens, beside 6,000 bytes of weights"
    assert finding.expected == "at most 10,000 bytes together, on cuda:0"
    assert examined(sized(trace()), memory=replace(small, weights=None)).findings == ()
    assert examined(sized(trace()), memory=replace(small, weights=5_000)).findings == ()


def test_without_memory_or_a_complete_file_less_is_said() -> None:
    alone = examined(sized(trace()), memory=None)
    assert alone.examined is not None
    assert alone.examined.sentence.endswith("; at 64 tokens 4,608 bytes in float32")
    sparse = examined(sized(trace()), config=config(config_facts(layer_kinds=None)))
    assert sparse.examined is not None
    assert sparse.examined.sentence == "14 cache layers: 64 bytes per key as computed"


def test_what_cannot_be_looked_at_is_no_pass() -> None:
    assert examined(trace()).outcome is Outcome.NOT_APPLICABLE
    latent = examined(sized(trace()), facts=model_facts(config_facts(raw={"kv_lora_rank": 512})))
    assert (latent.outcome, "latent attention (kv_lora_rank)" in latent.reason) == (Outcome.SKIPPED, True)
