"""What trained layers are, beside the constructions. `structure`: the measures; `command`: `learned`."""
