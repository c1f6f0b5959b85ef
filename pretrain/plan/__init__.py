"""What a run would do on machines that are not here: compiled for them, read from the compiled program, never guessed."""
