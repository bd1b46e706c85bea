"""Checks of the layer `cache` of the reading path."""
