"""`python -m gemma_doctor`."""

import sys

from gemma_doctor.cli import main

sys.exit(main())
