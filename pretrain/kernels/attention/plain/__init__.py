"""The plain equations of attention, in the fastest way that XLA has."""
