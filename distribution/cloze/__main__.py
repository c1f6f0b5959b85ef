"""The command line, `python -m cloze VERB ...`, which is also `cloze VERB ...`."""

import sys

from cloze.pretrain.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
