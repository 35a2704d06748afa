"""`python -m partwise`: the command line, where the program itself is not on the shell's path."""

import sys

from partwise.flows.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
