"""Benchmarks that need more than a layer.

- `decoding`: the next token of layers with caches, beside their capacities and the machine's limits.
- `labels`: CPM-3's labels against the triple loop of the definition.
"""
