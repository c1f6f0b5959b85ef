"""ESM-2 on made-up proteins whose best possible loss is known: loss, contacts and mutations.

    python -m benchmarks.papers.protein_grammar --folder FOLDER --page

The proteins are drawn from benchmarks/papers/protein_families.py: motifs and distant pairs of
letters in random ones. A small ESM-2 learns to fill their masks. Its held-out loss is compared
with the exact one, on the same masks. A contact head (Rao et al. 2021) is fitted on 20 proteins and
finds the pairs of others. Log-odds of mutations (Meier et al. 2021) are compared with the exact
ones.

FOLDER has the files and the workdirs, so that a second command continues what was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from scipy import stats

from benchmarks.cached_results import require_settings
from benchmarks.harness import format_command, format_title, int_at_least, report_errors
from benchmarks.papers import protein_families
from benchmarks.papers.protein_families import Grammar, MadeUpProtein
from benchmarks.program_turns import read_heldout_loss, run_to_end
from benchmarks.results_pages import RESULTS, add_result
from data.pipeline import Stream
from data.store.reader import Store
from pretrain import api
from pretrain.inference import contacts
from pretrain.reporting.contact_map import draw_contact_map
from pretrain.workdir.trained import open_placed
from pretrain.workdir.workdir import Workdir

NAME = "protein_grammar"
UNTRAINED = "random"
TRAINING, FITTED, FOUND, MUTATED = 50_000, 20, 100, 10  # proteins
SETTINGS = {
    "model.length": 48,
    "model.rotary_base": 100.0,  # for rows of 46
    "data.objective.length": 46,
    "data.objective.max_predictions": 7,
    "data.objective.masks_only": True,
    "optimizer.warmup_steps": 200,
    "evaluate.samples": 0,
}
KINDS = {
    protein_families.KEY: "key sites of the motif",
    protein_families.CONSERVED: "other sites of the motif",
    protein_families.PAIRED: "paired sites",
    protein_families.BACKGROUND: "background",
}
PLANTED = (protein_families.KEY, protein_families.PAIRED)


class Precision(NamedTuple):
    """The share of pairs among the most probable ones: as many as there are pairs, and L."""

    at_pairs: float
    at_length: float


class MutationScores(NamedTuple):
    """The log-odds of mutations in nats, and the kind of the site of each."""

    kinds: np.ndarray
    found: np.ndarray
    exact: np.ndarray


# ---- loss ---------------------------------------------------------------------


def write_proteins(grammar: Grammar, folder: pathlib.Path) -> None:
    """Write the proteins of training and of the contact head, and the store."""
    for part, count, seed in (("fit", FITTED, 2), ("test", FOUND, 3)):
        lines = []
        for protein in protein_families.sample_proteins(grammar, count, seed):
            pairs = protein_families.list_contacts(grammar, protein)
            places = [[first + 1, second + 1] for first, second in pairs]
            lines.append(json.dumps({"text": protein.text, "contacts": places}) + "\n")
        (folder / f"{part}.jsonl").write_text("".join(lines))
    if (folder / "store").exists():
        return
    proteins = protein_families.sample_proteins(grammar, TRAINING, 1)
    fasta = folder / "proteins.fasta"
    fasta.write_text("".join(f">protein {n}\n{each.text}\n" for n, each in enumerate(proteins)))
    api.prepare(str(fasta), output=str(folder / "store"), vocabulary="alphabet:esm2", held_out=0.02)


def train_model(folder: pathlib.Path, name: str, steps: int, **changes: Any) -> pathlib.Path:
    """Train an ESM-2, or resume its training; return its workdir. A signal ends the program."""
    every = {"evaluate.every": steps, "checkpoint.every": max(steps // 4, 1), "train.steps": steps}
    overrides = {**SETTINGS, "data.store": str(folder / "store"), **every, **changes}
    if signal := api.train("esm2_tiny", str(folder / name), overrides).signal:
        raise SystemExit(128 + signal)
    return folder / name


def read_heldout_rows(workdir: pathlib.Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (numbers of the letters, which are masked) of each row of a run's evaluation."""
    run = Workdir.open(workdir).run
    store = Store.open(run.data.store)
    number_of = np.full(store.vocabulary.size, -1)
    number_of[store.vocabulary.encode(protein_families.LETTERS)] = range(20)
    stream = Stream(store, run.data, split="heldout", seed=run.train.seed)
    found = []
    for index in range(stream.num_evaluation_batches):
        batch = stream.build_evaluation_batch(index)
        for row in range(len(batch["token_ids"])):
            ids_L, used_P = batch["token_ids"][row].copy(), batch["label_weights"][row] > 0
            place_P = batch["masked_positions"][row][used_P]
            if not len(place_P):
                continue
            ids_L[place_P] = batch["labels"][row][used_P]
            size, masked_L = int(batch["attention_mask"][row].sum()) - 2, np.zeros(len(ids_L), bool)
            masked_L[place_P] = True
            found.append((number_of[ids_L[1 : size + 1]], masked_L[1 : size + 1]))
    return found


def measure_bounds(grammar: Grammar, workdir: pathlib.Path) -> dict[str, float]:
    """Return losses of a held-out residue in nats.

    Returns:
      {exact: by Bayes' rule on the run's own masks, expected: in closed form, frequency: by the
      shares of the letters}, and {targets: the number of masked residues}.
    """
    rows = read_heldout_rows(workdir)
    losses = [protein_families.compute_bayes_losses(grammar, *row) for row in rows]
    sizes = [(len(masked_N), int(masked_N.sum())) for _, masked_N in rows]
    counts_A = np.bincount(np.concatenate([letters_N for letters_N, _ in rows]))
    hidden = np.concatenate([letters_N[masked_N] for letters_N, masked_N in rows])
    return {
        "exact": float(np.concatenate(losses).mean()),
        "expected": protein_families.compute_expected_loss(grammar, sizes),
        "frequency": float(-np.log(counts_A / counts_A.sum())[hidden].mean()),
        "targets": len(hidden),
    }


# ---- contacts -----------------------------------------------------------------


def fit_head(folder: pathlib.Path, workdir: pathlib.Path) -> pathlib.Path:
    """Fit the contact head unless it is fitted; return the workdir that has it."""
    into = workdir.with_name(f"{workdir.name}_contacts")
    if not into.exists():
        words = ["contacts", "--workdir", workdir, "--fit", folder / "fit.jsonl", "--into", into]
        run_to_end([sys.executable, "-m", "pretrain", *map(str, words)], {"JAX_PLATFORMS": "cpu"})
    return into


def measure_contacts(
    folder: pathlib.Path, headed: pathlib.Path, picture: pathlib.Path | None = None
) -> Precision:
    """Return the mean precision on the proteins that the head was not fitted on.

    Args:
      headed: workdir with a fitted head.
      picture: PNG file for the map of the first protein; None: no map.
    """
    lines = (folder / "test.jsonl").read_text().splitlines()
    proteins = [contacts.read_protein("", json.loads(line)) for line in lines]
    trained, mesh = open_placed(str(headed), None, None)
    at_pairs, at_length = [], []
    with jax.set_mesh(mesh):
        for number, (protein, features_FLL) in enumerate(
            zip(proteins, contacts.compute_features(trained, mesh, proteins), strict=True)
        ):
            found_LL = contacts.predict_contacts(trained.params, features_FLL)
            pairs, known = contacts.list_pairs(found_LL), protein.contacts or frozenset()
            top = {(pair.first, pair.second) for pair in pairs[: len(known)]}
            at_pairs.append(len(top & known) / len(known))
            at_length.append(contacts.compute_precision(pairs, protein))
            if picture and not number:
                draw_contact_map(found_LL, "a protein of the grammar", picture, known)
    return Precision(float(np.mean(at_pairs)), float(np.mean(at_length)))


def compute_limits(folder: pathlib.Path) -> tuple[float, Precision]:
    """Return the mean precision of any pairs that are far enough apart, and the best ones."""
    guesses, best = [], []
    for line in (folder / "test.jsonl").read_text().splitlines():
        protein = contacts.read_protein("", json.loads(line))
        size, known = len(protein.text), len(protein.contacts or ())
        guesses.append(known / len(np.triu_indices(size, contacts.SEPARATION)[0]))
        best.append(min(known / size, 1))
    return float(np.mean(guesses)), Precision(1.0, float(np.mean(best)))


# ---- mutations ----------------------------------------------------------------


def compute_exact_log_odds(grammar: Grammar, protein: MadeUpProtein) -> np.ndarray:
    """Return the log-odds [N, A] in nats of each letter against the protein's own, masked."""
    letters_N, found = protein.letters_N, []
    for place, own in enumerate(letters_N):
        masked_N = np.arange(len(letters_N)) == place
        site_A = protein_families.predict_letters(grammar, letters_N, masked_N)[place]
        with np.errstate(divide="ignore"):
            found.append(np.log(site_A) - np.log(site_A[own]))
    return np.array(found)


def score_changes(grammar: Grammar, workdir: pathlib.Path) -> MutationScores:
    """Score each change of one letter of a few proteins, as `score --mutations` does."""
    scored: list[tuple[str, float, float]] = []
    for protein in protein_families.sample_proteins(grammar, MUTATED, 4):
        text, letters = protein.text, protein_families.LETTERS
        changes = [(i, a) for i in range(len(text)) for a in range(20) if letters[a] != text[i]]
        names = [f"{text[i]}{i + 1}{letters[a]}" for i, a in changes]
        scores = api.score(str(workdir), text, mutations=names)
        exact_NA = compute_exact_log_odds(grammar, protein)
        sites = protein_families.name_sites(grammar, protein)
        for (i, a), score in zip(changes, scores, strict=True):
            scored.append((sites[i], score["log_odds"], exact_NA[i, a]))
    return MutationScores(*map(np.array, zip(*scored, strict=True)))


def compute_auc(harmful: np.ndarray, others: np.ndarray) -> float:
    """Return the probability that a harmful change has the lower score; a tie counts half."""
    ranks = stats.rankdata(np.concatenate([harmful, others]))
    above = ranks[: len(harmful)].sum() - len(harmful) * (len(harmful) + 1) / 2
    return float(1 - above / (len(harmful) * len(others)))


def summarize_scores(kinds: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the mean score of each kind of site, and the AUC of planted and background sites."""
    means = {kind: float(scores[kinds == kind].mean()) for kind in KINDS}
    planted, others = scores[np.isin(kinds, PLANTED)], scores[kinds == protein_families.BACKGROUND]
    return means | {"auc": compute_auc(planted, others)}


# ---- the page -----------------------------------------------------------------


def format_rows(
    results: Mapping[str, Mapping[str, Any]],
    exact: Mapping[str, float],
    limits: tuple[float, Precision],
) -> list[str]:
    """Return the table: what is measured, its exact or best value, each model's."""
    guess, best = limits
    models = list(results)
    titles = ["random weights" if name == UNTRAINED else name.replace("_", " ") for name in models]
    header = f"| | exact, or the best (a guess) | {' | '.join(titles)} |"
    lines = [header, "|---" * (2 + len(models)) + "|"]

    def add_row(title: str, best: str, key: str, form: str = ".3f") -> None:
        cells = [f"{results[name][key]:{form}}" for name in models]
        lines.append(f"| {title} | {best} | {' | '.join(cells)} |")

    add_row("held-out loss, nats a residue", f"{exact['loss']:.4f}", "loss", ".4f")
    for key, title in (("at_pairs", "as many pairs as touch"), ("at_length", "the first L")):
        limit = f"{getattr(best, key):.3f} ({guess:.3f})"
        add_row(f"contacts: precision of {title}", limit, key)
    for kind, title in KINDS.items():
        mean = "minus infinity" if np.isinf(exact[kind]) else f"{exact[kind]:.2f}"
        add_row(f"mutations: mean log-odds, {title}", mean, kind, ".2f")
    title = "mutations: AUC of key and paired sites against background"
    add_row(title, f"{exact['auc']:.3f}", "auc")
    add_row("mutations: rank correlation with the exact log-odds", "1", "correlation")
    return lines


def measure_model(
    grammar: Grammar, folder: pathlib.Path, workdir: pathlib.Path, picture: pathlib.Path | None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what is measured of a trained model, and the exact values of its mutations."""
    scores = score_changes(grammar, workdir)
    found: dict[str, Any] = {"loss": read_heldout_loss(workdir)}
    found |= measure_contacts(folder, fit_head(folder, workdir), picture)._asdict()
    found |= summarize_scores(scores.kinds, scores.found)
    correlation: Any = stats.spearmanr(scores.found, scores.exact)
    found["correlation"] = float(correlation.statistic)
    return found, summarize_scores(scores.kinds, scores.exact)


def format_note(bounds: Mapping[str, float], steps: int) -> str:
    """Return the paragraph above the table."""
    return (
        f"`{format_command()}`: configs/esm2_tiny.py, rotary base 100, {steps:,} steps of 32 "
        f"proteins of 36 to 44 residues, 15 % of them masked. The exact loss is Bayes' rule on the "
        f"{bounds['targets']:,} masked residues of the evaluation; its expectation with family and "
        f"linkers known, in closed form, is {bounds['expected']:.4f}, and the shares of the "
        f"letters alone give {bounds['frequency']:.4f}. The contact head is fitted on {FITTED} "
        f"proteins and scored on {FOUND} others, with pairs at least {contacts.SEPARATION} apart; "
        f"the guess is any such pair. Mutations: all single changes of {MUTATED} proteins, each "
        "masked."
    )


def main() -> None:
    """Train the models that are not finished, measure them, and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of files and runs")
    parser.add_argument("--steps", type=int_at_least(4), default=3000)
    parser.add_argument("--seeds", type=int_at_least(1), default=2)
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    load, folder = os.getloadavg()[0], args.folder.absolute()
    grammar = protein_families.make_grammar()
    with report_errors(parser):
        settings = {"steps": args.steps, "settings": SETTINGS}
        require_settings(folder / "settings.json", settings, (folder / "seed_0").exists())
        write_proteins(grammar, folder)
        results: dict[str, dict[str, Any]] = {}
        exact: dict[str, float] = {}
        workdirs = [
            train_model(folder, f"seed_{seed}", args.steps, **{"train.seed": seed})
            for seed in range(args.seeds)
        ]
        still = {"optimizer.learning_rate": 0.0, "optimizer.warmup_steps": 0}
        workdirs.append(train_model(folder, UNTRAINED, 1, **still))
        bounds = measure_bounds(grammar, workdirs[0])
        for workdir in workdirs:
            picture = RESULTS / f"{NAME}.png" if args.page and not results else None
            results[workdir.name], exact = measure_model(grammar, folder, workdir, picture)
            print(workdir.name, results[workdir.name], flush=True)
    rows = format_rows(results, exact | {"loss": bounds["exact"]}, compute_limits(folder))
    lines = [format_note(bounds, args.steps), "", *rows]
    print("\n".join(lines))
    if args.page:
        lines += ["", f"![Probabilities of contacts, and the true pairs as rings]({NAME}.png)"]
        title = "A grammar of proteins: the best possible loss, contacts and mutations"
        add_result(NAME, [format_title(load, f"JAX {jax.__version__}"), "", *lines], title)


if __name__ == "__main__":
    main()
