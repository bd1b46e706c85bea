"""gemma-doctor: what does the token at position p really read?

A diagnostic and triage tool for decoder attention in Hugging Face models. Nothing heavy is imported here: the
command line must answer ``--help`` without torch.
"""

__version__ = "0.1.0"
