"""Checks for gemma-doctor, one package for each group."""
