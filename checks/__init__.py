"""The checks: one file each, in a folder per layer of the reading path."""
