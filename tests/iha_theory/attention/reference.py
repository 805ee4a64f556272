"""The layers' definitions once more, in numpy float64 and plain loops; nothing here comes from the package.

Every function takes a layer only to read its parameters and options, and evaluates one sequence:
query (queries, embed_dim), key (keys, kdim), value (keys, vdim), allowed (queries, keys), positions of both.
"""

import math

import numpy as np
import torch

NEAR_TIE = 1e-9


def allowed_pairs(queries, keys, *, mask=None, is_causal=False, window=None):
    """True where query i may attend to key j, from the words of the convention."""
    allowed = np.zeros((queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            causal = not is_causal or j <= i
            near = window is None or abs(i - j) < window
            allowed[i, j] = causal and near and (mask is None or bool(mask[i, j]))
    return allowed


def weights(pattern, scores, allowed):
    """sigma(scores) over the allowed entries of each row, 0 elsewhere; scores (rows, entries)."""
    out = np.zeros_like(scores)
    for i in range(scores.shape[0]):
        js = [j for j in range(scores.shape[1]) if allowed[i, j]]
        if not js:
            continue
        row = scores[i, js]
        if pattern == "linear":
            out[i, js] = row
        elif pattern == "softmax":
            e = np.exp(row - row.max())
            out[i, js] = e / e.sum()
        else:
            best = row >= row.max() - NEAR_TIE * max(1.0, abs(row.max()))
            out[i, js] = best / best.sum()
    return out


def turn(x, positions, base):
    """Rotary positions as complex numbers: coordinates (c, c + width/2) are one number, turned by position * rate_c."""
    half = x.shape[-1] // 2
    rates = np.array([base ** (-c / half) for c in range(half)])
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(positions, rates))
    return np.concatenate([turned.real, turned.imag], axis=-1)


def parameter(layer, name):
    """A parameter, by name, as float64."""
    return layer.get_parameter(name).detach().double().numpy()


def project(layer, name, x, width):
    """x W^T + b as a list of heads (tokens, width)."""
    out = x @ parameter(layer, f"{name}.weight").T
    if getattr(layer, name).bias is not None:
        out = out + parameter(layer, f"{name}.bias")
    return [out[:, c : c + width] for c in range(0, out.shape[1], width)]


def join(layer, heads):
    """Concatenated heads, projected if the layer projects."""
    out = np.concatenate(heads, axis=-1)
    if layer.out_proj is None:
        return out
    return project(layer, "out_proj", out, layer.out_proj.out_features)[0]


def queries_and_keys(layer, query, key, positions):
    """Heads of queries and keys, turned if the layer is rotary by token."""
    q = project(layer, "q_proj", query, layer.head_dim)
    k = project(layer, "k_proj", key, layer.head_dim)
    if layer.rotary:
        q = [turn(x, positions[0], layer.rotary_base) for x in q]
        k = [turn(x, positions[1], layer.rotary_base) for x in k]
    return q, k


def mha(layer, query, key, value, allowed, positions):
    """O_h = sigma(scale Q_h K_h^T) V_h."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    maps = [weights(layer.pattern, layer.scale * q[h] @ k[h].T, allowed) for h in range(layer.num_heads)]
    return join(layer, [maps[h] @ v[h] for h in range(layer.num_heads)])


def gqa(layer, query, key, value, allowed, positions):
    """Head h uses the key/value head h // (H / G)."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    size = layer.num_heads // layer.num_kv_heads
    out = [weights(layer.pattern, layer.scale * q[h] @ k[h // size].T, allowed) for h in range(layer.num_heads)]
    return join(layer, [out[h] @ v[h // size] for h in range(layer.num_heads)])


def mla(layer, query, key, value, allowed, positions):
    """K_h = c^K W_UK,h, V_h = c^V W_UV,h, and logits scale (Q_h K_h^T + QR_h KR^T), of which QR and KR are turned."""

    def down(name, x):
        name = "kv_down" if layer.kdim == layer.vdim and name != "q_down" else name
        return project(layer, name, x, getattr(layer, name).out_features)[0]

    latent_q = query if layer.q_down is None else down("q_down", query)
    q = project(layer, "q_proj", latent_q, layer.head_dim)
    k = project(layer, "k_proj", down("k_down", key), layer.head_dim)
    v = project(layer, "v_proj", down("v_down", value), layer.value_head_dim)
    scores = [q[h] @ k[h].T for h in range(layer.num_heads)]
    if layer.rotary:
        turned = [turn(x, positions[0], layer.rotary_base) for x in project(layer, "q_rope", latent_q, layer.rope_dim)]
        shared = turn(project(layer, "k_rope", key, layer.rope_dim)[0], positions[1], layer.rotary_base)
        scores = [scores[h] + turned[h] @ shared.T for h in range(layer.num_heads)]
    maps = [weights(layer.pattern, layer.scale * score, allowed) for score in scores]
    return join(layer, [maps[h] @ v[h] for h in range(layer.num_heads)])


def tensor_product(layer, query, key, value, allowed, positions):
    """Every query, key and value is (1/R) sum_r a_r[h] b_r, for each token and head by itself."""

    def products(which, of_heads, of_width, width):
        a = project(layer, f"{which}_heads", of_heads, layer.num_heads)
        b = project(layer, f"{which}_proj", of_width, width)
        tokens, ranks = range(len(of_width)), range(len(a))
        return [
            np.array([sum(a[r][n, h] * b[r][n] for r in ranks) / len(a) for n in tokens])
            for h in range(layer.num_heads)
        ]

    q = products("q", query, query, layer.head_dim)
    k = products("k", key, key, layer.head_dim)
    v = products("v", key, value, layer.value_head_dim)
    if layer.rotary:
        q = [turn(x, positions[0], layer.rotary_base) for x in q]
        k = [turn(x, positions[1], layer.rotary_base) for x in k]
    maps = [weights(layer.pattern, layer.scale * q[h] @ k[h].T, allowed) for h in range(layer.num_heads)]
    return join(layer, [maps[h] @ v[h] for h in range(layer.num_heads)])


def iha(layer, query, key, value, allowed, positions):
    """Definition 3, pseudo-major: blocks j stacked to Qbar_h in R^{NP x d}, one attention a head, collapse by R.

    Row j N + n of a stack is pseudo-head j of token n.
    """
    heads, pseudo = layer.num_heads, layer.num_pseudo_heads
    raw = [
        np.stack(project(layer, name, x, width))
        for name, x, width in (
            ("q_proj", query, layer.head_dim),
            ("k_proj", key, layer.head_dim),
            ("v_proj", value, layer.value_head_dim),
        )
    ]
    alphas = [parameter(layer, name) for name in ("alpha_q", "alpha_k", "alpha_v")]
    at = (positions[0], positions[1], None)

    def block(which, h, j):
        mixed = np.einsum("m,mnd->nd", alphas[which][:, h, j], raw[which])
        if not layer.rotary or at[which] is None:
            return mixed
        where = at[which] if layer.rotary == "token" else at[which] * pseudo + j
        return turn(mixed, where, layer.rotary_base)

    queries, keys = allowed.shape
    virtual = np.zeros((pseudo * queries, pseudo * keys), dtype=bool)
    for j in range(pseudo):
        for jj in range(pseudo):
            for n in range(queries):
                for nn in range(keys):
                    ok = allowed[n, nn]
                    if layer.reference_causal and layer.causality == "virtual":
                        ok = ok and nn * pseudo + jj <= n * pseudo + j
                    virtual[j * queries + n, jj * keys + nn] = ok

    pseudo_outputs = {}
    for h in range(heads):
        q, k, v = (np.concatenate([block(which, h, j) for j in range(pseudo)]) for which in range(3))
        out = weights(layer.pattern, layer.scale * q @ k.T, virtual) @ v
        for j in range(pseudo):
            pseudo_outputs[h, j] = out[j * queries : (j + 1) * queries]
    collapse = parameter(layer, "collapse")
    outputs = []
    for o in range(heads):
        total = np.zeros((queries, layer.value_head_dim))
        for (h, j), out in pseudo_outputs.items():
            if layer.collapse_kind == "global":
                total += collapse[o, h, j] * out
            elif h == o:
                total += collapse[h, j] * out
        outputs.append(total)
    return join(layer, outputs)


def gated(layer, query, key, value, allowed, positions):
    """O_h = g_h * sigma(scale Q_h K_h^T) V_h, g_h = 1 / (1 + exp(-query W_G,h)), of width d_v or 1."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    width = layer.value_head_dim if layer.gate == "elementwise" else 1
    gates = [1 / (1 + np.exp(-x)) for x in project(layer, "gate_proj", query, width)]
    maps = [weights(layer.pattern, layer.scale * q[h] @ k[h].T, allowed) for h in range(layer.num_heads)]
    return join(layer, [gates[h] * (maps[h] @ v[h]) for h in range(layer.num_heads)])


def talking_heads(layer, query, key, value, allowed, positions):
    """t_h = sum_g mix_logits[h,g] s_g; u_h = sum_g mix_weights[h,g] sigma(t_g)."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    hs = range(layer.num_heads)
    maps = [layer.scale * q[h] @ k[h].T for h in hs]
    if layer.mix_logits is not None:
        mix = parameter(layer, "mix_logits")
        maps = [sum(mix[h, g] * maps[g] for g in hs) for h in hs]
    maps = [weights(layer.pattern, m, allowed) for m in maps]
    if layer.mix_weights is not None:
        mix = parameter(layer, "mix_weights")
        maps = [sum(mix[h, g] * maps[g] for g in hs) for h in hs]
    return join(layer, [maps[h] @ v[h] for h in hs])


def differential(layer, query, key, value, allowed, positions):
    """(sigma(scale Q1 K1^T) - lambda sigma(scale Q2 K2^T)) V."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    lam, heads = parameter(layer, "lam"), layer.num_heads
    maps = [weights(layer.pattern, layer.scale * a @ b.T, allowed) for a, b in zip(q, k, strict=True)]
    return join(layer, [(maps[h] - lam[h] * maps[heads + h]) @ v[h] for h in range(heads)])


def simplicial(layer, query, key, value, allowed, positions):
    """s_ijl = scale sum_c q_ic k_jc k'_lc; out_i = sum_jl sigma(s_i)_jl v_j * v'_l."""
    return _pairs(layer, query, key, value, allowed, positions, lambda q, k, k2: np.sum(q * k * k2))


def strassen(layer, query, key, value, allowed, positions):
    """s_ijl = scale (<q_i, k_j> + <k_j, k'_l> + <k'_l, q_i>)."""
    return _pairs(layer, query, key, value, allowed, positions, lambda q, k, k2: q @ k + k @ k2 + k2 @ q)


def _pairs(layer, query, key, value, allowed, positions, logit):
    q = project(layer, "q_proj", query, layer.head_dim)
    k = project(layer, "k_proj", key, layer.head_dim)
    k2 = project(layer, layer.second_key, key, layer.head_dim)
    if layer.rotary:
        q = [turn(x, positions[0], layer.rotary_base) for x in q]
        k, k2 = ([turn(x, positions[1], layer.rotary_base) for x in xs] for xs in (k, k2))
    v = project(layer, "v_proj", value, layer.value_head_dim)
    v2 = project(layer, "v2_proj", key, layer.value_head_dim)
    queries, keys = allowed.shape
    pairs = [(j, m) for j in range(keys) for m in range(keys)]
    both = np.array([[allowed[i, j] and allowed[i, m] for j, m in pairs] for i in range(queries)])
    outputs = []
    for h in range(layer.num_heads):
        scores = [[layer.scale * logit(q[h][i], k[h][j], k2[h][m]) for j, m in pairs] for i in range(queries)]
        values = np.array([v[h][j] * v2[h][m] for j, m in pairs])
        outputs.append(weights(layer.pattern, np.array(scores), both) @ values)
    return join(layer, outputs)


def composable(layer, query, key, value, allowed, positions):
    """t[i,j] = (W + M^Q_i + M^K_j) s[i,j] as vectors over heads, before sigma and, with other parameters, behind it."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    hs = range(layer.num_heads)
    maps = np.stack([layer.scale * q[h] @ k[h].T for h in hs])

    def affine(name, x):
        bias = parameter(layer, f"{name}.bias") if f"{name}.bias" in dict(layer.named_parameters()) else 0
        return x @ parameter(layer, f"{name}.weight").T + bias

    def matrix(name, x):
        z = affine(f"{name}.inner", x)
        hidden = np.array([u * (1 + math.erf(u / math.sqrt(2))) / 2 for u in z])
        a, b = affine(f"{name}.outer", hidden).reshape(2, layer.num_heads, layer.rank)
        return a @ b.T + np.diag(np.tanh(affine(f"{name}.gate", x)))

    def composed(stage, maps):
        base = parameter(layer, f"mix_{stage}")
        of_query = [base + matrix(f"compose.{stage}_query", x) for x in query]
        of_key = [matrix(f"compose.{stage}_key", x) for x in key]
        out = np.zeros_like(maps)
        for i in range(len(query)):
            for j in range(len(key)):
                out[:, i, j] = (of_query[i] + of_key[j]) @ maps[:, i, j]
        return out

    maps = composed("logits", maps)
    maps = composed("weights", np.stack([weights(layer.pattern, m, allowed) for m in maps]))
    return join(layer, [maps[h] @ v[h] for h in hs])


def multi_token(layer, query, key, value, allowed, positions):
    """t_h[i,j] = sum_ab kernel[h,a,b] s_h[i - (c_q - 1) + a, j - floor(c_k / 2) + b]; u_h mixes the group of h."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    kernel, mix, size = parameter(layer, "kernel"), parameter(layer, "mix_weights"), layer.head_group
    maps = []
    for h in range(layer.num_heads):
        s = np.where(allowed, layer.scale * q[h] @ k[h].T, 0)
        t = np.zeros_like(s)
        for i, j, a, b in np.ndindex(*s.shape, *kernel[h].shape):
            row, column = i - (layer.query_window - 1) + a, j - layer.key_window // 2 + b
            if 0 <= row < s.shape[0] and 0 <= column < s.shape[1]:
                t[i, j] += kernel[h, a, b] * s[row, column]
        maps.append(weights(layer.pattern, t, allowed))
    outputs = []
    for h in range(layer.num_heads):
        first = h // size * size
        mixed = sum(mix[h // size, h - first, g] * maps[first + g] for g in range(size))
        outputs.append(mixed @ v[h])
    return join(layer, outputs)


def gated_linear(layer, query, key, value, allowed, positions):
    """Linear: scale q_i k_j exp(D_ij). Else sigma(scale q_i k_j + D_ij). D sums gates between that i may attend to."""
    q, k = queries_and_keys(layer, query, key, positions)
    v = project(layer, "v_proj", value, layer.value_head_dim)
    gates = [-np.log1p(np.exp(-x[:, 0])) / layer.temperature for x in project(layer, "decay_proj", key, 1)]
    outputs = []
    for h in range(layer.num_heads):
        scores, decays = layer.scale * q[h] @ k[h].T, np.zeros(allowed.shape)
        for i, j in np.ndindex(*allowed.shape):
            between = range(min(i, j) + 1, max(i, j) + 1)
            decays[i, j] = sum(gates[h][m] for m in between if allowed[i, m])
        scores = scores * np.exp(decays) if layer.pattern == "linear" else scores + decays
        outputs.append(weights(layer.pattern, scores, allowed) @ v[h])
    return join(layer, outputs)


def two_layer(layer, query, key, value, allowed, positions):
    """second(query, key, first(query, key, value))."""
    middle = mha(layer.first, query, key, value, allowed, positions)
    return mha(layer.second, query, key, middle, allowed, positions)


def evaluate(function, layer, query, key, value, *, mask=None, is_causal=False, positions=None):
    """The whole call by the reference, as a float64 tensor (batch, queries, out_dim)."""
    layer.reference_causal = is_causal  # the virtual order is not in `allowed`, which is over original tokens
    window = getattr(layer, "first", layer).window
    outputs = []
    for b in range(value.shape[0]):
        q, k = (x[b if x.shape[0] > 1 else 0].detach().double().numpy() for x in (query, key))
        one = None if mask is None else (mask if mask.ndim == 2 else mask[b if mask.shape[0] > 1 else 0]).numpy()
        allowed = allowed_pairs(len(q), len(k), mask=one, is_causal=is_causal, window=window)
        if positions is None:
            at = (np.arange(len(q)), np.arange(len(k)))
        else:
            row = (positions if positions.ndim == 1 else positions[b if positions.shape[0] > 1 else 0]).double().numpy()
            at = (row, row)
        outputs.append(function(layer, q, k, value[b].detach().double().numpy(), allowed, at))
    return torch.from_numpy(np.stack(outputs))
