"""Run the reliability board: `python -m benchmarks.reliability`."""

import sys

from benchmarks.reliability.board import main

if __name__ == "__main__":
    sys.exit(main())
