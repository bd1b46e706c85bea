"""Checks of the layer `config` of the reading path."""
