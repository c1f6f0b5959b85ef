"""How `train --from` begins a run with the parameters of another model."""
