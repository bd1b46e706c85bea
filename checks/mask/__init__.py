"""Checks of the layer `mask` of the reading path."""
