"""Long texts: where they come from, where their facts stand, and what the checks say of them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from gemma_doctor import compat, prompts
from gemma_doctor.capture import losses
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.course import chosen_edge, chosen_length, laid_out
from gemma_doctor.capture.planted import FIRST, distances, planted
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.charts import curves
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.checks.generation.recall import recall
from gemma_doctor.checks.generation.window_crossing import window_crossing
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FULL, SLIDING, Crash, Fact, Lengths, LongText, StepByStep, frozen
from gemma_doctor.finding import CheckResult, Finding, Location, Outcome, Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.prompt import Prompt
from gemma_doctor.registry import built_in
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from gemma_doctor.testing import config_facts, long_text, run_check
from gemma_doctor.triage import triage
from tests.tiny_model import tiny_folder

# --- the text --------------------------------------------------------------------------------------------------------


def test_docstrings_come_in_a_fixed_order_and_none_comes_twice() -> None:
    text = prompts.english(30_000)
    assert text == prompts.english(30_000)
    assert prompts.english(40_000).startswith(text)
    parts = list(islice(prompts.docstrings(), 100))
    assert len(parts) == len(set(parts))


def test_packages_come_after_single_files_and_tests_are_left_out() -> None:
    folder = Path(sysconfig.get_paths()["stdlib"])
    parts = [path.relative_to(folder).parts for path in prompts.sources()]
    single = [one for one in parts if len(one) == 1]
    assert parts == sorted(single) + sorted(one for one in parts if len(one) > 1)
    assert ("json", "decoder.py") in parts
    assert not [one for one in parts if prompts.LEFT_OUT & set(one)]


def test_the_source_is_named_with_its_hash() -> None:
    first, second = prompts.source_of("a"), prompts.source_of("b")
    assert first.startswith(f"{prompts.SOURCE} ({sys.version.split()[0]}, sha256 ca978112ca1b")
    assert first != second


def characters(text: str) -> list[int]:
    """A tokenizer whose words are tokens and keep their blanks."""
    words = text.replace("\n", " \n").split(" ")
    return [hash(word) % 100_000 + 10 for word in words]


@pytest.mark.parametrize(("length", "window"), [(1536, 512), (1024, None), (700, 64), (4000, 1024)])
def test_every_answer_stands_where_it_is_said_to_stand(length: int, window: int | None) -> None:
    filler = list(range(10**6, 10**6 + length))
    made = planted(filler, characters, length, window)
    ids = made.ids.tolist()
    assert len(ids) == length
    assert len(made.questions) == 8
    assert [one for one in ids if one >= 10**6] == filler[: len([one for one in ids if one >= 10**6])]
    assert ids[:FIRST] == filler[:FIRST]
    for one in made.questions:
        assert ids[one.column + 1] == ids[one.column + 1 - one.distance] == one.answer
        assert one.column >= made.body


def test_a_tokenizer_without_single_answers_has_no_facts() -> None:
    made = planted(list(range(600)), lambda text: [ord(one) for one in text], 600, None)
    assert made.questions == ()
    assert "single tokens for 0 of the 10 answers" in made.why_none
    assert "too few" in planted(list(range(90)), characters, 90, None).why_none


def test_facts_lie_inside_and_beyond_the_window() -> None:
    found = distances(8, 1500, 512)
    assert found == sorted(found)
    assert (sum(one < 512 for one in found), found[-1]) == (3, 1500)


@pytest.mark.parametrize(
    ("window", "trained", "kinds", "edge"),
    [
        (512, 512, None, 512),
        (100_000, 512, None, 512),
        (512, None, None, 512),
        (100_000, None, None, 1024),
        (None, None, None, None),
        (None, 512, (SLIDING, FULL), 512),  # gone
        (None, 512, (FULL, FULL), None),  # never in force
        (None, 32_768, None, 1024),
    ],
)
def test_the_edge_is_where_the_weights_have_theirs(
    window: int | None, trained: int | None, kinds: tuple[str, ...] | None, edge: int | None
) -> None:
    base = config_facts(window=trained, layer_kinds=kinds)
    assert chosen_edge(window, base) == edge
    assert chosen_edge(window, None) == (window if window != 100_000 else 1024)


def test_how_long_a_text_is() -> None:
    assert [chosen_length(edge, None, None) for edge in (None, 512, 4096)] == [1024, 1536, 6400]
    assert (chosen_length(512, 9000, 32_768), chosen_length(512, 9000, 800)) == (9000, 800)


def test_regions_lie_around_the_edge_where_there_is_room() -> None:
    laid = laid_out(list(range(10**6, 10**6 + 1600)), characters, 1536, 512)
    assert [one[1] for one in laid.regions] == [448, 704, 1024]
    assert (laid.chunk, laid.rows[0], len(laid.rows)) == (256, 447, 3 * 64 + 8)
    short = laid_out(list(range(750)), characters, 750, 512)
    assert [one[0] for one in short.regions] == ["before the edge"]
    assert laid_out(list(range(600)), characters, 600, None).regions == ()


# --- window-crossing -------------------------------------------------------------------------------------------------


def with_region(index: int, **changes: object) -> LongText:
    text = long_text()
    regions = list(text.regions)
    regions[index] = replace(regions[index], **changes)  # type: ignore[arg-type]
    return replace(text, regions=tuple(regions))


HIGH = frozen(np.tile([4.0, 6.5], 32))


def test_a_healthy_text_passes() -> None:
    result = run_check(window_crossing, text=long_text())
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    assert result.examined.sentence == (
        "loss 3.00 before the edge, 3.00 after the edge (control 3.00), 3.00 beyond twice the edge (control 3.00); "
        "uncached alike"
    )


def test_a_lost_window_costs_more_with_all_of_the_context() -> None:
    (finding,) = run_check(window_crossing, text=with_region(1, cached=HIGH, reference=HIGH)).findings
    assert finding.severity is Severity.ERROR
    assert "after the edge" in finding.where.boundary
    assert (finding.observed[:4], finding.expected[:4]) == ("5.25", "3.00")


def test_a_reference_that_is_sick_as_well_is_not_held_against_the_cache() -> None:
    (finding,) = run_check(window_crossing, text=with_region(1, cached=HIGH)).findings
    assert "context" in finding.title


@pytest.mark.parametrize("more", [0.2, 0.4])
def test_noise_is_no_finding(more: float) -> None:
    """0.2 nats are within the margin; 0.4 with a large standard error are, too."""
    noise = np.random.default_rng(0).normal(more, 0.0 if more < 0.25 else 3.0, 64)
    cached = frozen(long_text().regions[1].cached + noise)
    result = run_check(window_crossing, text=with_region(1, cached=cached, reference=cached))
    assert result.findings == ()


def test_a_cache_that_differs_is_an_error_where_plain_generation_differs_too() -> None:
    sick = long_text().regions[2].cached.copy()
    sick[5] += 0.01
    text = with_region(2, cached=frozen(sick))
    (finding,) = run_check(window_crossing, text=text).findings
    assert finding.severity is Severity.ERROR
    assert "token 1029" in finding.observed
    again = StepByStep(1029, 16, 4.01, 4.0, 4.01)
    assert run_check(window_crossing, text=replace(text, text_again=again)).findings[0].severity is Severity.ERROR
    (finding,) = run_check(window_crossing, text=replace(text, text_again=replace(again, plain=4.0))).findings
    assert finding.severity is Severity.WARNING
    assert "in chunks" in finding.title


def test_losses_that_are_no_numbers_are_no_matter_of_the_cache() -> None:
    nothing = frozen(np.full(64, np.nan))
    for sick in ({"cached": nothing}, {"cached": nothing, "reference": nothing}, {"reference": nothing}):
        result = run_check(window_crossing, text=with_region(0, **sick))
        assert (result.outcome, result.findings) == (Outcome.SKIPPED, ())
        assert "long-generate" in result.reason
    again = StepByStep(450, 16, np.nan, 3.0, 3.0)  # plain generation is right: chunks alone
    text = replace(with_region(0, cached=nothing), text_again=again)
    assert [one.severity for one in run_check(window_crossing, text=text).findings] == [Severity.WARNING]
    facts = (Fact(128, np.nan, -0.1), *long_text().facts[1:])
    result = run_check(recall, text=long_text(facts=facts))
    assert (result.outcome, result.findings) == (Outcome.SKIPPED, ())


def test_what_proves_nothing() -> None:
    assert run_check(window_crossing, text=long_text(window=None, edge=None)).outcome is Outcome.NOT_APPLICABLE
    assert run_check(window_crossing, text=long_text(regions=())).outcome is Outcome.SKIPPED
    wide = run_check(window_crossing, text=long_text(window=100_000))
    assert "does not cross the window of 100,000" in wide.reason
    lost = run_check(window_crossing, text=replace(with_region(1, cached=HIGH, reference=HIGH), window=100_000))
    assert lost.outcome is Outcome.FAIL


def test_a_window_that_is_gone_is_judged_where_the_weights_had_it() -> None:
    lost = replace(with_region(1, cached=HIGH, reference=HIGH), window=None)
    (finding,) = run_check(window_crossing, text=lost).findings
    assert finding.severity is Severity.ERROR
    result = run_check(window_crossing, text=long_text(window=None))
    assert result.outcome is Outcome.PASS and result.examined is not None
    assert result.examined.sentence.startswith("no window; around the 512 of the weights: loss 3.00 before the edge")


def test_a_crash_in_chunks_is_a_warning() -> None:
    crashed = long_text(crash=Crash("RuntimeError", "sizes differ", 2, 768, None), regions=(), facts=())
    result = run_check(window_crossing, text=crashed)
    assert [one.severity for one in result.findings] == [Severity.WARNING]
    assert run_check(recall, text=crashed).outcome is Outcome.SKIPPED


# --- recall ----------------------------------------------------------------------------------------------------------


def test_facts_that_are_recalled_as_on_the_reference_route_pass() -> None:
    result = run_check(recall, text=long_text())
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    assert result.examined.sentence == (
        "4 of 4 facts recalled, 4 on the reference route: 0.90 at 128, 0.90 at 256; beyond W 0.90 at 640, 0.90 at "
        "1,280 tokens back"
    )
    assert result.examined.curve is not None
    assert curves.render(result.examined.curve)[:4] == b"\x89PNG"


def forgotten(**changes: object) -> LongText:
    facts = long_text().facts
    return replace(long_text(), facts=(*facts[:3], Fact(1280, -6.0, -0.1)), **changes)  # type: ignore[arg-type]


def test_a_fact_that_the_cache_forgets_is_an_error() -> None:
    (finding,) = run_check(recall, text=forgotten()).findings
    assert (finding.severity, finding.title) == (Severity.ERROR, "facts are forgotten with the cache")
    assert "1,280 tokens back has probability 0.00" in finding.observed
    assert finding.expected.startswith("0.90")
    assert finding.effect == "1 of 4 facts forgotten, 1 changed"


def test_what_only_chunks_forget_is_a_warning() -> None:
    again = StepByStep(1530, 16, -6.0, -0.1, -0.1)
    (finding,) = run_check(recall, text=forgotten(facts_again=again)).findings
    assert finding.severity is Severity.WARNING
    assert finding.meanwhile


def test_what_the_reference_does_not_recall_cannot_be_forgotten() -> None:
    facts = tuple(Fact(distance, -3.0, -2.0) for distance in (128, 640))
    result = run_check(recall, text=long_text(facts=facts))
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert "recalls none of 2 facts (at best 0.14)" in result.reason
    assert run_check(recall, text=long_text(facts=(), no_facts="no words")).reason == "no words"


def test_without_the_reference_recall_is_measured_and_not_judged() -> None:
    facts = tuple(replace(one, reference=None) for one in long_text().facts)
    result = run_check(recall, text=long_text(facts=facts, no_reference="too long"))
    assert (result.outcome, result.findings) == (Outcome.SKIPPED, ())
    assert result.reason.startswith("too long; with the cache 0.90 at 128")


def test_what_is_wrong_elsewhere_explains_a_long_text_and_its_loss_explains_recall() -> None:
    known = {one.id: one for one in built_in()}
    checks = [known[name] for name in ("mask-pattern", "window-crossing", "recall")]
    cell = Finding(
        title="wrong", severity=Severity.ERROR, observed="a", expected="b", do="", where=Location(passes=("prompt 2W",))
    )
    lost = with_region(1, cached=HIGH, reference=HIGH)
    texts = (run_check(window_crossing, text=lost), run_check(recall, text=forgotten()))
    mask = CheckResult(
        check="mask-pattern", group="mask", outcome=Outcome.FAIL, findings=(replace(cell, check="mask-pattern"),)
    )
    assert [one.findings[0].follows_from for one in triage((mask, *texts), checks)] == ["", *["mask-pattern"] * 2]
    assert [one.findings[0].follows_from for one in triage(texts, checks)] == ["", "window-crossing"]


# --- what is run -----------------------------------------------------------------------------------------------------


def test_a_skeleton_has_no_long_text(patient_of: Callable[..., Patient]) -> None:
    collector = Collector(patient_of("gemma-3-1b-it"), Settings(), lambda line: None)
    with pytest.raises(NotApplicable, match="trained weights"):
        collector.get(LongText)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    """Real weights as far as anybody can tell, though random ones; W=16."""
    settings = Settings(subject=str(tiny_folder(tmp_path_factory.mktemp("tiny") / "model")))
    return admit(resolve(settings), settings, lambda line: None)


def test_the_three_runs_agree_on_a_healthy_model(tiny: Patient) -> None:
    if not compat.dynamic_cache_takes_config():
        pytest.skip("a dynamic cache may take no chunks in this release")
    text = Collector(tiny, Settings(length=200), lambda line: None).get(LongText)
    assert (text.length, text.window, text.chunk, text.crash, text.no_reference) == (200, 16, 8, None, "")
    assert [one.name for one in text.regions] == ["before the edge", "after the edge", "beyond twice the edge"]
    for region in text.regions:
        assert len(region.cached) == 8
        assert float(np.abs(region.cached - region.reference).max()) < text.noise
    assert (text.text_again, text.facts_again) == (None, None)
    assert "single tokens" in text.no_facts
    assert run_check(window_crossing, text=text).outcome is Outcome.PASS


@pytest.mark.parametrize("length", [1, 2, 5, 12])
def test_a_text_in_which_nothing_is_scored_is_not_run(
    tiny: Patient, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "hidden_states", None)
    with pytest.raises(CouldNotLook, match=f"a text of {length} tokens shows nothing around the edge of 16"):
        Collector(tiny, Settings(length=length), lambda line: None).get(LongText)


@pytest.mark.parametrize(
    ("window", "why", "reason"),
    [
        (None, NotApplicable, "no window to cross, and no facts"),
        (1, CouldNotLook, "a text of 3 tokens shows nothing around the edge of 1"),
        (0, NotApplicable, "no text crosses a window of 0"),
        (-1, NotApplicable, "no text crosses a window of -1"),
    ],
)
def test_a_window_that_no_text_crosses(
    tiny: Patient, window: int | None, why: type[Exception], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "hidden_states", None)
    with pytest.raises(why, match=reason):
        Collector(replace(tiny, window=window), Settings(), lambda line: None).get(LongText)


def test_evidence_is_made_once_and_says_where_its_text_comes_from(
    tiny: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = Prompt("given prompt", "a prompt of a few words")
    collector = Collector(tiny, Settings(length=100, prompts=(prompt,)), lambda line: None)
    assert collector.get(Lengths) is collector.get(Lengths)
    source = collector.passes.text.source_of(100)
    assert source.startswith("the given prompt (") and "filled with" in source and "sha256" in source
    assert collector.passes.text.source_of(2) == "the given prompt"
    assert collector.passes.text.exact(100)[0] == collector.passes.text.given[0].ids[0]


def test_a_text_that_is_not_there_is_not_looked_at(tiny: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(tiny, Settings(length=200), lambda line: None)

    def short(length: int, offset: int = 0) -> torch.Tensor:
        raise DoctorError("201 tokens of text are asked for", "ask for less")

    monkeypatch.setattr(collector.passes.text, "exact", short)
    with pytest.raises(CouldNotLook, match="201 tokens"):
        collector.get(LongText)


def test_a_releases_own_cap_is_not_asked_for(tiny: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 4.57 every GenerationConfig has a max_length of 20."""
    usual = GenerationConfig()
    monkeypatch.setattr(tiny.model, "generation_config", usual)
    assert compat.own_limits(tiny.model) == {}
    monkeypatch.setattr(tiny.model, "generation_config", GenerationConfig(max_length=300, max_new_tokens=7))
    assert compat.own_limits(tiny.model) == {"max_length": 300, "max_new_tokens": 7}


def test_no_text_is_repeated(tiny: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(islice(prompts.sources(), 3))
    monkeypatch.setattr(prompts, "sources", lambda: files)
    tokens = Tokens(tiny, (), 0)
    assert torch.equal(tokens.exact(600)[:300], tokens.exact(300))
    assert "sha256" in tokens.source
    assert tokens.user_source == tokens.source
    with pytest.raises(DoctorError, match="1,000,001 tokens of text are asked for") as caught:
        tokens.exact(1_000_000)
    assert "--length" in caught.value.hint
