"""One run a file: `config() -> Run`. The docstring says the command, the hardware, the time and the result."""
