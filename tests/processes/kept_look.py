"""What a process under a keeper finds of itself; its `main` is what a warm server has forked."""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main(settings: Mapping[str, Any]) -> None:
    os.close(settings["note_fd"])
    look = {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "keeper": os.getppid(),
        "keeper's session": os.getsid(os.getppid()),
        "badness": Path("/proc/self/oom_score_adj").read_text().strip(),
        "keeper's badness": Path(f"/proc/{os.getppid()}/oom_score_adj").read_text().strip(),
        "variables": [os.environ.get("PARTWISE_OF_ALL"), os.environ.get("PARTWISE_OF_ONE")],
    }
    path = Path(settings["directory"], "look")
    path.with_suffix(".new").write_text(json.dumps(look))
    path.with_suffix(".new").rename(path)
    match settings["then"]:
        case "raises":
            raise RuntimeError("it raises")
        case "exits":
            sys.exit(7)
        case "ignores":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(settings["directory"], "ignores").touch()
    if settings["then"] != "returns":
        time.sleep(60)
