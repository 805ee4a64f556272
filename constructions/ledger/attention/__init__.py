"""Statements on the layers themselves: definitions, MHA inside IHA, the start of training."""
