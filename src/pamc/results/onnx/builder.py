"""A builder of ONNX graphs, in which each method adds one node and returns the name of its output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import BackendError

# Versions of the operators, which onnxruntime has supported since version 1.14.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 8
_ML = "ai.onnx.ml"


def import_onnx() -> Any:
    """Return the package onnx; raise a BackendError with the command that installs it."""
    try:
        import onnx
    except ImportError as error:
        raise BackendError('export needs onnx and onnxruntime: pip install "pamc[export]"') from error
    return onnx


class GraphBuilder:
    """Nodes, constants, inputs and outputs of a graph; values are referred to by name.

    Parameters
    ----------
    dtype
        Floating-point type of the rows.
    """

    def __init__(self, dtype: Any = np.float32) -> None:
        self.onnx = import_onnx()
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, kind: Any, *shape: Any) -> str:
        """Declare an input with a numpy dtype, or `object` for strings; the first axis has any length."""
        self.inputs.append(self._declared(name, kind, shape))
        return name

    def output(self, value: str, name: str, kind: Any, *shape: Any) -> None:
        """Declare a value as an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._declared(name, kind, shape))

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Return a constant, of the type of the rows by default."""
        array = np.asarray(values, dtype=self.dtype if dtype is None else dtype)
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str | None = None, **attributes: Any) -> str:
        """Add a node with one output."""
        name = f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def top_k(self, values: str, k: int, *, largest: bool) -> str:
        """Return the k largest or smallest values of each row, sorted."""
        name = f"value_{len(self.nodes)}"
        count = self.constant([k], np.int64)
        node = self.onnx.helper.make_node("TopK", [values, count], [name, f"{name}_places"], largest=int(largest))
        self.nodes.append(node)
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Return a value as another type."""
        return self.add("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def sum(self, value: str, *, axis: int = 1, keep: bool = True) -> str:
        """Return the sum along an axis."""
        return self.add("ReduceSum", value, self.constant([axis], np.int64), keepdims=int(keep))

    def unsqueeze(self, value: str, axis: int) -> str:
        """Return a value with one more axis of length 1."""
        return self.add("Unsqueeze", value, self.constant([axis], np.int64))

    def squeeze(self, value: str, axis: int) -> str:
        """Return a value without an axis of length 1."""
        return self.add("Squeeze", value, self.constant([axis], np.int64))

    def slice(self, value: str, start: int, stop: int, *, axis: int) -> str:
        """Return a part of an axis."""
        ends = [self.constant([number], np.int64) for number in (start, stop, axis)]
        return self.add("Slice", value, *ends)

    def reshape(self, value: str, *shape: int) -> str:
        """Return a value in another shape; 0 keeps an axis, and −1 is inferred."""
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def lookup(self, texts: str, values: dict[str, float], default: float) -> str:
        """Return the number of each text, and the default for other texts, as float32."""
        return self.add(
            "LabelEncoder",
            texts,
            domain=_ML,
            keys_strings=list(values),
            values_floats=[float(number) for number in values.values()],
            default_float=float(default),
        )

    def linear(self, x: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        """Return x Wᵀ + b."""
        return self.add("Gemm", x, self.constant(np.ascontiguousarray(weight.T)), self.constant(bias))

    def model(self, description: dict[str, str]) -> Any:
        """Return the checked ONNX model, with a description as its metadata."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "pamc", self.inputs, self.outputs, self.constants)
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_ML, _ML_OPSET)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=_IR_VERSION, producer_name="pamc")
        helper.set_model_props(model, description)
        self.onnx.checker.check_model(model)
        return model

    def _declared(self, name: str, kind: Any, shape: tuple[Any, ...]) -> Any:
        tensor = self.onnx.TensorProto
        declared = tensor.STRING if kind is object else self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.onnx.helper.make_tensor_value_info(name, declared, ["n", *shape])
