"""Constructions in files: safetensors that load into the layers of `iha_theory.attention`, strictly.

A file holds the layers of one graph, one number of terms and one tolerance. The tensors of the layer `iha` are named
`iha.q_proj.weight` and so on: without the prefix they are its state dict. The file's metadata (texts) are

- schema, version; graph, terms, normalisation, tolerance (0 = exact), width: what the layers represent, d the width;
- layers: JSON, for each layer its class, constructor options, heads, pseudo_heads, readout [name, start, width], name,
  source;
- sha256: of the tensors and of the other metadata, so that a file that was damaged or edited is known as such.

    layer, = read("iha.safetensors").constructions.values()
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from constructions.construction import Block, Construction
from iha_theory import __version__
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention, TwoLayerAttention
from iha_theory.places import replace

SCHEMA = "iha-theory/weights/1"
CLASSES: dict[str, Any] = {c.__name__: c for c in (MultiHeadAttention, InterleavedHeadAttention, TwoLayerAttention)}
FIELDS = ("graph", "terms", "normalisation", "tolerance", "width", "layers", "sha256", "version")


@dataclass(frozen=True)
class WeightFile:
    """What a file holds.

    Attributes:
        graph: its name.
        terms: k.
        normalisation: of the adjacency matrix that the layers represent.
        tolerance: the relative error that the layers were made for; 0 for exact ones.
        constructions: by the name of the layer: "mha", "iha", ...
        intact: whether tensors and metadata are as they were written.
    """

    graph: str
    terms: int
    normalisation: str
    tolerance: float
    constructions: Mapping[str, Construction]
    intact: bool = True


def write(path: str | Path, content: WeightFile) -> None:
    """Writes the constructions' weights and what is needed to rebuild their layers.

    Raises:
        ValueError: no construction, or one whose layer is of another class.
        OSError: the file cannot be written.
    """
    if not content.constructions:
        raise ValueError("there are no weights to write")
    tensors = {
        f"{name}.{key}": tensor.detach().contiguous()
        for name, construction in content.constructions.items()
        for key, tensor in construction.layer.state_dict().items()
    }
    layers = {name: _describe(construction) for name, construction in content.constructions.items()}
    metadata = {
        "schema": SCHEMA,
        "version": __version__,
        "graph": content.graph,
        "terms": str(content.terms),
        "normalisation": content.normalisation,
        "tolerance": repr(float(content.tolerance)),
        "width": str(next(iter(content.constructions.values())).width),
        "layers": json.dumps(layers),
    }
    replace(Path(path), save(tensors, metadata | {"sha256": digest(tensors, metadata)}))


def read(path: str | Path) -> WeightFile:
    """The layers of a file, with its weights loaded (`load_state_dict`, strict).

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a file that `write` made; missing, unknown or misshapen tensors. In one line.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    if metadata.get("schema") != SCHEMA or not set(FIELDS) <= set(metadata):
        raise ValueError(f"{path} holds no weights of iha-theory heads (schema {SCHEMA})")
    try:
        width, layers = int(metadata["width"]), json.loads(metadata["layers"])
        built = {name: _build(name, description, tensors, width) for name, description in layers.items()}
        unknown = [key for key in tensors if key.split(".")[0] not in built]
        if unknown or not built:
            raise ValueError(f"tensor {unknown[0]} belongs to no layer" if unknown else "it names no layer")
        return WeightFile(
            graph=metadata["graph"],
            terms=int(metadata["terms"]),
            normalisation=metadata["normalisation"],
            tolerance=float(metadata["tolerance"]),
            constructions=built,
            intact=metadata.pop("sha256") == digest(tensors, metadata),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of all tensors, with their names, dtypes and shapes, and of the metadata."""
    total = hashlib.sha256(json.dumps(dict(sorted(metadata.items()))).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.view(torch.uint8).numpy().tobytes() if tensor.ndim else tensor.numpy().tobytes())
    return total.hexdigest()


def _describe(construction: Construction) -> dict[str, Any]:
    layer: Any = construction.layer
    if isinstance(layer, TwoLayerAttention):
        options = _options(layer.first)
        shared = {name: options.pop(name) for name in ("embed_dim", "num_heads")}
        last = _options(layer.second)
        options = shared | {
            "first": options,
            "second": {name: last[name] for name in last if name not in ("embed_dim", "num_heads", "vdim")},
        }
    elif type(layer) in (MultiHeadAttention, InterleavedHeadAttention):
        options = _options(layer)
    else:
        raise ValueError(f"cannot write a {type(layer).__name__}: accepted are {', '.join(CLASSES)}")
    return {
        "class": type(layer).__name__,
        "options": options,
        "heads": construction.heads,
        "pseudo_heads": construction.pseudo_heads,
        "readout": [[block.name, block.start, block.width] for block in construction.readout],
        "name": construction.name,
        "source": construction.source,
    }


def _options(layer: Any) -> dict[str, Any]:
    """The constructor's arguments; windows, rotary positions, biases and dropout do not occur in constructions."""
    projected = layer.out_proj is not None
    names = ("embed_dim", "num_heads", "kdim", "vdim", "head_dim", "value_head_dim", "pattern", "scale")
    options = {name: getattr(layer, name) for name in names} | {"out_proj": projected}
    if projected:
        options["out_dim"] = layer.out_dim
    if isinstance(layer, InterleavedHeadAttention):
        options |= {"num_pseudo_heads": layer.num_pseudo_heads, "collapse": layer.collapse_kind}
    return options


def _build(name: str, description: Mapping[str, Any], tensors: Mapping[str, Tensor], width: int) -> Construction:
    """The layer is made without memory, so that sizes that do not fit the tensors are an error and nothing more."""
    own = {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
    if any(tensor.dtype != torch.float64 for tensor in own.values()):
        raise ValueError(f"{name}: the weights must be float64")
    with torch.device("meta"):
        layer = CLASSES[description["class"]](**description["options"], dtype=torch.float64)
    layer.load_state_dict(own, strict=True, assign=True)
    layer.requires_grad_(True)
    readout = tuple(Block(str(text), int(start), int(size)) for text, start, size in description["readout"])
    return Construction(description["name"], description["source"], layer, readout, width)
