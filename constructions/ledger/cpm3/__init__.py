"""Statements on CPM-3."""
