"""Checks of the layer `positions` of the reading path."""
