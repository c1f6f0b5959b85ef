"""contacts --workdir W SEQUENCE: which residues of a protein touch, by the attention of an ESM-2.

With --fit the head of contacts is trained on proteins of known structure, and a new workdir has it
(docs/biology.md).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
from typing import TYPE_CHECKING, Any

from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.host.extras import how_to_install
from pretrain.inference.random_head import add_checkpoint_arguments
from pretrain.inference.text_records import check_records, read_texts

if TYPE_CHECKING:
    from pretrain.inference.contacts import Protein
    from pretrain.workdir.trained import Trained

SHOWN = 20  # pairs of a protein that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `contacts` to a parser."""
    parser.add_argument("texts", nargs="*", metavar="SEQUENCE", help="proteins; or give --input")
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="file with a sequence a line, a FASTA file, or a .jsonl file of records with `text` "
        "and maybe `contacts`, the pairs of places, from 1, that are known to touch",
    )
    parser.add_argument(
        "--fit", metavar="FILE", help="train the head of contacts on a .jsonl file of such records"
    )
    parser.add_argument(
        "--into", metavar="V", help="with --fit: new folder, the model with its head"
    )
    parser.add_argument(
        "--separation",
        type=int,
        default=6,
        metavar="N",
        help="least distance of two residues in the sequence (default: %(default)s)",
    )
    parser.add_argument(
        "--top",
        type=int,
        default=SHOWN,
        metavar="N",
        help="print the N most probable pairs of each (default: %(default)s)",
    )
    parser.add_argument("--picture", metavar="FILE.png", help="draw the map of one protein")
    parser.add_argument(
        "--output", metavar="FILE.npz", help="write the probabilities [L, L] of each protein"
    )
    add_overwrite(parser, "FILE")


def run(args: argparse.Namespace) -> int:
    """Print the pairs that probably touch, or train the head; return 0."""
    proteins, files = check_arguments(args)
    import jax

    from pretrain.inference.contacts import check_head
    from pretrain.workdir.trained import open_placed

    trained, mesh = open_placed(args.workdir, args.step, args.parameters)
    check_head(trained)
    with jax.set_mesh(mesh):
        (fit_head if args.fit else show_contacts)(args, trained, mesh, proteins, files)
    return 0


def check_arguments(
    args: argparse.Namespace,
) -> tuple[list[Protein], dict[str, pathlib.Path]]:
    """Return the proteins and {option: file to write}, after checking the arguments.

    Raises:
      ValueError: arguments contradict each other or are out of range, a record is wrong, or
        matplotlib is not installed.
      FileExistsError: there is a file, or the folder of --into.
    """
    from pretrain.inference.contacts import read_protein

    sources = [bool(args.texts), args.input is not None, args.fit is not None]
    if sum(sources) != 1:
        raise ValueError("contacts takes sequences, or --input FILE, or --fit FILE --into V")
    if (args.fit is None) != (args.into is None):
        raise ValueError("--fit FILE and --into V belong together")
    for name, least in (("separation", 1), ("top", 0)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name} {getattr(args, name)}: {least} or more")
    if args.texts:
        given = ((f"sequence {n}", {"text": text}) for n, text in enumerate(args.texts, 1))
        records = check_records(given)
    else:
        records = read_texts(args.fit or args.input)
    proteins = [read_protein(place, record) for place, record in records]
    if args.fit:
        for protein in proteins:
            if protein.contacts is None:
                raise ValueError(
                    f'{protein.place}: no `contacts`, such as {{"text": "MKV...", "contacts": '
                    "[[3, 17]]}}"
                )
    files = {}
    for option, suffix in (("picture", ".png"), ("output", ".npz")):
        if (path := getattr(args, option)) is None:
            continue
        if args.fit or not path.endswith(suffix):
            reason = "not with --fit" if args.fit else f"the name must end in {suffix}"
            raise ValueError(f"--{option} {path}: {reason}")
        files[option] = check_output_file(path, args.overwrite, [args.input], f"--{option}")
    if args.picture and len(proteins) > 1:
        raise ValueError(f"--picture draws one protein, not {len(proteins):,}; --output has all")
    if args.picture and not importlib.util.find_spec("matplotlib"):
        raise ValueError(f"--picture needs matplotlib: {how_to_install('report')}")
    return proteins, files


def show_contacts(
    args: argparse.Namespace,
    trained: Trained,
    mesh: Any,
    proteins: list[Protein],
    files: dict[str, pathlib.Path],
) -> None:
    """Print the most probable pairs of each protein, and write the files."""
    import numpy as np

    from data.store.atomic import replace_file
    from pretrain.host.terminal import print_notice
    from pretrain.inference import contacts
    from pretrain.reporting.contact_map import draw_contact_map

    if not np.any(trained.params["contact_weights"]):
        print_notice(
            f"the head of contacts of {args.workdir} reads no attention, so each pair has one "
            "probability: train the model for longer and its head by --fit, or import a released "
            "ESM-2, which has one"
        )
    arrays = {}
    features = contacts.compute_features(trained, mesh, proteins)
    for number, (protein, features_FLL) in enumerate(zip(proteins, features)):
        found_LL = contacts.predict_contacts(trained.params, features_FLL)
        arrays[f"contacts_{number}"] = found_LL.astype(np.float32)
        pairs = contacts.list_pairs(found_LL, args.separation)
        print(f"{protein.place}: {len(protein.text):,} residues")
        for first, second, probability in pairs[: args.top]:
            names = f"{protein.text[first]}{first + 1} {protein.text[second]}{second + 1}"
            print(f"{probability:10.4f}  {names}")
        if protein.contacts is not None:
            precision = contacts.compute_precision(pairs, protein)
            print(f"{precision:10.4f}  precision of the first {len(protein.text):,} pairs")
        if "picture" in files:
            title = f"{pathlib.Path(args.workdir).name}, step {trained.step:,}"
            with replace_file(files["picture"]) as new:
                draw_contact_map(found_LL, title, new, protein.contacts)
    if "output" in files:
        with replace_file(files["output"]) as new, open(new, "wb") as file:
            np.savez(file, **arrays)
    for path in files.values():
        print(f"wrote {path}")


def fit_head(
    args: argparse.Namespace,
    trained: Trained,
    mesh: Any,
    proteins: list[Protein],
    files: dict[str, pathlib.Path],
) -> None:
    """Write a new workdir, whose step 0 is the model with a trained head."""
    import jax
    import numpy as np

    from pretrain.inference import contacts
    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.check import check_orbax_path
    from pretrain.workdir.trained import check_finite_params

    check_orbax_path(args.into)
    if os.path.lexists(args.into) and (not os.path.isdir(args.into) or os.listdir(args.into)):
        raise FileExistsError(f"--into {args.into} exists and is not empty; name a new folder")
    check_finite_params(trained, "the head would not be either", "name another --step")
    features = list(contacts.compute_features(trained, mesh, proteins))
    params = {
        **jax.device_get(trained.params),
        **contacts.fit_contacts(features, proteins, args.separation),
    }
    precisions = [
        contacts.compute_precision(
            contacts.list_pairs(contacts.predict_contacts(params, each), args.separation), protein
        )
        for each, protein in zip(features, proteins)
    ]
    used = int(np.count_nonzero(params["contact_weights"]))
    origin = {
        "folder": os.path.basename(os.path.abspath(args.workdir)),
        "pretrained_step": trained.step,
        "contacts": {"proteins": len(proteins), "separation": args.separation},
    }
    encoding: Any = trained.encoding
    start_workdir(args.into, trained.run, params, encoding, origin)
    print(
        f"{args.into}: contacts of {len(proteins):,} proteins by {used:,} of "
        f"{len(params['contact_weights']):,} heads; precision of the first L pairs on them: "
        f"{np.mean(precisions):.4f}"
    )
