"""Statements on the filter bank and other linear targets."""
