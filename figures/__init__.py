"""Pictures: each module draws one, as SVG and PNG, with its data beside it as CSV.

- `heads`: heads of MHA and IHA against the size of the task, from exact checks and certificates.
- `bits`: heads of CPM-3 against bits per number, from checks and the proved bound.
- `floors`, `frontier`: trained runs, from their records: error against theory's floor; learning CPM-3.
- `reasoning`: accuracy of attentions on the reasoning tasks.
- `spectra`: Schmidt spectra of real graphs, and heads at a tolerance.
- `costs`: parameters, FLOPs and attention maps, from closed forms.
- `records` (runs as read from files), `groups` (what may be pooled), `style` (one look, how files are written).

Every seed is drawn, with the median; an exact zero is drawn as such. May import from all other packages. What a picture
shows is computed by them.
"""
