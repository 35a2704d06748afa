"""How often what proves by repetition is repeated: a sample, or all of it where there is time."""

import os

THOROUGH = bool(os.environ.get("PARTWISE_THOROUGH"))
"""Set by `make test-slow THOROUGH=1`: all that a random or counted test knows to try."""
