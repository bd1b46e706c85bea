"""Checks of the layer `numerics` of the reading path."""
