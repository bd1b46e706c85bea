"""The oracle against its own laws, against torch, and against the frequencies that the library computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gemma_doctor import compat, oracle
from gemma_doctor.evidence import RopeClaim

THETAS = st.floats(1e3, 1e7)
HEAD_DIMS = st.sampled_from([16, 64, 96, 128, 256])


def table(rule: oracle.Rule, columns: int) -> np.ndarray:
    return rule(np.arange(columns)[:, None], np.arange(columns)[None, :])


@given(window=st.integers(1, 40), columns=st.integers(1, 40))
def test_a_sliding_query_reads_itself_and_the_window_minus_one_before_it(window: int, columns: int) -> None:
    read = table(oracle.sliding(window), columns)
    assert (read.sum(axis=1) == np.minimum(np.arange(columns) + 1, window)).all()
    assert np.diagonal(read).all()
    assert not np.triu(read, 1).any()


def test_rules_combine_cell_by_cell() -> None:
    near = oracle.Rule(lambda query, key: query - key < 3)
    assert (table(near & oracle.causal, 9) == table(oracle.sliding(3), 9)).all()
    assert (table(near & oracle.causal, 9) == (table(near, 9) & table(oracle.causal, 9))).all()


def test_pads_are_read_by_nobody_and_batches_come_first() -> None:
    real = np.array([[False, False, True, True], [True, True, True, True]])
    read = table(oracle.causal & oracle.real_keys(real), 4)
    assert read.shape == (2, 4, 4)
    assert not read[0, :, :2].any()
    assert (read[1] == table(oracle.causal, 4)).all()


@given(window=st.integers(1, 9), real=st.lists(st.booleans(), min_size=1, max_size=12))
def test_numpy_and_torch_share_the_rules(window: int, real: list[bool]) -> None:
    row, columns = np.array([real]), np.arange(len(real))
    by_numpy = (oracle.sliding(window) & oracle.real_keys(row))(columns[:, None], columns[None, :])
    index = torch.arange(len(real))
    by_torch = (oracle.sliding(window) & oracle.real_keys(torch.tensor([real])))(index[:, None], index[None, :])
    assert (by_torch.numpy() == by_numpy).all()


@given(pads=st.integers(0, 5), tokens=st.integers(1, 9))
def test_positions_start_at_the_first_real_token(pads: int, tokens: int) -> None:
    real = np.array([[False] * pads + [True] * tokens])
    assert oracle.positions(real)[0, pads:].tolist() == list(range(tokens))


def test_numbers_agree_at_the_precision_of_a_dtype() -> None:
    assert oracle.agree(9.999999974752427e-07, 1e-6)
    assert not oracle.agree(1.00001e-6, 1e-6)


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        (RopeClaim("", 1e4), RopeClaim("", 1e4 * (1 + 1e-8)), False),
        (RopeClaim("", 1e4), RopeClaim("", 1e6), True),
        (RopeClaim("", None, "", {"factor": 8.0}), RopeClaim("", 1e6, "linear", {"factor": 8}), False),
        (RopeClaim("", 1e4, "default"), RopeClaim("", 1e4, "linear"), True),
        (RopeClaim("", 1e4, "", {"short_factor": [1.0, 2.0]}), RopeClaim("", 1e4, "", {"short_factor": (1, 3)}), True),
    ],
)
def test_claims_contradict_each_other_in_what_both_name(a: RopeClaim, b: RopeClaim, differ: bool) -> None:
    assert oracle.contradict(a, b) is oracle.contradict(b, a) is differ


# --- frequencies -----------------------------------------------------------------------------------------------------


@given(theta=THETAS, head_dim=HEAD_DIMS)
def test_default_frequencies_fall_from_one_to_almost_the_inverse_of_theta(theta: float, head_dim: int) -> None:
    frequencies, scaling = oracle.inverse_frequencies(RopeClaim("rope_theta", theta), head_dim)
    assert frequencies.shape == (head_dim // 2,) and scaling == 1.0
    assert frequencies[0] == 1.0 and (np.diff(frequencies) < 0).all()
    assert math.isclose(frequencies[-1], theta ** (2 / head_dim - 1))


@given(theta=THETAS, head_dim=HEAD_DIMS, factor=st.floats(1.0, 64.0))
def test_scalings_move_frequencies_between_kept_and_divided(theta: float, head_dim: int, factor: float) -> None:
    plain, _ = oracle.inverse_frequencies(RopeClaim("", theta), head_dim)
    original = {"factor": factor, "original_max_position_embeddings": 4096}
    for rope_type, terms in {
        "linear": {},
        "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "yarn": {},
    }.items():
        scaled, _ = oracle.inverse_frequencies(RopeClaim("", theta, rope_type, {**original, **terms}), head_dim)
        assert (scaled <= plain * (1 + 1e-12)).all() and (scaled >= plain / factor * (1 - 1e-12)).all()


@given(theta=THETAS, head_dim=HEAD_DIMS, length=st.integers(1, 8192))
def test_dynamic_scaling_acts_only_beyond_the_positions(theta: float, head_dim: int, length: int) -> None:
    claim = RopeClaim("", theta, "dynamic", {"factor": 4.0})
    plain, _ = oracle.inverse_frequencies(RopeClaim("", theta), head_dim)
    scaled, _ = oracle.inverse_frequencies(claim, head_dim, 4096, length)
    assert np.allclose(scaled, plain, rtol=1e-12, atol=0) == (length <= 4096)


def test_proportional_turns_the_first_pairs_as_the_whole_head_would() -> None:
    plain, _ = oracle.inverse_frequencies(RopeClaim("", 1e6), 512)
    claim = RopeClaim("", 1e6, "proportional", {"partial_rotary_factor": 0.25})
    partial, _ = oracle.inverse_frequencies(claim, 512)
    assert (partial[:64] == plain[:64]).all() and not partial[64:].any()


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (RopeClaim("rope_scaling", None, "linear", {"factor": 8.0}), "no theta"),
        (RopeClaim("", 1e4, "spiral"), "unknown rope type 'spiral'"),
        (RopeClaim("", 1e4, "linear"), "linear scaling without factor"),
        (RopeClaim("", 1e4, "yarn", {"factor": 0, "original_max_position_embeddings": 4096}), "cannot be computed"),
    ],
)
def test_what_cannot_be_computed_is_said(claim: RopeClaim, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        oracle.inverse_frequencies(claim, 64)


LIBRARY = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 8192},
    "yarn, betas": {"factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, mscale": {"factor": 8.0, "original_max_position_embeddings": 8192, "mscale": 1.0, "mscale_all_dim": 0.8},
    "yarn, attention": {"factor": 8.0, "original_max_position_embeddings": 8192, "attention_factor": 1.2},
    "yarn, truncate": {"factor": 8.0, "original_max_position_embeddings": 8192, "truncate": False},
    "longrope": {
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "short_factor": [1.0 + 0.01 * pair for pair in range(32)],
        "long_factor": [2.0 + 0.5 * pair for pair in range(32)],
    },
}


def library_rotation(name: str, theta: float) -> tuple[np.ndarray, float]:
    """What the installed transformers' Llama builds: frequencies and the factor on cos and sin."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {"rope_type": name.split(",")[0], **LIBRARY[name]}
    keys = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 65536, "rope_theta": theta}
    if name == "longrope":  # 4.x releases read it there
        keys["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
    rotary = LlamaRotaryEmbedding(compat.new_text_config("llama", {**keys, "rope_scaling": scaling}))
    return rotary.inv_freq.double().numpy(), float(rotary.attention_scaling)


@pytest.mark.parametrize("name", LIBRARY)
@settings(max_examples=10, deadline=None)
@given(theta=THETAS)
def test_the_library_computes_the_same_frequencies(name: str, theta: float) -> None:
    if name.startswith("yarn") and compat.release().startswith("4.50."):
        pytest.skip("this release takes the model's positions for the original ones, whatever the file says")
    if name == "yarn, truncate" and compat.release().startswith("4.51."):
        pytest.skip("this release truncates, whatever the file says")
    theirs, their_scaling = library_rotation(name, theta)
    claim = RopeClaim("rope_scaling", theta, name.split(",")[0], LIBRARY[name])
    ours, our_scaling = oracle.inverse_frequencies(claim, 64, 65536)
    assert np.allclose(theirs, ours, rtol=3e-6, atol=0)
    assert math.isclose(their_scaling, our_scaling, rel_tol=1e-6)


def test_longrope_changes_its_factors_beyond_the_original_length() -> None:
    claim = RopeClaim("rope_scaling", 1e4, "longrope", LIBRARY["longrope"])
    within, _ = oracle.inverse_frequencies(claim, 64, 65536, 8192)
    beyond, _ = oracle.inverse_frequencies(claim, 64, 65536, 8193)
    plain, _ = oracle.inverse_frequencies(RopeClaim("", 1e4), 64)
    assert np.allclose(plain / within, LIBRARY["longrope"]["short_factor"])
    assert np.allclose(plain / beyond, LIBRARY["longrope"]["long_factor"])
