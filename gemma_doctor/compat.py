"""The one place that knows transformers' names, arguments and constructors by release."""

from __future__ import annotations
