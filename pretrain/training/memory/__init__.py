"""The memory of a run: its estimate before anything is compiled, and what would need less."""
