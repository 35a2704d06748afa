"""All options of pandas, whichever there are in its version, are put back after a partition."""

CHANGES_ALL = """
import json, logging, warnings
import pandas as pd
logging.basicConfig(handlers=[logging.NullHandler()])
from partwise.engine.child.state import ProcessState
warnings.simplefilter("ignore")
names = list(pd._config.config._registered_options)
before = {name: pd.get_option(name) for name in names}
state = ProcessState(set())
changed = []
for name, value in before.items():
    for other in (not value, 3, 0.5, "x", None):
        try:
            pd.set_option(name, other)
        except Exception:
            continue
        if pd.get_option(name) != value:
            changed.append(name)
            break
failed = state.restore(1.0)
left = [name for name in names if pd.get_option(name) != before[name]]
print(json.dumps([len(names), len(changed), failed, left]))
"""


def test_each_option_that_can_be_changed_is_put_back(run_python) -> None:
    known, changed, failed, left = run_python(CHANGES_ALL)
    assert changed > known / 2
    assert (failed, left) == ([], [])
