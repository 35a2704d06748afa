"""Runs what a page of docs/ shows: `python page_runner.py BLOCKS PRINTED`, in the reader's folder.

It stands alone, since most of what tests import is hidden there (`only_installed`). BLOCKS is a
file of JSON, a list of a language and a text; what each script or command printed, or the error of
the first that failed, goes to PRINTED in the same order. All share one cluster, which starts when
it is first asked for, and each run has one shard, for which one worker starts one process.
"""

import io
import json
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

# A reader's script has its own folder there.
sys.path[0] = ""


def run_command(command: str) -> None:
    """Carry out a command of partwise in this process."""
    from partwise.flows.cli.main import main

    program, *words = shlex.split(command)
    assert program == "partwise", command
    assert main(words) == 0, command


def run_script(text: str) -> None:
    """Run a script in this process; its functions travel by value, as those of `__main__` do."""
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})


def run_blocks(blocks: list[tuple[str, str]]) -> Iterator[str]:
    """Run blocks, and yield what each script or command printed."""
    for language, text in blocks:
        run = run_script if language == "python" else run_command
        for each in [text] if language == "python" else text.splitlines():
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                try:
                    run(each)
                except BaseException:
                    traceback.print_exc()
                    raise SystemExit(f"{each}\n{out.getvalue()}{err.getvalue()}") from None
            yield out.getvalue()


if __name__ == "__main__":
    from partwise.blocks import LocalCluster
    from partwise.engine.driver import plan

    started = LocalCluster(workers=2).client

    with ExitStack() as stack:
        # Some commands need none.
        shared = cache(lambda: stack.enter_context(started()))

        @contextmanager
        def client(self: LocalCluster):
            yield shared()

        LocalCluster.client = client
        plan.default_n_shards = lambda *_: 1
        printed = list(run_blocks(json.loads(Path(sys.argv[1]).read_text())))
    Path(sys.argv[2]).write_text(json.dumps(printed))
