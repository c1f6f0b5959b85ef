"""Write the small files that the pages of docs/ use: `python docs/make_examples.py examples`.

They are made up and have the forms of the real files. Each command can be tried with them; they are
too small to learn anything of use.
"""

import csv
import json
import pathlib
import random
import struct
import sys
from pydoc_data.topics import topics

ADJECTIVES = "old new small large quiet bright heavy light".split()
NOUNS = "file list river string house module bank garden".split()
VERBS = "opens returns follows closes crosses finds".split()
GOOD = "good fine useful clear".split()
BAD = "bad dull broken slow".split()
NAMES = ["Ada Lovelace", "Alan Turing", "Grace Hopper"]
PLACES = ["Paris", "London", "New York"]
CHORDS = {"I": (0, 4, 7), "IV": (5, 9, 12), "V": (7, 11, 14), "vi": (9, 12, 16)}
PROGRESSIONS = ("I vi IV V", "I IV V I", "vi IV I V", "I V vi IV")


def write_lines(path: pathlib.Path, records: list[dict]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_table(path: pathlib.Path, records: list[dict]) -> None:
    """Write a .csv or .tsv whose first line names the columns."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def make_sentence(rng: random.Random) -> str:
    """Return a sentence of seven words."""
    one, other = rng.sample(NOUNS, 2)
    return f"The {rng.choice(ADJECTIVES)} {one} {rng.choice(VERBS)} the {other} at last."


def write_texts(folder, rng):
    """Write plain texts, one a line, and pairs of a source and a target."""
    texts = [make_sentence(rng) for _ in range(40)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    masked = [text.replace(rng.choice(text.split()[1:3]), "[MASK]", 1) for text in texts[:8]]
    (folder / "masked.txt").write_text("\n".join(masked) + "\n")
    books = folder / "my_texts"
    books.mkdir(exist_ok=True)
    for name in sorted(topics)[:40]:  # real English that is on every machine
        (books / f"{name.lower().replace(' ', '_')}.txt").write_text(topics[name])
    pairs = [{"source": text, "target": text.lower().rstrip(".")} for text in texts]
    write_lines(folder / "pairs.jsonl", pairs[:32])
    write_lines(folder / "pairs_dev.jsonl", pairs[32:])
    senses = [
        {"text": f"The {adjective} bank {verb} the {noun}.", "sense": noun}
        for adjective in ADJECTIVES[:4]
        for verb, noun in (("crosses", "river"), ("opens", "file"))
    ]
    write_lines(folder / "sentences.jsonl", senses)


def write_articles(folder, rng):
    """Write articles of four fields: pieces of the texts of Python's help, some without authors."""
    articles = []
    for name in sorted(topics):
        words = topics[name].split()
        for number, start in enumerate(range(0, min(len(words), 120) - 15, 30)):
            article = {
                "domain": "docs.python.org",
                "headline": f"{name.lower()}, part {number + 1}",
            }
            article |= {"authors": ["The Python developers"]} if number % 2 == 0 else {}
            articles.append(article | {"body": " ".join(words[start : start + 30])})
    write_lines(folder / "articles.jsonl", articles)


def write_labelled(folder, rng):
    """Write texts with a class or a score, and pairs of texts."""
    reviews = []
    for number in range(48):
        word = rng.choice((BAD, GOOD)[number % 2])
        label = ("negative", "positive")[number % 2]
        reviews.append({"text": f"{make_sentence(rng)} It is {word}.", "label": label})
    write_lines(folder / "train.jsonl", reviews[:32])
    write_lines(folder / "dev.jsonl", reviews[32:])
    likes = [
        {"title": row["text"][:20], "body": row["text"], "stars": 1 + 3 * (n % 2) + n % 3 / 2}
        for n, row in enumerate(reviews)
    ]
    write_table(folder / "likes.csv", likes)
    for name, first, second, labels in (
        ("mrpc", "sentence1", "sentence2", ("0", "1")),
        ("rte", "premise", "hypothesis", ("not_entailment", "entailment")),
    ):
        rows = []
        for number in range(32):
            text = make_sentence(rng)
            other = (make_sentence(rng), text)[number % 2]
            rows.append({first: text, second: other, "label": labels[number % 2]})
        write_table(folder / f"{name}_train.tsv", rows[:24])
        write_table(folder / f"{name}_dev.tsv", rows[24:])
    rows = [{"sentence": make_sentence(rng), "label": str(n % 2)} for n in range(32)]
    write_table(folder / "cola_train.tsv", rows[:24])
    write_table(folder / "cola_dev.tsv", rows[24:])
    tests = [{"index": n, "sentence": row["sentence"]} for n, row in enumerate(rows[24:])]
    write_table(folder / "cola_test.tsv", tests)


def write_tags(folder, rng):
    """Write sentences with a tag for each word, in CoNLL's columns."""
    for name, count in (("train", 24), ("dev", 8)):
        sentences = []
        for _ in range(count):
            rows = [(word, "O") for word in make_sentence(rng).split()]
            for kind, names in (("person", NAMES), ("place", PLACES)):
                first, *rest = rng.choice(names).split()
                rows += [("and", "O"), (first, f"B-{kind}")] + [(w, f"I-{kind}") for w in rest]
            sentences.append("".join(f"{word}\t{tag}\n" for word, tag in rows))
        (folder / f"{name}.conll").write_text("\n".join(sentences))


def write_choices(folder, rng):
    """Write questions with two endings in SWAG's form."""
    rows = []
    for number in range(24):
        endings = [f"is {rng.choice(GOOD)}.", f"is {rng.choice(BAD)}."]
        row = {"sent1": make_sentence(rng), "sent2": "It", "label": number % 2}
        rows.append(row | {"ending0": endings[number % 2], "ending1": endings[1 - number % 2]})
    write_table(folder / "swag_train.csv", rows[:16])
    write_table(folder / "swag_dev.csv", rows[16:])


def write_questions(folder, rng):
    """Write questions and contexts in the JSON of SQuAD 1.1 and 2.0."""
    for version in ("1.1", "2.0"):
        for name, count in (("train", 16), ("dev", 6)):
            paragraphs = [make_paragraph(rng, number, version) for number in range(count)]
            data = {"version": version, "data": [{"title": "-", "paragraphs": paragraphs}]}
            (folder / f"{name}-v{version}.json").write_text(json.dumps(data))
    questions = [
        {"id": "1", "question": "Where does she live?", "context": "Ada lives in Paris."},
        {"id": "2", "question": "Where does he live?", "context": "Alan lives in London."},
    ]
    write_lines(folder / "questions.jsonl", questions)
    tasks = [
        {"context": "Ada lives in", "choices": ["Paris.", "the file."], "answer": 0},
        {"context": "The list is", "choices": ["a river.", "empty."], "answer": 1},
        {"context": "Open the", "choices": ["file.", "of."], "answer": 0},
    ]
    write_lines(folder / "choices.jsonl", tasks)
    words = [make_sentence(rng).rstrip(".") for _ in range(4)]
    write_lines(folder / "last_words.jsonl", [{"text": text} for text in words])


def make_paragraph(rng, number, version):
    """Return a context with one question; of version 2.0 every second has no answer."""
    name, place = rng.choice(NAMES), rng.choice(PLACES)
    context = f"{make_sentence(rng)} {name} lives in {place}. {make_sentence(rng)}"
    is_impossible = version == "2.0" and number % 2 == 1
    answer = {"text": place, "answer_start": context.index(place)}
    verb = "work" if is_impossible else "live"
    question = {"id": f"{version}-{number}", "question": f"Where does {name} {verb}?"}
    question["answers"] = [] if is_impossible else [answer]
    if version == "2.0":
        question["is_impossible"] = is_impossible
    return {"context": context, "qas": [question]}


def write_images(folder, rng):
    """Write captions and images of 28 x 28 pixels in folders by class, in the simplest BMP."""
    captions = []
    for label in ("across", "down"):
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        for i in range(40):
            width, front, ground = rng.randint(2, 4), rng.randint(150, 255), rng.randint(0, 100)
            start = rng.randrange(8)
            rows = [
                [
                    front if ((y if label == "across" else x) + start) // width % 2 else ground
                    for x in range(28)
                ]
                for y in range(28)
            ]
            write_bitmap(folder / "images" / label / f"{i:02}.bmp", rows)
            captions.append({"image": f"{label}/{i:02}.bmp", "caption": f"stripes that go {label}"})
    write_lines(folder / "images" / "captions.jsonl", captions)


def write_bitmap(path, rows):
    """Write rows of brightness as a BMP of 24 bits, whose rows begin at the bottom."""
    pixels = b"".join(bytes(value for value in row for _ in range(3)) for row in reversed(rows))
    sizes = struct.pack(
        "<IiiHHIIiiII", 40, len(rows[0]), len(rows), 1, 24, 0, len(pixels), *[0] * 4
    )
    path.write_bytes(b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + sizes + pixels)


def write_midi(folder, rng):
    """Write 60 pieces of eight bars as MIDI: broken chords below a melody in quarters."""
    (folder / "midi").mkdir(exist_ok=True)
    for i in range(60):
        key, events = rng.randint(55, 65), []
        for bar, name in enumerate(2 * rng.choice(PROGRESSIONS).split()):
            chord = CHORDS[name]
            broken = [(8 * bar + n, 1, chord[(0, 1, 2, 1)[n % 4]] - 12) for n in range(8)]
            tune = [(8 * bar + 2 * n, 2, rng.choice(chord) + 12) for n in range(4)]
            for start, length, pitch in broken + tune:
                events.append((240 * start, 0x90, key + pitch, rng.randint(64, 80)))
                events.append((240 * (start + length) - 10, 0x80, key + pitch, 0))
        now, track = 0, b""
        for tick, *message in sorted(events):
            delta, now = tick - now, tick
            track += bytes([0x80 | delta >> 7, delta & 0x7F, *message])
        track += bytes([0, 0xFF, 0x2F, 0])
        head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, 480)
        (folder / "midi" / f"{i:02}.mid").write_bytes(
            head + b"MTrk" + struct.pack(">I", len(track)) + track
        )


def main(folder="examples"):
    """Write all files into a folder."""
    folder, rng = pathlib.Path(folder), random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for write in (write_texts, write_labelled, write_tags, write_choices, write_questions):
        write(folder, rng)
    write_articles(folder, rng)
    write_images(folder, rng)
    write_midi(folder, rng)
    print(f"{len(list(folder.iterdir()))} files in {folder}/")


if __name__ == "__main__":
    main(*sys.argv[1:])
