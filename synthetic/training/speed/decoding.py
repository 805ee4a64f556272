"""What `bench decode` says: the next token's time beside the machine's limits and the layers' capacities."""

from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from iha_theory.bounds.price import Priced, prices
from iha_theory.cli import output
from iha_theory.speed import decode, measure
from synthetic.training.program import find_device

HEADS, RANK, WIDTH = 4, 16, 256
"""P = 2 with global collapse."""


def run(rounds: int, device: str, console: Console, found: dict[str, Any]) -> None:
    """The next token at all lengths, and what the machine's limits say."""
    device = str(find_device(device))
    priced = {row.name: row for row in prices(HEADS, RANK, embed_dim=WIDTH)}
    peaks = found["peaks"] = measure.peaks(device)
    found["environment"] = measure.environment(device)
    flops_per_s, bytes_per_s = peaks["product_flops_per_s"], peaks["copy_bytes_per_s"]
    found["balance"] = flops_per_s / bytes_per_s
    iha = priced["iha, mixed maps"]
    assert iha.pseudo_heads is not None
    found["paper"] = [
        {**asdict(one), "balance": one.balance}
        | {"free_rows": decode.most_free_rows(one.balance, 2, iha.pseudo_heads, iha.head_dim)}
        for one in decode.PAPER
    ]
    found["decode"] = []

    def generator(row: Priced) -> decode.Generator:
        layer = row.build(device=device)
        return decode.Generator(layer, row.cache_for(layer), row.mix)

    def limit(row: Priced, length: int) -> float:
        return max(row.flops(length) / flops_per_s, 4 * row.cache * length / bytes_per_s)

    make = {name: partial(generator, row) for name, row in priced.items()}
    for length in output.progress([(f"{n} tokens", n) for n in decode.LENGTHS], "decode"):
        for measured in decode.times(make, length, rounds, device):
            row = priced[measured["layer"]]
            known = {"rank": row.rank, "rows": row.rows, "cache_formula": row.cache, "flops_a_byte": row.intensity()}
            over = limit(row, length) / limit(priced["mha"], length)
            found["decode"].append(measured | known | {"limit_over_mha": over})
    columns = ("tokens", "layer", "ms", "over MHA", "limit", "cache MiB", "rank", "rows", "FLOPs a byte", "n")
    rows = [
        (
            *(str(b["length"]), b["layer"], f"{1e3 * b['median_s']:.3f}", f"{b['over_first']:.2f}"),
            *(f"{b['limit_over_mha']:.2f}", f"{b['cache_bytes'] / 2**20:.1f}", str(b["rank"]), str(b["rows"])),
            *(f"{b['flops_a_byte']:.3g}", str(b["n"])),
        )
        for b in found["decode"]
    ]
    console.print(output.table([(name, i != 1) for i, name in enumerate(columns)], rows))
    console.print(
        f"A matrix product does {flops_per_s / 1e9:.0f} GFLOP/s and a copy moves {bytes_per_s / 1e9:.0f} GB/s here: "
        f"attention of up to {found['balance']:.1f} FLOPs a byte of the cache takes no longer than reading it.",
        soft_wrap=True,
    )
    for one in found["paper"]:
        console.print(
            f"On paper, {one['name']}: {one['balance']:.0f} FLOPs a byte, so mixed maps with P = {iha.pseudo_heads}, "
            f"d = {iha.head_dim} are free up to H P = {one['free_rows']}.",
            soft_wrap=True,
        )
    console.print(", ".join(f"{name} {value}" for name, value in found["environment"].items()), soft_wrap=True)
