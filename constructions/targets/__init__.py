"""Other targets: convolutions, state-space models, MHA inside IHA, content in the queries (`content`), parity."""
