"""The text that fills prompts: read once, and called by one name."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from gemma_doctor import prompts
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.loading import Patient, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from tests.tiny_model import tiny_folder


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    settings = Settings(subject=str(tiny_folder(tmp_path_factory.mktemp("tiny"))), weights="real")
    return admit(resolve(settings), settings, lambda line: None)


def counting(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **options)

    return counted


def test_a_text_has_one_name_however_long_it_becomes(patient: Patient) -> None:
    tokens = Tokens(patient, (), 0)
    before = tokens.source
    short = tokens.exact(20)
    assert tokens.exact(9_000)[:20].tolist() == short.tolist()
    assert before == tokens.source == prompts.source()


def test_no_file_is_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts._of_file.cache_clear()
    parsed: list[Any] = []
    monkeypatch.setattr(ast, "parse", counting(ast.parse, parsed))
    first = prompts.english(30_000)
    files = len(parsed)
    assert prompts.english(30_000) == first
    assert len(parsed) == files > 0


def test_lengths_one_after_the_other_are_encoded_once(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, made = Tokens(patient, (), 0), []
    monkeypatch.setattr(tokens, "_encode", counting(tokens._encode, made))
    for length in (504, 511, 512, 1024):
        tokens.exact(length)
    assert len(made) == 1
