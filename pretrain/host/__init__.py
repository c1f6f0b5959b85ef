"""The process and its machine: terminal, console, extras, memory, command lines."""
