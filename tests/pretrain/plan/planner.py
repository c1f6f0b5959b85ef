"""Plans, one after the other: for each line of arguments, JSON on standard input, print a line of
JSON with the verb's status and output.

One process for many plans, whose imports and the TPU compiler's start take as long as a plan.
"""

import contextlib
import io
import json
import os
import sys

os.environ.pop("XLA_FLAGS", None)  # of the tests, which nobody plans with

from pretrain.__main__ import main

if __name__ == "__main__":
    for line in sys.stdin:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = main(["plan", *json.loads(line)])
        print(json.dumps([status, output.getvalue()]), flush=True)
