"""Statements on content in queries, keys and values."""
