"""All that reads or writes a run's folder."""
