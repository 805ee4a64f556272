"""Explicit weights in real layers, and the statements that they prove.

- `construction`: what a construction is: a torch layer, and where each thing is in its output.
- `polynomial`, `reduced`, `tiled`, `two_layer`, `approximate`, `product_fit`: the filter bank.
- `cpm3`, `causal`, `histogram`, `mlp`: CPM-3, and its network behind the attention; filter banks under a causal mask.
- `temperature`, `compact`: softmax in place of hard attention; positions in two numbers.
- `convolution`, `state_space`, `inclusion`, `content` (folder): other targets; MHA in IHA; content in the queries.
- `checks`, `measure`: a construction against an independent answer. `suite`: the checks that `iha-theory verify` runs.
- `head_counts`, `exact_heads`, `approximate_heads`, `weight_files`: heads for a given graph, and files of weights.
- `learned`: what trained layers are, beside the constructions.
- `ledger`: every statement of the theory, with a verdict computed when asked.

May import `synthetic` and `iha_theory`.
"""
