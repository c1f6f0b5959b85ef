"""Mutations of a file: of its bytes, or of a value of its JSON; each is a function of its seed."""

import copy
import json
import random

NUMBERS = (
    0, -1, 1, 2, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**40, 0.5, -1e308, 1e-320, 4_000_000_000,
)  # fmt: skip
TEXTS = ("", "x", "\0", "\x1b[31m", "a\nb", "../../etc/passwd", "/dev/zero", "\ud800", "数学", "(a|aa)+$", "x" * 5000, "1e999", "NaN")  # fmt: skip
VALUES = (
    *NUMBERS, *TEXTS, None, True, False, [], {}, [[]], {"": None}, [0] * 300, {"a": {"a": []}},
)  # fmt: skip
TOKENS = (b"1e999", b"NaN", b"-Infinity", b"null", b"[[[[", b'"', b"\\", b"\\ud800", b"{", b"}", b"]", b",", b"0", b"9" * 40, b"\xff\xfe", b"\0", b"\n", b"\xed\xa0\x80", b"4000000000")  # fmt: skip


def mutate(content: bytes, seed: int) -> bytes:
    """Return a changed file: one in two by its values if it is JSON, else by its bytes."""
    rng = random.Random(seed)
    if rng.random() < 0.6:
        try:
            tree = json.loads(content)
        except ValueError:
            pass
        else:
            return mutate_tree(tree, rng)
    return mutate_bytes(content, rng)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change one to four places of a file."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        # Headers come first, and few bytes of them are read by themselves.
        at = rng.randrange(min(64, len(changed) + 1)) if rng.random() < 0.3 else at
        length = rng.choice((1, 1, 2, 8, 40, 400))
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            del changed[at:]
        elif kind == 5:
            changed[at : at + length] = rng.randbytes(length)
        else:
            other = rng.randrange(len(changed) + 1)
            changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def mutate_tree(tree, rng: random.Random) -> bytes:
    """Change one to three values of a JSON tree."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        tree = mutate_value(tree, rng)
    text = json.dumps(tree)
    if rng.random() < 0.05:  # a key twice
        text = text.replace("{", '{"model": 1, "model": 2, ', 1)
    return text.encode()


def mutate_value(tree, rng: random.Random):
    """Return the tree with a value that is replaced, removed, moved, or has another key."""
    places = []
    waiting = [tree]
    while waiting and len(places) < 3000:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            keys = list(one) if isinstance(one, dict) else range(len(one))
            places += [(one, key) for key in keys]
            waiting += [one[key] for key in keys]
    if not places or rng.random() < 0.02:
        return rng.choice(VALUES)
    # Values at the top are few, and decide more than the pieces of a vocabulary.
    box, key = rng.choice(places[: 40 if rng.random() < 0.5 else None])
    kind = rng.randrange(6)
    if kind < 3:
        box[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 3:
        del box[key]
    elif kind == 4:
        other, place = rng.choice(places)
        if place in other if isinstance(other, dict) else place < len(other):
            box[key] = copy.deepcopy(other[place])
    elif isinstance(box, dict):
        box[rng.choice(TEXTS)] = box.pop(key)
    else:
        box.insert(key, copy.deepcopy(box[key]))
    return tree
