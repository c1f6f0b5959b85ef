"""One run a file: `config() -> Run`.

The docstring has the command, and where the run was made the hardware, the time and the result.
"""
