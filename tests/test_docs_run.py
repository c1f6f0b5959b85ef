"""Every command and Python block of the pages is executed, unless the page gives a reason why not."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.docs_pages import ROOT, list_pages

pytestmark = [pytest.mark.more, pytest.mark.slow, pytest.mark.timeout(900)]
FIRST = ["docs/quickstart.md", "docs/training.md"]  # these make the runs that the other pages use
# Pages in two processes, of about equal time. The second waits for the runs of the first.
SECOND = ("finetune", "tagging", "questions", "text2text", "mixtures", "inside")
SECOND += ("pretrain_my_corpus", "one_gpu")
SECOND = [f"docs/{name}.md" for name in SECOND]
FILES = [f"docs/adding_a{name}.md" for name in ("_model", "n_objective")]  # tests/test_adding_*.py


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return {page: [{name, seconds, error}]} of all pages, executed once in one folder."""
    folder = tmp_path_factory.mktemp("pages")
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"])
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    rest = [page for page in list_pages() if page not in (*FIRST, *SECOND, *FILES)]
    started = []
    for number, pages in enumerate(([*FIRST, *rest], SECOND)):
        command = [sys.executable, "-m", "tests.docs_driver", folder, folder / f"{number}.json"]
        log = (folder / f"{number}.log").open("w")
        process = subprocess.Popen(
            [*command, *pages], cwd=ROOT, env=os.environ | own, stdout=log, stderr=log
        )
        started.append((process, log))
    found = {}
    try:
        for number, (process, _) in enumerate(started):
            process.wait()
            printed = (folder / f"{number}.log").read_text()
            assert process.returncode == 0, printed[-3000:]
            found |= json.loads((folder / f"{number}.json").read_text())
    finally:  # a failure or a timeout leaves no process
        for process, log in started:
            process.kill()
            log.close()
    return found


@pytest.mark.parametrize("page", [page for page in list_pages() if page not in FILES])
def test_a_page_can_be_followed(results, page):
    failed = [block for block in results[page] if block["error"]]
    assert not failed, "\n\n".join(f"{one['name']}: {one['error']}" for one in failed)
