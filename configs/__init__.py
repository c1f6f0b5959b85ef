"""One run a file: `config() -> Run`.

A file's docstring is its recipe, which `describe` prints and docs/recipes.md collects: what it is,
its size, corpora, vocabulary, the commands of all phases, and the cost where it is known.
"""

# The verbs of a first run, with their arguments, as `--help` shows them.
FIRST_RUN = (
    "prepare builtin --output runs/builtin --vocab-size 4096",
    "inspect bert_tiny --rows 1",
    "train bert_tiny --workdir runs/bert_tiny",
    'predict --workdir runs/bert_tiny "Return the [MASK]."',
)
