"""The ledger: every statement of the theory of the paper, and of ours, with a verdict computed when asked."""
