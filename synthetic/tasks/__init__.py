"""The tasks: inputs and right answers."""
