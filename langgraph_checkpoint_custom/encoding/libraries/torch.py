"""torch's tensors in the memory of the CPU: dtype, shape, order of the dimensions in memory, and bytes.

A tensor on another device, with a history of computations or of another layout is refused: it would come back as
another one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from langgraph_checkpoint_custom.encoding.extensions import SINGLE, UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import called, rebuilt

torch: Any = import_module("torch")

_REFUSED: dict[str, Callable[[Any], bool]] = {
    "is on another device; store tensor.cpu()": lambda o: o.device.type != "cpu",
    "is not of the ordinary layout; store tensor.to_dense()": lambda o: o.layout is not torch.strided,
    "is quantized; store tensor.dequantize()": lambda o: o.is_quantized,
    "has a history of computations; store tensor.detach()": lambda o: o.grad_fn is not None,
    "has a gradient; store tensor.detach(), and tensor.grad apart": lambda o: o.grad is not None,
    "has names of dimensions; store tensor.rename(None)": lambda o: any(getattr(o, "names", ())),
}


def _of_dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> Any:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} is no dtype of torch")
    return dtype


def _of_tensor(tensor: Any) -> list[Any]:
    for why, holds in _REFUSED.items():
        if holds(tensor):
            raise UnstorableValue(f"a torch tensor {why}")
    plain = tensor.detach().resolve_conj().resolve_neg()
    order = sorted(range(plain.dim()), key=lambda number: -plain.stride(number))
    if not plain.permute(order).is_contiguous():
        order = [*range(plain.dim())]  # A part of another tensor, or one whose elements share their place.
    data = plain.permute(order).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return [_of_dtype(tensor.dtype), list(tensor.shape), order, data, tensor.requires_grad]


def _tensor(those: Any) -> Any:
    name, shape, order, data, requires_grad = those
    dtype = _dtype(name)
    # A copy: a tensor over bytes would change them.
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    found = flat.reshape([shape[number] for number in order])
    found = found.permute([order.index(number) for number in range(len(order))])
    return found.requires_grad_(requires_grad) if requires_grad else found


LEAVES = [
    called(torch.Size, SINGLE, "torch", tuple),
    called(torch.device, SINGLE, "torch", str),
    rebuilt(torch.dtype, "torch", _of_dtype, _dtype),
    rebuilt(torch.Tensor, "torch", _of_tensor, _tensor),
    rebuilt(
        torch.nn.Parameter,
        "torch.nn",
        _of_tensor,
        lambda those: torch.nn.Parameter(_tensor([*those[:4], False]), requires_grad=those[4]),
    ),
]
