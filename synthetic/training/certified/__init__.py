"""Claims about finished runs that can be checked without training, by code that shares nothing with this.

- `accepted`: which runs can be certified.
- `claim`: the exact error of a run's weights, its distance to the floor, and the file that says so.
- `spectrum`: rigorous enclosures of the eigenvalues behind the floor.

What checks them: `constructions.certified.check`.
"""
