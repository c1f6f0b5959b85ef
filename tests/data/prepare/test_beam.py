"""`prepare` on Apache Beam workers: the same store byte for byte, or one error and nothing left
over.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import types

import pytest

from data.cleaning.settings import CleaningSettings
from data.prepare import jobs
from data.prepare.build import PrepareRequest, prepare_store
from data.store.reader import Store
from pretrain.__main__ import main
from pretrain.cli.prepare import add_arguments

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed: no apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from data.prepare import beam_pool
from data.prepare.beam_runner import BeamRunner
from tests.command import split_words
from tests.data.prepare.stores import hash_files

HERE = BeamRunner("DirectRunner")


def list_names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- the same store


def make_training_request(tmp_path, corpus, texts, words) -> PrepareRequest:
    """Prepare text files of two sources and train the vocabulary on a sample."""
    (tmp_path / "blocks.txt").write_text(
        "\n\n".join("\n".join(texts[i : i + 1 + i % 4]) for i in range(0, 200, 2))
    )
    both = (str(tmp_path / "blocks.txt"), str(corpus / "more"))
    return PrepareRequest(both, vocab_size=90, sample_size=4000, held_out=0.1, document="block")


def make_repaired_request(tmp_path, corpus, texts, words) -> PrepareRequest:
    """Prepare a mixture of JSON records, some skipped or repaired and counted, with 32-bit ids."""
    odd = [
        b'{"text": "caf\xe9 walks"}',
        b'{"text": "  "}',
        b'{"text": "rain\\u0000 paints"}',
        b'{"text": "\\u200b"}',
    ]
    (corpus / "odd.jsonl").write_bytes(
        b"\n".join([*odd, json.dumps({"text": "walk " * 3000}).encode()] * 3)
    )
    letters = [mark + letter for mark in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz"]
    pieces = (
        "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
        + letters
        + [f"[unused{i}]" for i in range(1 << 16)]
        + ["walks", "rain"]
    )
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    both = (str(corpus / "a.jsonl"), str(corpus / "odd.jsonl"))
    return PrepareRequest(
        both, vocabulary=str(tmp_path / "vocab.txt"), held_out=0.3, rates=(2.0, 1.0)
    )


def make_small_request(tmp_path, corpus, texts, words) -> PrepareRequest:
    """There are so few documents that the text is encoded a second time to hold one out."""
    (tmp_path / "few.txt").write_text("\n\n".join(texts[:5]))
    return PrepareRequest(
        (str(tmp_path / "few.txt"),), vocabulary=words, held_out=1e-9, document="block"
    )


def make_cleaned_request(tmp_path, corpus, texts, words) -> PrepareRequest:
    """Prepare records of which some are copies, near copies, too short or of another language."""
    records = [{"text": " ".join(texts[i : i + 9]), "language": "en"} for i in range(0, 270, 9)]
    records += [record | {"text": record["text"].upper()} for record in records[:9]]
    records += [record | {"text": record["text"] + " Rain"} for record in records[9:12]]
    records += [{"text": texts[0], "language": "de"}, {"text": "Rain", "language": "en"}]
    lines = [json.dumps(record) + "\n" for record in records]
    for name, part in (("x", lines[::2]), ("y", lines[1::2])):
        (tmp_path / f"{name}.jsonl").write_text("".join(part))
    settings = CleaningSettings(
        keep_where=("language=en",),
        min_characters=9,
        drop_duplicates="near",
        decontaminate=("held-out",),
    )
    both = (str(tmp_path / "x.jsonl"), str(tmp_path / "y.jsonl"))
    return PrepareRequest(both, vocab_size=90, sample_size=4000, held_out=0.1, cleaning=settings)


@pytest.mark.parametrize(
    "kind",
    [make_training_request, make_repaired_request, make_small_request, make_cleaned_request],
)
def test_the_store_is_the_one_that_processes_here_write(
    tmp_path, corpus, texts, words, kind, monkeypatch
):
    request = kind(tmp_path, corpus, texts, words)
    prepare_store(request, tmp_path / "here")
    monkeypatch.setattr(jobs, "BATCH_BYTES", 100)  # several examples a job
    prepare_store(request, tmp_path / "beam", job_bytes=500, beam_runner=HERE)
    assert hash_files(tmp_path / "here") == hash_files(tmp_path / "beam")
    Store.open(tmp_path / "beam").verify_checksums()
    assert not list(tmp_path.glob(".*"))


def test_workers_in_other_processes(tmp_path, corpus, words, capsys):
    """A worker receives all that it needs, and its files in the shared folder are removed."""
    prepare_store(PrepareRequest((str(corpus),), vocabulary=words, held_out=0.1), tmp_path / "here")
    (tmp_path / "shared").mkdir()
    command = split_words(
        f"prepare {corpus} --vocabulary {words} --held-out 0.1 --output {tmp_path / 'beam'}"
    )
    runner = ["--runner", "DirectRunner", "--runner-option", "direct_running_mode=multi_processing"]
    assert main([*command, *runner, "--scratch", str(tmp_path / "shared")]) == 0
    assert " in 61 documents" in capsys.readouterr().out
    assert hash_files(tmp_path / "here") == hash_files(tmp_path / "beam")
    assert not list_names(tmp_path / "shared")


# ---- or an error


def test_a_bad_record_is_one_error_and_leaves_nothing(tmp_path, texts, words):
    good = json.dumps({"text": texts[0]}) + "\n"
    (tmp_path / "a.jsonl").write_text(good * 30 + '{"txt": 1}\n' + good * 30)
    (tmp_path / "shared").mkdir()
    with pytest.raises(
        ValueError, match=r"a.jsonl, line 31: no field 'text'.*--field names the text$"
    ):
        prepare_store(
            PrepareRequest((str(tmp_path / "a.jsonl"),), vocabulary=words),
            tmp_path / "s",
            beam_runner=BeamRunner("DirectRunner", scratch=str(tmp_path / "shared")),
        )
    assert list_names(tmp_path) == ["a.jsonl", "shared"] and not list_names(tmp_path / "shared")


LOST = {
    "the first": lambda examples: examples[1:],
    "one within": lambda examples: examples[:7] + examples[8:],
    "the last": lambda examples: examples[:-1],
    "one there twice": lambda examples: examples[:5] + examples[4:],
    "one too many": lambda examples: examples + examples[-1:],
}


@pytest.mark.parametrize("change", LOST.values(), ids=LOST.keys())
def test_examples_that_a_runner_loses_or_repeats_are_noticed(
    tmp_path, corpus, words, monkeypatch, change
):
    def replay_examples(shards):
        made = (
            pair
            for job in beam_pool._read_jobs(shards._jobs)
            for pair in beam_pool._keyed_examples(shards._task, job)
        )
        return iter(change([example | {"split": example["split"].encode()} for _, example in made]))

    monkeypatch.setattr(beam_pool.BeamPool, "_run_pipeline", lambda self, builder: None)
    monkeypatch.setattr(beam_pool.Shards, "iterate_examples", replay_examples)
    with pytest.raises(
        ChildProcessError, match="DirectRunner: (example .* is missing|the shards have more)"
    ):
        prepare_store(
            PrepareRequest((str(corpus),), vocabulary=words),
            tmp_path / "s",
            job_bytes=500,
            beam_runner=HERE,
        )
    assert list_names(tmp_path) == ["corpus"]


IN_BEAM = "Traceback (most recent call last):\n  File 'x.py'\n{} [while running 'jobs/Do-ptransform-9']\n\nmore of it"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError(IN_BEAM.format("FileNotFoundError: [Errno 2] a.txt")), FileNotFoundError, "[Errno 2] a.txt"),
        (RuntimeError(IN_BEAM.format("ValueError: a.txt, line 3: bad")), ValueError, "a.txt, line 3: bad"),
        (RuntimeError("KeyboardInterrupt [while running 'jobs/Do']"), KeyboardInterrupt, ""),
        (ValueError("Invalid Project ID\nMissing region"), ValueError, "Invalid Project ID\nMissing region"),
        (RuntimeError("Channel closed"), ChildProcessError, "DirectRunner failed: RuntimeError: Channel closed"),
        (RuntimeError(IN_BEAM.format("MemoryError: x")), ChildProcessError, None),
    ],
)  # fmt: skip
def test_errors_of_workers_are_raised_with_their_own_message(error, kind, words):
    raised = HERE.unwrap_error(error)
    assert type(raised) is kind and str(raised) == (
        f"DirectRunner failed: RuntimeError: {error}" if words is None else words
    )


class Endless(PipelineResult):
    """Simulate a pipeline on other machines that is interrupted by Ctrl-C here."""

    ended = False

    def wait_until_finish(self, duration=None):
        raise KeyboardInterrupt

    def cancel(self):
        Endless.ended = True


class EndlessRunner(PipelineRunner):
    def run_pipeline(self, pipeline, options):
        return Endless(PipelineState.RUNNING)


def test_an_interruption_here_ends_the_pipeline_there(tmp_path, corpus, words, monkeypatch, capsys):
    monkeypatch.setitem(
        sys.modules, "elsewhere", types.SimpleNamespace(EndlessRunner=EndlessRunner)
    )
    (tmp_path / "shared").mkdir()
    command = ["prepare", str(corpus), "--vocabulary", words, "--output", str(tmp_path / "s")]
    assert (
        main(
            [*command, "--runner", "elsewhere.EndlessRunner", "--scratch", str(tmp_path / "shared")]
        )
        == 130
    )
    assert capsys.readouterr().err.endswith("stopped\n")
    assert Endless.ended
    assert list_names(tmp_path) == ["corpus", "shared"] and not list_names(tmp_path / "shared")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runner", "DirctRunner"],
         "--runner DirctRunner: did you mean DirectRunner? Beam has DataflowRunner, DirectRunner"),
        (["--runner", "no.such.Runner"], "--runner no.such.Runner: No module named 'no'"),
        (["--runner", "SparkRunner"], "SparkRunner works on other machines: --scratch names a folder"),
        (["--runner", "DirectRunner", "--runner-option", "regoin=x"],
         "--runner-option regoin: not an option of Beam; did you mean region?"),
        (["--runner", "DirectRunner", "--runner-option", "direct_num_workers=x"],
         "argument --direct_num_workers: invalid int"),
    ],
)  # fmt: skip
def test_the_verb_reports_errors(tmp_path, capsys, words, message):
    assert main(["prepare", "builtin", "--output", str(tmp_path / "s"), *words]) == 2
    assert "error: " in (err := capsys.readouterr().err) and message in err
    assert not list_names(tmp_path)


def test_scratch_is_the_same_folder_for_who_works_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with BeamRunner("SparkRunner", scratch="shared")(tmp_path / "s") as workers:
        assert workers.scratch.is_absolute() and workers.scratch.is_relative_to(tmp_path / "shared")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file: no folder can be made there"):
        BeamRunner("SparkRunner", scratch="file")(tmp_path / "s")


def test_text_that_the_workers_cannot_reach_is_refused(tmp_path, corpus):
    elsewhere = BeamRunner("FlinkRunner", ("an_option_of_its_job_server=1",), "gs://bucket/scratch")
    elsewhere.check_runner()
    for path, reached in ((str(corpus / "a.jsonl"), False), ("gs://bucket/a.jsonl", True)):
        piece = jobs.sources.InputChunk("jsonl", path, 0, 10, 10)
        if reached:
            elsewhere.check_reach(piece)
        else:
            with pytest.raises(
                ValueError, match="a.jsonl is on this machine.*copy it into the bucket"
            ):
                elsewhere.check_reach(piece)
        BeamRunner("SparkRunner", scratch="/shared").check_reach(piece)


def test_beam_knows_the_runners_and_options_that_the_page_shows(root):
    page = (root / "docs" / "beam.md").read_text().replace("\\\n", " ")
    lines = (line for line in page.splitlines() if line.startswith("./launch.sh prepare "))
    shown = [shlex.split(line) for line in lines if "--runner " in line]
    known, parser = PipelineOptions([]).get_all_options(), argparse.ArgumentParser()
    add_arguments(parser)
    for words in shown:
        args = parser.parse_args(words[2:])
        runner = BeamRunner(args.runner, tuple(args.runner_option), args.scratch)
        runner.check_runner()
        assert (
            runner.make_pipeline_options().get_all_options(retain_unknown_options=True).keys()
            <= known.keys()
        )
    assert [
        words[words.index("--runner") + 1].removesuffix("Runner") for words in shown
    ] == "Direct Dataflow Flink Spark".split()


def test_beam_is_imported_for_a_runner_only_and_brings_no_jax(root):
    code = (
        "import sys, data.prepare.build, pretrain.cli.prepare; print('apache_beam' in sys.modules);"
        "import data.prepare.beam_pool; print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
