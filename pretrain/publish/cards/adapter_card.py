"""What the model card of a LoRA adapter says: its settings, and how it is loaded on its base."""

from collections.abc import Iterator, Sequence
from typing import Any

from models.config.classifier import ClassifierConfig
from models.config.tagger import TaggerConfig
from pretrain.publish.cards.card_texts import format_literal
from pretrain.settings import Train

UNNAMED = "BASE"  # stands for a base that is in no repository


def list_facts(train: Train) -> Iterator[tuple[str, str]]:
    """Yield the rows (name, value) of the table of facts on LoRA."""
    yield (
        "LoRA",
        f"rank {train.lora_rank}, alpha {train.lora_alpha:g}, dropout {train.lora_dropout:g}, of "
        + ", ".join(train.lora_targets),
    )


def list_loading_lines(model: Any, lines: Sequence[str], place: str, base: str) -> list[str]:
    """Return lines of Python that load an adapter with `peft`, and use it.

    The tokenizer is the base's, and so is the model that the adapter changes.

    Args:
      lines: the lines that load and use a whole model from `place`.
      base: the repository of the base.
    """
    opened, given = f'"{format_literal(place)}"', f'"{format_literal(base)}"'
    labels = ""
    if isinstance(model, (ClassifierConfig, TaggerConfig)):
        labels = f", num_labels={max(1, len(model.labels))}"
    loading = [
        line.replace(f"model={opened}", "model=model, tokenizer=tokenizer").replace(opened, given)
        for line in lines
    ]
    base_line = next(i for i, line in enumerate(loading) if line.startswith("model = "))
    loading[base_line] = loading[base_line].removesuffix(")") + f"{labels})"
    loading.insert(base_line + 1, f"model = PeftModel.from_pretrained(model, {opened})")
    return ["from peft import PeftModel", *loading]
