"""The rows of the reliability board: injected faults, the promised outcome, and the tests."""

# row: (the fault, the outcome that must be shown, the tests). A row without tests is open.
ROWS: dict[int, tuple[str, str, list[str]]] = {
    1: (
        "SIGKILL while compiling, in a step, in an evaluation, just after a save, at the "
        "last step; BERT, T5, GPT",
        "the same losses at every step, the same parameters and moments",
        [
            "tests/faults/test_killed.py",
        ],
    ),
    2: (
        "the data's ledger: epochs, packing, mixtures, starts at any step, 1 to 4 hosts",
        "no row repeated, none missing",
        [
            "tests/data/test_pipeline.py::test_ledger",
            "tests/data/test_pipeline.py::test_a_feed_gives_the_same_batches_from_any_step",
        ],
    ),
    3: (
        "a finished checkpoint: bits flipped, files cut, blocks zeroed, each file deleted",
        "never wrong in silence; the step before, with one line",
        [
            "tests/faults/test_damaged_checkpoint.py",
        ],
    ),
    4: (
        "SIGKILL while a checkpoint is written, gets its name, or older ones are deleted",
        "the newest committed one is sound, and that of the undisturbed run; no litter once "
        "the run goes on",
        [
            "tests/faults/test_killed_saving.py",
        ],
    ),
    5: (
        "NaN batches and spikes",
        "skipped and counted, then back, then stop",
        [
            "tests/pretrain/training/test_divergence.py",
        ],
    ),
    6: (
        "SIGTERM while compiling, reading, stepping, saving, evaluating; twice; Ctrl-C",
        "one: no step lost, out within 5 s of the step's end, 128 + signal; two: at once; "
        "the same bits afterwards",
        [
            "tests/faults/test_asked_to_stop.py",
            "tests/pretrain/training/test_loop.py::test_a_signal_saves_and_leaves",
        ],
    ),
    7: (
        "saved on eight devices, continued on others, and on another number of hosts",
        "the same bits restored, the same run",
        [
            "tests/pretrain/workdir/test_checkpoints.py::"
            "test_what_was_saved_on_one_mesh_is_restored_on_another",
            "tests/pretrain/processes/test_hosts.py::"
            "test_two_processes_make_the_run_of_one_and_others_continue_it",
        ],
    ),
    8: (
        "a step, a batch, a save or an evaluation that hangs; in one of two processes; a "
        "host that hangs; clean runs that compile slowly",
        "the stacks of all threads, status 75, all out within 5 s of the limit; no false alarm",
        [
            "tests/faults/test_hung.py",
            "tests/pretrain/processes/test_hosts.py::"
            "test_a_host_that_hangs_is_named_and_the_others_leave",
        ],
    ),
    9: (
        "masked rows, padding only, ids out of range",
        "no NaN; refused on the host",
        [
            "tests/pretrain/training/test_nothing_to_read.py",
            "tests/data/test_bad_ids.py",
        ],
    ),
    10: (
        "50 misspelt words; 10 changed configurations on continuing; random words, "
        "configurations and corpora",
        "none accepted in silence; the nearest named; the difference told; one line, no traceback",
        [
            "tests/faults/test_mutated_words.py",
            "tests/faults/test_random_words.py",
        ],
    ),
    11: (
        "another type, shape, key or family of models",
        "refused, 11 of 11",
        [
            "tests/faults/test_another_tree.py",
        ],
    ),
    12: (
        "a disk that is full; a checkpoints folder that a file takes the place of",
        "ends non-zero, does not say saved; the step before is intact",
        [
            "tests/faults/test_full_disk.py",
        ],
    ),
    13: (
        "one of two processes killed three times under `local --restarts`",
        "three restarts; the same bits",
        [
            "tests/faults/test_restarts.py",
        ],
    ),
    14: (
        "crafted archives, pickles, YAML, safetensors; a folder that asks for remote code",
        "nothing executed, nothing written",
        [
            "tests/faults/test_crafted_files.py",
            "tests/pretrain/convert/test_import_folder.py",
        ],
    ),
    15: (
        "a token store with a bit flipped, a file missing or cut",
        "named and refused; with data.on_corrupt=skip the damaged documents alone are left out",
        [
            "tests/faults/test_damaged_store.py",
            "tests/data/store/test_salvage.py",
        ],
    ),
    16: (
        "another tokenizer, size, special ids",
        "refused by fingerprint in train, evaluate, export, predict",
        [
            "tests/faults/test_another_vocabulary.py",
        ],
    ),
    17: (
        "a replica altered, a gradient's bit flipped behind its sum",
        "the device named, before a save",
        [
            "tests/faults/test_replicas.py",
        ],
    ),
    18: (
        "a workdir that cannot be one",
        "refused before JAX is imported, with what to do",
        [
            "tests/faults/test_foreign_places.py",
        ],
    ),
    19: (
        "2,000 batches, 60 saves, 10 evaluations",
        "memory grows by less than 1 MB in 100 steps",
        [
            "tests/faults/test_memory.py",
        ],
    ),
    20: (
        "killed and continued, twice",
        "each step once in metrics.jsonl",
        [
            "tests/pretrain/training/test_loop.py::"
            "test_a_run_that_was_killed_twice_ends_with_the_same_bits",
        ],
    ),
    21: (
        "a random schedule of ten faults (kills, stops, hangs, a full disk, a damaged "
        "checkpoint), three seeds",
        "the same bits as the undisturbed run",
        [
            "tests/faults/test_soak.py",
        ],
    ),
    25: (
        "a `local` run of two processes, also on a machine whose own name resolves to a "
        "network interface",
        "every socket that listens is on a loopback address",
        [
            "tests/faults/test_network.py",
        ],
    ),
    22: (
        "two runs on one workdir: one after the other, at the same moment, after kill -9, "
        "after a long SIGSTOP, in two processes; `local` killed; two that build one workdir",
        "one trains, with the bits of the undisturbed run; the other is refused by the "
        "holder's host, process and time; no child goes on writing",
        [
            "tests/faults/test_two_writers.py",
            "tests/pretrain/workdir/leases/test_lease.py",
            "tests/data/store/test_atomic.py",
        ],
    ),
    23: (
        "a checkpoint that cannot be read for another cause than damage: permissions, open "
        "files, memory, network, disk, a library's own errors",
        "the cause in one line, nothing moved; the same command goes on to the same bits "
        "once the cause is gone",
        [
            "tests/faults/test_undamaged_errors.py",
        ],
    ),
    24: (
        "imported weights with NaN or infinite values; an encoder imported without its head",
        "refused with the tensor's name and the flag that allows it",
        [
            "tests/pretrain/convert/test_unsound_weights.py",
        ],
    ),
    26: (
        "export, predict, evaluate and average beside a run that deletes checkpoints; a "
        "checkpoint's folder renamed or copied from another step",
        "the checkpoint that is read stays, or the newest is read; a renamed one is damaged",
        [
            "tests/pretrain/workdir/test_reading_beside_a_run.py",
        ],
    ),
    27: (
        "lines of metrics.jsonl, samples.jsonl and environment.jsonl damaged",
        "the run continues; damaged lines are counted, dropped and copied to damaged/",
        [
            "tests/pretrain/workdir/test_metrics_file.py",
        ],
    ),
    28: (
        "a model, batch or optimizer that does not fit; memory exhausted at the first start",
        "refused before compiling, in one line with what fits; the corrected run starts in the "
        "same workdir",
        [
            "tests/pretrain/training/test_memory_check.py",
            "tests/pretrain/training/test_continuation.py",
        ],
    ),
    29: (
        "held-out rows that overlap, repeat or are borrowed to fill the last batch",
        "each held-out token is scored once",
        [
            "tests/data/test_scored_once.py",
        ],
    ),
    30: (
        "terminal control sequences in texts, labels, tokens and file names",
        "none reaches stdout or stderr; JSON stays exact",
        [
            "tests/faults/test_terminal_sequences.py",
            "tests/pretrain/host/test_terminal.py",
        ],
    ),
    31: (
        "hostile Hugging Face folders: numbers of layers, ids, nested JSON, patterns that "
        "backtrack, sizes that overflow, links out of the folder",
        "refused within 2 s and 500 MB, in one line with the file and the value",
        [
            "tests/faults/test_hostile_folders.py",
        ],
    ),
    32: (
        "10,000 mutations each of a config, a tokenizer, a safetensors file, a store's "
        "manifest and a checkpoint's record",
        "read, or refused in one line; no traceback, no hang, bounded memory",
        [
            "tests/faults/test_mutated_files.py",
        ],
    ),
    33: (
        "folders, files, buckets and commands mistaken for others",
        "one line that names the thing and the remedy, in seconds",
        [
            "tests/faults/test_wrong_folders.py",
            "tests/faults/test_unreachable.py",
        ],
    ),
    34: (
        "the terminal closes (SIGHUP), its reader leaves, the log's disk is full, a stream is "
        "closed at the start; SIGQUIT, SIGUSR1; a signal that is sent twice within a second",
        "what asks for the end saves; lost output ends nothing and is noted in the workdir",
        [
            "tests/faults/test_lost_terminal.py",
        ],
    ),
    35: (
        "a user and a group without names, a home that cannot be written",
        "trains, saves and resumes; `doctor` tries a save",
        [
            "tests/faults/test_nameless_user.py",
        ],
    ),
    36: (
        "a store that is truncated in place under a run: tokens, offsets, labels, images, "
        "held-out rows, an object in a bucket",
        "one line with the file and both sizes; the last sound step is saved",
        [
            "tests/faults/test_shrinking_store.py",
            "tests/data/store/test_mapped.py",
        ],
    ),
    37: (
        "an attention kernel, or another hand-made operation, that gives wrong values or "
        "gradients, NaN or an error, hangs, or aborts the process; its memory torn",
        "left out before the first step, with the reason; the next one computes",
        [
            "tests/pretrain/kernels/test_trials.py",
            "tests/pretrain/training/test_trusted_program.py",
        ],
    ),
    38: (
        "a file or folder of somebody else where one of Cloze would stand: a link named as litter, "
        "a manifest of another program, an output that exists or is read",
        "refused by its name; nothing is deleted or replaced",
        [
            "tests/data/store/test_generations.py",
            "tests/pretrain/cli/test_output_files.py",
        ],
    ),
    39: (
        "copies of a document in another Unicode form, case or line ends; a run, a step or an "
        "evaluation in which nothing is predicted",
        "copies stay on one side of the split; nothing to predict is an error with its reason",
        [
            "tests/data/prepare/test_held_out.py",
            "tests/pretrain/training/test_targets.py",
        ],
    ),
}
