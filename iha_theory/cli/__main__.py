"""`python -m iha_theory.cli`: the command without its script."""

import sys

from iha_theory.cli.main import main

sys.exit(main())
