"""Statements on parameters, FLOPs and reported numbers."""
