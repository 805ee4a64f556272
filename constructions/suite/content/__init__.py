"""Checks of layers that see content: parity, relations."""
