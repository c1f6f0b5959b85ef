"""Cloze as one import package, in the wheel: `cloze.pretrain`, `cloze.models`, `cloze.data`.

A checkout has the same packages without `cloze.`; distribution/cloze_backend.py makes these.
"""
