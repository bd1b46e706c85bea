"""Checks of the layer `tokens` of the reading path."""
