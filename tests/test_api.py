"""`diagnose` on a model in memory: the same verdicts as `check`, and a program that is afterwards as it was."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version

from gemma_doctor import DoctorError, Outcome, Report, Severity, compat, diagnose, faults, in_memory, render, skeleton
from gemma_doctor.capture.model_facts import attention_modules, rotary_tensors
from gemma_doctor.loading import Patient
from gemma_doctor.restored import at_rest, process_restored, settings_kept
from gemma_doctor.settings import Settings
from tests.program_state import differences, functions, modules, picture, process, settings, weights
from tests.test_placed_models import Rounded
from tests.tiny_model import TEXT, WINDOW, tiny_tokenizer

QUICK: dict[str, Any] = {"depth": "quick"}
MASK: dict[str, Any] = {"depth": "quick", "select": ["mask-pattern"]}
sliding_is_healthy = pytest.mark.skipif(
    Version(transformers.__version__) < Version("4.53"), reason="its caches of sliding layers are sick (37574)"
)


def model_of(text: dict[str, Any] = TEXT) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(compat.new_text_config(text["model_type"], text)).eval()
    with torch.no_grad():
        skeleton.randomise(model, 0)
    return model


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def found(report: Report) -> list[str]:
    """What is above a note, and crashes of ours."""
    crashed = [f"{one.check}: {one.reason}" for one in report.results if one.outcome is Outcome.ERROR]
    return crashed + [f"{one.check}: {one.title}" for one in report.findings if one.severity > Severity.NOTE]


# --- models as programs hold them ------------------------------------------------------------------------------------


def plain(folder: Path) -> Any:
    return model_of()


def in_training(folder: Path) -> Any:
    """With gradients on their way, dropout, and activations that are computed again."""
    model = model_of({**TEXT, "attention_dropout": 0.1})
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()
    model.model.layers[0].eval()  # as a frozen layer may be
    model.lm_head.requires_grad_(False)
    model(torch.arange(6, 14)[None]).logits.sum().backward()
    return model


def in_bfloat16(folder: Path) -> Any:
    return model_of().to(torch.bfloat16)


def compiled(folder: Path) -> Any:
    return torch.compile(model_of(), backend="eager")


def compiled_in_place(folder: Path) -> Any:
    model = model_of()
    model.compile(backend="eager")
    model.model.layers[1].forward = torch.compile(model.model.layers[1].forward, backend="eager")
    return model


def with_lora(folder: Path) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=4, lora_dropout=0.1, init_lora_weights=False, target_modules=["q_proj", "up_proj", "embed_tokens"]
    )
    return peft.get_peft_model(model_of(), config)


def dispatched(folder: Path) -> Any:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.dispatch_model(model_of(), {"": "cpu"}, force_hooks=True)


def offloaded_to_the_cpu(folder: Path) -> Any:
    return pytest.importorskip("accelerate").cpu_offload(model_of(), execution_device="cpu")


def offloaded_to_the_disk(folder: Path) -> Any:
    return pytest.importorskip("accelerate").disk_offload(model_of(), str(folder), execution_device="cpu")


def quantised_in_memory(folder: Path) -> Any:
    """Nothing but the modules says so."""
    model = model_of()
    for layer in model.model.layers:
        layer.mlp.up_proj, layer.mlp.down_proj = Rounded(layer.mlp.up_proj), Rounded(layer.mlp.down_proj)
    return model


def with_dynamic_rotation(folder: Path) -> Any:
    """Its forward replaces the frequencies where a text is longer than its positions."""
    rope = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "rope_theta": 10_000.0}
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    keys += ("eos_token_id", "bos_token_id", "pad_token_id")
    text = {key: TEXT[key] for key in keys}
    return model_of({**text, "model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 128, **rope})


def made(make: Callable[[Path], Any], folder: Path) -> Any:
    """Making them warns in new releases of torch, PEFT and the library, of what is none of our business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(folder)


HELD = (
    plain,
    in_training,
    in_bfloat16,
    compiled,
    compiled_in_place,
    with_lora,
    dispatched,
    offloaded_to_the_cpu,
    offloaded_to_the_disk,
    quantised_in_memory,
    with_dynamic_rotation,
)


@sliding_is_healthy
@pytest.mark.parametrize("make", HELD, ids=lambda make: make.__name__)
def test_a_healthy_model_is_not_accused_and_all_is_as_before(
    make: Callable[[Path], Any], tokenizer: Any, tmp_path: Path
) -> None:
    model = made(make, tmp_path)
    before = picture(model, tokenizer)
    report = diagnose(model, tokenizer, **QUICK)
    assert differences(before, picture(model, tokenizer)) == []
    assert found(report) == []
    assert report.exit_code == 0
    assert report.count(Outcome.PASS) >= 28


@sliding_is_healthy
def test_every_usual_route_leaves_all_as_before(tokenizer: Any) -> None:
    model = model_of()
    before = picture(model, tokenizer)
    report = diagnose(model, tokenizer)  # releases have faults on some of them
    assert {one.outcome for one in report.results} <= {Outcome.PASS, Outcome.FAIL, Outcome.NOT_APPLICABLE}
    assert differences(before, picture(model, tokenizer)) == []


class Stop(BaseException):
    """Nothing that anybody catches."""


@pytest.mark.parametrize(
    ("raised", "comes_through"), [(RuntimeError, None), (KeyboardInterrupt, KeyboardInterrupt), (Stop, Stop)]
)
def test_all_is_as_before_when_it_ends_early(
    tokenizer: Any, tmp_path: Path, raised: type[BaseException], comes_through: type[BaseException] | None
) -> None:
    model = made(in_training, tmp_path)

    def progress(line: str) -> None:
        if "batch" in line:
            raise raised("enough")

    before = picture(model, tokenizer)
    with pytest.raises(comes_through) if comes_through else nullcontext():
        diagnose(model, tokenizer, progress=progress, **QUICK)
    assert differences(before, picture(model, tokenizer)) == []


def test_an_exception_of_the_model_is_its_finding_and_all_is_as_before(tokenizer: Any) -> None:
    model = model_of()

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("not today")

    model.model.layers[1].mlp.forward = broken
    before = picture(model, tokenizer)
    report = diagnose(model, tokenizer, **QUICK)
    assert differences(before, picture(model, tokenizer)) == []
    assert report.exit_code == 1 and any("not today" in one.observed for one in report.findings)


def test_the_callers_defaults_are_neither_used_nor_lost(tokenizer: Any) -> None:
    """A training script sets them for its own sake: in bfloat16 and with autocast, nothing is float32."""
    model = model_of()
    plainly = render(without_timing(diagnose(model, tokenizer, **QUICK)), "json")
    try:
        torch.set_default_dtype(torch.bfloat16)
        torch.set_float32_matmul_precision("medium")
        transformers.utils.logging.set_verbosity_info()
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            before = picture(model, tokenizer)
            report = diagnose(model, tokenizer, **QUICK)
            assert differences(before, picture(model, tokenizer)) == []
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        transformers.utils.logging.set_verbosity_warning()
    assert render(without_timing(report), "json") == plainly


# --- what puts things back -------------------------------------------------------------------------------------------


def test_whatever_is_done_to_a_model_is_undone(tmp_path: Path) -> None:
    model = made(in_training, tmp_path)
    before = {**weights(model), **modules(model)}
    with at_rest(model):
        assert not any(module.training for module in model.modules())
        assert not any(weight.requires_grad for weight in model.parameters())
        model.train()
        model.model.layers[0].register_forward_hook(lambda *_: None)
        model.model.norm.added, model.model.layers[1].self_attn.scaling = 1, 2.0
        del model.model.layers[1].self_attn.layer_idx
        for _, _, buffer in rotary_tensors(model):
            buffer.mul_(2)
        model.model.register_buffer("late", torch.zeros(1))
        model.lm_head = torch.nn.Linear(2, 2)
        model.config._attn_implementation = "eager"
        model.config.layer_types.append("another")
        model.generation_config.eos_token_id = 7
        model._cache = object()
        assert {**weights(model), **modules(model)} != before
    assert {**weights(model), **modules(model)} == before


def test_whatever_is_done_to_a_tokenizer_is_undone() -> None:
    own = tiny_tokenizer()
    before = settings(own)
    with settings_kept(own):
        own(["a text"], truncation=True, max_length=3, padding="max_length")
        own.padding_side, own.truncation_side, own.model_max_length = "right", "left", 9
        own.pad_token, own.chat_template = "<eos>", "none"
        assert settings(own) != before
    assert settings(own) == before


def test_whatever_is_done_to_the_process_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFORE", "1")
    transformers.utils.logging.enable_progress_bar()  # another test may have switched them off
    before = process()
    with process_restored():
        random.random()
        np.random.random()
        torch.rand(1)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_float32_matmul_precision("medium")
        warnings.simplefilter("always")
        transformers.utils.logging.set_verbosity_debug()
        transformers.utils.logging.disable_progress_bar()
        monkeypatch.setenv("BEFORE", "2")
        monkeypatch.setenv("ADDED", "1")
        changed = {*differences(before, process())}
    assert changed >= {
        "random",
        "numpy",
        "torch",
        "default dtype",
        "threads",
        "matmul precision",
        "environment",
        "bars",
    }
    assert differences(before, process()) == []


# --- verdicts --------------------------------------------------------------------------------------------------------


def patient_around(model: Any) -> Patient:
    return in_memory.patient_of(model, None, Settings())


def test_a_fault_is_found() -> None:
    model = model_of()
    with faults.all_faults()["window-ignored"].inject(patient_around(model)):
        report = diagnose(model, **QUICK)
    assert [cause.check for cause in report.causes] == ["mask-pattern"]
    assert report.exit_code == 1


def test_a_program_that_replaced_a_forward_is_found_out() -> None:
    model = model_of()
    attention = attention_modules(model)[1]
    forward = attention.forward

    def without_mask(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **{**kwargs, "attention_mask": None})

    attention.forward = without_mask
    report = diagnose(model, **MASK)
    assert {(cause.check, cause.where.layers) for cause in report.causes} == {("mask-pattern", (1,))}
    assert attention.forward is without_mask


def test_a_window_that_was_changed_after_the_model_was_built_is_found() -> None:
    model = model_of()
    model.config.sliding_window = 2 * WINDOW
    assert "sliding-window" in {cause.check for cause in diagnose(model, **QUICK).causes}


def test_what_is_expected_is_held_against_the_configuration() -> None:
    report = diagnose(model_of(), expect={"sliding_window": 2 * WINDOW}, select=["sliding-window"], **QUICK)
    assert [(one.check, one.severity) for one in report.findings] == [("sliding-window", Severity.ERROR)]


@sliding_is_healthy
@pytest.mark.parametrize(
    "name",
    ["gemma-3-4b-it", "gemma-3n-E2B-it", "gemma-4-E2B-it", "mistral-7b-v0.1", "gpt-oss-20b", "qwen2.5-7b-instruct"],
)
def test_no_family_is_accused(patient_of: Callable[..., Patient], name: str) -> None:
    report = diagnose(patient_of(name).reduced, **QUICK)
    assert found(report) == []
    assert report.count(Outcome.SKIPPED) == 0


def test_the_same_report_twice(tokenizer: Any) -> None:
    model = model_of()
    one, other = (without_timing(diagnose(model, tokenizer, **QUICK)) for _ in range(2))
    assert render(one, "json") == render(other, "json")


def without_timing(report: Report) -> Report:
    return replace(report, timing={})


def test_nothing_is_printed(tokenizer: Any, capfd: pytest.CaptureFixture[str]) -> None:
    diagnose(model_of(), tokenizer, **QUICK)
    assert capfd.readouterr() == ("", "")


def test_a_model_that_another_thread_uses_computes_the_same() -> None:
    theirs, ids, done = model_of(), torch.arange(6, 40)[None], threading.Event()
    with torch.no_grad():
        alone = theirs(ids).logits
    differed: list[bool] = []

    def work() -> None:
        with torch.no_grad():
            while not done.is_set():
                differed.append(not torch.equal(theirs(ids).logits, alone))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        report = diagnose(model_of(), **MASK)
    finally:
        done.set()
        thread.join()
    assert report.exit_code == 0 and differed and not any(differed)


def test_an_examination_waits_for_the_one_that_runs() -> None:
    """Both stand in for the same function of the library: each would put back the other's."""
    one, reports, waited = model_of(), list[Report](), list[bool]()
    other = threading.Thread(target=lambda: reports.append(diagnose(one, select=["config-drift"])))

    def progress(line: str) -> None:
        if not waited:
            other.start()
            other.join(timeout=2)  # it runs nothing, and is done at once when alone
            waited.append(other.is_alive())

    before = functions()
    diagnose(model_of(), progress=progress, **MASK)
    other.join()
    assert waited == [True] and reports[0].exit_code == 0
    assert differences(before, functions()) == []


def test_what_was_quantised_in_memory_is_not_copied(tmp_path: Path) -> None:
    """Nothing but the modules says that it is."""
    report = diagnose(quantised_in_memory(tmp_path), select=["cache-parity", "decode-parity"], **QUICK)
    assert {one.check: one.reason for one in report.results} == {
        "cache-parity": "the weights are quantised: no float32 copy to compare with",
        "decode-parity": "weights are compared in float32 only",
    }


# --- what it says, and what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (in_training, "in train mode: examined in eval mode, put back afterwards"),
        (compiled, "compiled: examined uncompiled"),
        (compiled_in_place, "compiled: examined uncompiled"),
        (with_lora, "with its adapter default as active"),
    ],
)
def test_the_state_of_the_model_is_said(make: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    report = diagnose(made(make, tmp_path), select=["layer-pattern"])
    assert said in report.remarks
    assert report.remarks[0] == "published = the model's own configuration, as it is in memory"


def test_adapters_that_are_switched_off_are_not_named(tmp_path: Path) -> None:
    model = made(with_lora, tmp_path)
    with model.disable_adapter():
        assert not any("adapter" in line for line in diagnose(model, select=["layer-pattern"]).remarks)


def refused(*args: Any, **options: Any) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        diagnose(*args, **options)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_adapters_that_add_tokens_are_refused(kind: str) -> None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(model_of(), getattr(peft, kind)(num_virtual_tokens=4, task_type="CAUSAL_LM"))
    assert "adds tokens of its own" in refused(model).message


@contextmanager
def without_weights() -> Iterator[Any]:
    with torch.device("meta"):
        yield transformers.AutoModelForCausalLM.from_config(compat.new_text_config("gemma3_text", TEXT))


def test_what_cannot_be_examined_is_refused_in_words() -> None:
    assert "Linear is no model of transformers" in refused(torch.nn.Linear(2, 2)).message
    assert "NoneType is no model" in refused(None).message
    assert "Gemma3TextModel has no head" in refused(model_of().model).message
    with without_weights() as empty:
        assert "not loaded (meta device)" in refused(empty).message
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=8, d_ff=8, num_layers=1, vocab_size=32))
    assert "is an encoder-decoder" in refused(t5).message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": "thorough"}, "depth is 'thorough'"),
        ({"seed": -1}, "seed is -1"),
        ({"select": ["maskk"]}, "did you mean mask"),
        ({"severity": {"mask-pattern": "bad"}}, "severity of mask-pattern is 'bad'"),
        ({"thresholds": {"mask-pattern": {"nothing": 1}}}, "has no threshold 'nothing'"),
        ({"suppress": [{"check": "mask-pattern"}]}, "without a reason"),
        ({"expect": {"hidden_size": 3}}, "no check compares hidden_size"),
        ({"prompt": " "}, "empty"),
        ({"tokenizer": "gemma"}, "str is no tokenizer"),
    ],
)
def test_wrong_arguments_are_refused_in_words(options: dict[str, Any], said: str) -> None:
    assert said in refused(model_of(), **options).message


def test_a_subject_is_examined_as_check_does() -> None:
    report = diagnose("gemma-2-2b", select=["sliding-window"], **QUICK)
    assert report.subject["kind"] == "preset" and report.exit_code == 0
    assert "there is no preset" in refused("gemma-2-2bb").message
    assert "its own tokenizer" in refused("gemma-2-2b", object()).message


def test_a_float32_copy_that_cannot_be_made_is_said() -> None:
    """Programs keep on their models what cannot be copied."""
    model = model_of().to(torch.bfloat16)
    model.lock = threading.Lock()
    report = diagnose(model, **QUICK)
    reasons = {one.reason for one in report.results if one.check == "cache-parity"}
    assert {reason[:40] for reason in reasons} == {"no float32 copy can be made to compare with"[:40]}


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gemma_doctor import DoctorError, Report, diagnose, render;"
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_model_that_was_made_in_inference_mode_is_examined() -> None:
    """Its tensors know no gradients, and refuse to be asked for any."""
    with torch.inference_mode():
        model = model_of()
    needed = [weight.requires_grad for weight in model.parameters()]
    assert diagnose(model, **MASK).exit_code == 0
    assert [weight.requires_grad for weight in model.parameters()] == needed
