"""Checks of the layer `generation` of the reading path."""
