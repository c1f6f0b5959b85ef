"""Write minimal pairs of English grammar, made from templates: agreement, anaphora, negation.

    python -m benchmarks.papers.minimal_pairs PAIRS.jsonl --each 200
    python -m pretrain score --workdir WORKDIR --input PAIRS.jsonl --by within_word_l2r

Each line has a good and a bad text of the same length, which differ in one word or in the order of
two, and its group. Words are frequent in novels. Linzen et al. (2016), Marvin and
Linzen (2018) and BLiMP (Warstadt et al. 2020) have such kinds of pairs; the sentences are our own.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.harness import int_at_least, report_errors

PEOPLE = ("boy", "girl", "king", "queen", "doctor", "soldier", "sister", "brother", "friend")
PEOPLE += ("servant", "stranger", "prisoner", "captain", "teacher", "sailor", "officer", "widow")
THINGS = ("letter", "house", "ship", "book", "tree", "horse", "garden", "window", "road", "picture")
THINGS += ("river", "table", "church", "door", "room", "village", "mountain", "lamp", "stone")
MEN = ("boy", "king", "brother", "father", "son", "uncle", "husband", "gentleman")
WOMEN = ("girl", "queen", "sister", "mother", "daughter", "aunt", "wife", "lady")
PLACES = ("near", "behind", "beside", "opposite", "above", "below")
ACTIONS = ("saw", "heard", "followed", "remembered", "watched", "loved", "hated", "knew")
REFLEXIVE = ("hurt", "blamed", "hid", "saved", "dressed", "praised", "described", "amused")
STATES = ("old", "strange", "beautiful", "large", "small", "dark", "quiet", "famous")
# (plural or first form, singular, third person) of verbs that people do.
PRESENT = (("walk", "walks"), ("sing", "sings"), ("laugh", "laughs"), ("wait", "waits"))
PRESENT += (("speak", "speaks"), ("sleep", "sleeps"), ("write", "writes"), ("smile", "smiles"))
# (after has and had, alone in the past) of irregular verbs.
PARTICIPLES = (("begun", "began"), ("seen", "saw"), ("taken", "took"), ("written", "wrote"))
PARTICIPLES += (("hidden", "hid"), ("eaten", "ate"), ("broken", "broke"), ("forgotten", "forgot"))
FOUND = ("seen", "found", "loved", "forgotten", "described", "remembered")
ADVERBS = ("in the evening", "every day", "at night", "in the morning", "after dinner", "alone")


class Sentences(NamedTuple):
    """A good and a bad sentence."""

    good: str
    bad: str


def make_plural(noun: str) -> str:
    """Return the plural of a regular noun, or of man and woman at its end."""
    if noun.endswith("man"):
        return noun[:-2] + "en"
    if noun.endswith(("ch", "sh", "s", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return {"wife": "wives"}.get(noun, noun + "s")


def _fill(text: str, good: str, bad: str) -> Sentences:
    """Return a text with the good and with the bad word at its braces."""
    return Sentences(*(text.replace("{}", word) for word in (good, bad)))


def make_verb_agreement(rng: random.Random) -> Sentences:
    """The boys walk / walks every day."""
    verb, noun = rng.choice(PRESENT), rng.choice(PEOPLE)
    if rng.random() < 0.5:
        return _fill(f"The {make_plural(noun)} {{}} {rng.choice(ADVERBS)}.", *verb)
    return _fill(f"The {noun} {{}} {rng.choice(ADVERBS)}.", *verb[::-1])


def make_agreement_across_phrase(rng: random.Random) -> Sentences:
    """The letters near the house are / is old."""
    return _make_far_agreement(rng, THINGS, f"{rng.choice(PLACES)} the {{}}")


def make_agreement_across_clause(rng: random.Random) -> Sentences:
    """The boys that the king saw are / is old."""
    return _make_far_agreement(rng, PEOPLE, f"that the {{}} {rng.choice(ACTIONS)}")


def _make_far_agreement(rng: random.Random, nouns: Sequence[str], between: str) -> Sentences:
    """Return a subject and a verb, with a noun of the other number between them."""
    noun, other = rng.sample(nouns, 2)
    words = ("are", "is") if rng.random() < 0.5 else ("were", "was")
    if rng.random() < 0.5:
        noun = make_plural(noun)
    else:
        other, words = make_plural(other), words[::-1]
    return _fill(f"The {noun} {between.format(other)} {{}} {rng.choice(STATES)}.", *words)


def make_determiner_agreement(rng: random.Random) -> Sentences:
    """The king saw these houses / house."""
    noun, start = rng.choice(THINGS), f"The {rng.choice(PEOPLE)} {rng.choice(ACTIONS)}"
    plural = make_plural(noun)
    if rng.random() < 0.5:
        return _fill(f"{start} {rng.choice(('these', 'those'))} {{}}.", plural, noun)
    return _fill(f"{start} {rng.choice(('this', 'that'))} {{}}.", noun, plural)


def make_gender_of_anaphor(rng: random.Random) -> Sentences:
    """The queen hurt herself / himself in the evening."""
    end = rng.choice(ADVERBS)
    words, nouns = ("himself", "herself"), MEN
    if rng.random() < 0.5:
        words, nouns = words[::-1], WOMEN
    return _fill(f"The {rng.choice(nouns)} {rng.choice(REFLEXIVE)} {{}} {end}.", *words)


def make_number_of_anaphor(rng: random.Random) -> Sentences:
    """The boys hurt themselves / himself in the evening."""
    verb, end = rng.choice(REFLEXIVE), rng.choice(ADVERBS)
    if rng.random() < 0.5:
        noun = make_plural(rng.choice(MEN))
        return _fill(f"The {noun} {verb} {{}} {end}.", "themselves", "himself")
    return _fill(f"The {rng.choice(MEN)} {verb} {{}} {end}.", "himself", "themselves")


def make_participle(rng: random.Random) -> Sentences:
    """The king had hidden / hid it alone."""
    noun, end = rng.choice(PEOPLE), rng.choice(ADVERBS)
    participle, past = rng.choice(PARTICIPLES)
    if rng.random() < 0.5:
        return _fill(f"The {noun} {rng.choice(('has', 'had'))} {{}} it {end}.", participle, past)
    return _fill(f"The {noun} {{}} it {end}.", past, participle)


def make_negative_polarity(rng: random.Random) -> Sentences:
    """No / The boy has ever seen the house."""
    noun, thing = rng.choice(PEOPLE), rng.choice(THINGS)
    verb = rng.choice(FOUND)
    return _fill(f"{{}} {noun} has ever {verb} the {thing}.", "No", rng.choice(("The", "This")))


def make_negated_verb(rng: random.Random) -> Sentences:
    """The king did not walk / walks alone."""
    verb, end = rng.choice(PRESENT), rng.choice(ADVERBS)
    return _fill(f"The {rng.choice(PEOPLE)} did not {{}} {end}.", *verb)


def make_order_of_negation(rng: random.Random) -> Sentences:
    """The king is not old. / The king not is old."""
    verb, state = rng.choice(("is", "was")), rng.choice(STATES)
    start = f"The {rng.choice((*PEOPLE, *THINGS))}"
    return Sentences(f"{start} {verb} not {state}.", f"{start} not {verb} {state}.")


GROUPS: Mapping[str, Callable[[random.Random], Sentences]] = {
    "agreement of the verb": make_verb_agreement,
    "agreement across a phrase": make_agreement_across_phrase,
    "agreement across a clause": make_agreement_across_clause,
    "agreement of the determiner": make_determiner_agreement,
    "gender of an anaphor": make_gender_of_anaphor,
    "number of an anaphor": make_number_of_anaphor,
    "participle": make_participle,
    "negative polarity": make_negative_polarity,
    "verb under negation": make_negated_verb,
    "order of negation": make_order_of_negation,
}


def make_pairs(each: int, seed: int = 0) -> list[dict[str, str]]:
    """Return `each` different pairs of each group, the same for the same seed.

    Raises:
      ValueError: a template has fewer sentences.
    """
    pairs = []
    for group, make in GROUPS.items():
        rng, found = random.Random(f"{seed} {group}"), {}
        for _ in range(20 * each):
            sentences = make(rng)
            found.setdefault(sentences.good, sentences)
            if len(found) == each:
                break
        else:
            raise ValueError(f"--each {each}: {group} has about {len(found)} different pairs")
        pairs += [{**one._asdict(), "group": group} for one in found.values()]
    return pairs


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("output", type=pathlib.Path, help="a new file of JSON lines")
    parser.add_argument("--each", type=int_at_least(1), default=200, help="pairs of each group")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with report_errors(parser):
        pairs = make_pairs(args.each, args.seed)
        with open(args.output, "x") as file:
            file.writelines(json.dumps(pair) + "\n" for pair in pairs)
    print(f"{len(pairs):,} pairs in {len(GROUPS)} groups: {args.output}")


if __name__ == "__main__":
    main()
