"""Which hand-made operations a run uses: those that are right on its devices."""
