"""Modelling files that exports carry, for families that Hugging Face transformers lacks.

NAME.py is copied as it is into each export of the family NAME, where `trust_remote_code=True` runs
it. It needs torch and transformers, and nothing of this project, which never imports it.
"""
