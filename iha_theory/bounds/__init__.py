"""Lower bounds on heads, exactly or within an error, and what proves them.

- `heads`: heads from a rank, error floors, heads at a tolerance.
- `content`: the same where queries may use content.
- `exact_rank`: the rank of powers or of any bank, exactly, with a certificate.
- `obstruction`: why no layer has a bit more, run on layers with random weights.
- `parity`, `parity_errors`: bits of parity by one layer, and how often a layer with too few rows is wrong.
- `price`: what a capacity costs: the smallest IHA that has it, beside MHA.
- `witness`: an input on which a layer with too few heads is wrong, for any module.
- `certificates`: certificates, and code that checks them without knowing how they were found; imports nothing of ours.
"""
