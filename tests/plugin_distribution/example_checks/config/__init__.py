"""Checks of the configuration."""
