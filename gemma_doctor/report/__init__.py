"""One module per output format; each renders a Report to a text and reads nothing else."""
