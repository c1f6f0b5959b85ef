"""The paragraphs of benchmarks/results/downstream.md; `downstream_page` fills in the figures."""

ENCODER_TEXT = """The encoder: `{name}` at step {step:,}, {depth} layers of width {width}, {vocab:,}
tokens in the vocabulary, trained on {million:.1f} M tokens. On its own held-out rows:
{loss:.3f} nats a masked token, perplexity {perplexity:.0f}, {share:.1f} % correct. Its last
rows were {length} tokens long and no sentence pairs: later positions, the pooler and the second
token type, which pairs use, are untrained. It was made by {made}."""
METHOD_TEXT = """Each command runs from the encoder and, with `--fresh all`, from random weights of
the same model: {settings}. Only the head has dropout. Three seeds, 0 to 2, of the new weights,
the order of the examples and the dropout. Figures are in hundredths, mean ± sample standard
deviation. The dtype is float32 unless a command below has bfloat16.

**The reported epoch of each run is the best one on the held-out file itself**: with several
epochs this is optimistic, equally for both starts. If there is a further file, a second row has
the scores of the same checkpoint on it. "Most frequent class" predicts the most frequent class of
the training examples; there is none for scores. A gain "within the spreads" is not larger than
the sum of the two standard deviations: it is no evidence of a difference.

How the rates were chosen: {rates}. SST-2 is trained on the 6,920 whole sentences, a tenth of
the examples in GLUE's file of phrases, in a tenth of the time."""
RATES_TEXT = """one trial on SST-2, rows of 32, one epoch, seed 0, the accuracy on the
reported file: from the encoder 68.2, 72.7 and 49.1 at 1e-4, 3e-4 and 1e-3, from random weights
72.4 and 49.1 at 3e-4 and 1e-3; 49.1 is the score of one answer for all"""
PEER_TEXT = """`transformers.Trainer` with `AutoModelForSequenceClassification`, loaded from the
`export` of a run before its first step (so the new head is the same), with the same batches in
the same order, AdamW, warm-up and linear decay, gradient clipping, float32, no weight decay of
biases and norms. Only the head has dropout, and its random numbers differ. Scores: the best of
the epochs, as above, mean ± sample standard deviation of the same three seeds."""
LOSSES_TEXT = """Without dropout there are no random numbers, and both programs train alike: the
losses of {task}'s first {steps:,} steps, an epoch, differ by at most {apart:.0e}. Scores differ
by dropout and by the growth of rounding errors."""
TIMES_TEXT = """{versions}. Three programs in turns of a quarter of an epoch: the median of the
turns and, in brackets, the best, as seconds of a whole epoch; then the CPU seconds of both cores
together, which other work on the machine disturbs less. Ratios likewise. Cloze's times include
its input pipeline, with {layers} layers; PyTorch's batches are tensors in memory. *tuned* is a
hand-written loop instead of the Trainer; glibc keeps its pages and MKL uses AVX-512."""
