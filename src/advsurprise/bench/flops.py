"""Counts the floating point operations of a traced program, with loop bodies counted as often as they run.

XLA's count (`compiled.cost_analysis()`) includes the body of a loop only once, and a training update is all loops. This
one walks the jaxpr. It counts a multiplication and an addition for every product in a matrix product or convolution
(padding included), one operation per entry for arithmetic on floats (also for a logarithm), and one per entry summed in
a reduction. Integers, comparisons, selects and data movement count as zero. A `cond` counts as its most expensive
branch: an upper bound if that branch is rare.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

# fmt: off
ELEMENTWISE = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp", "cos",
    "cosh", "digamma", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "integer_pow", "lgamma", "log",
    "log1p", "logistic", "max", "min", "mul", "neg", "pow", "rem", "round", "rsqrt", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "tan", "tanh",
])
# fmt: on
REDUCTIONS = frozenset(["reduce_max", "reduce_min", "reduce_prod", "reduce_sum"])
CUMULATIVE = frozenset(["cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"])
SCATTERS = frozenset(["scatter-add", "scatter_add", "scatter-mul", "scatter_mul"])
PRODUCTS = frozenset(["dot_general", "conv_general_dilated"])


class Operation(NamedTuple):
    """One operation of a program."""

    name: str
    """Its primitive."""
    flops: int
    """Floating point operations over all its executions."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of its operands."""
    scope: str
    """jax's name stack; operations of a backward pass have `transpose(` in it."""


def count(program: ClosedJaxpr) -> int:
    """Floating point operations of a whole program."""
    return total(operations(program))


def total(counted: list[Operation]) -> int:
    """Sum of the floating point operations."""
    return sum(each.flops for each in counted)


def operations(program: ClosedJaxpr | Jaxpr, *, times: int = 1, scope: str = "") -> list[Operation]:
    """All float operations of a program that runs `times` times."""
    counted: list[Operation] = []
    for equation in program.eqns:
        counted += _of_equation(equation, times, f"{scope}/{equation.source_info.name_stack}")
    return counted


def _of_equation(equation: JaxprEqn, times: int, scope: str) -> list[Operation]:
    name = equation.primitive.name
    if name == "cond":
        branches = [operations(branch, times=times, scope=scope) for branch in equation.params["branches"]]
        return max(branches, key=total)
    own = _own_flops(equation)
    if own:
        shapes = tuple(tuple(_aval(operand).shape) for operand in equation.invars)
        return [Operation(name, times * own, shapes, scope)]
    times *= _iterations(equation)
    inner = [value for value in equation.params.values() if isinstance(value, (Jaxpr, ClosedJaxpr))]
    return [each for program in inner for each in operations(program, times=times, scope=scope)]


def _own_flops(equation: JaxprEqn) -> int:
    """Operations of one execution, without those of nested programs."""
    name = equation.primitive.name
    result = _aval(equation.outvars[0]) if equation.outvars else None
    if result is None or not jnp.issubdtype(getattr(result, "dtype", jnp.int32), jnp.floating):
        return 0
    if name in PRODUCTS:
        return 2 * math.prod(result.shape) * _terms(equation)
    if name in ELEMENTWISE or name in CUMULATIVE:
        return math.prod(result.shape)
    if name in REDUCTIONS:
        return math.prod(_aval(equation.invars[0]).shape) - math.prod(result.shape)
    return math.prod(_aval(equation.invars[2]).shape) if name in SCATTERS else 0


def _terms(equation: JaxprEqn) -> int:
    """Number of products summed per entry of a matrix product or convolution."""
    left, right = (_aval(operand).shape for operand in equation.invars[:2])
    dimensions = equation.params["dimension_numbers"]
    if equation.primitive.name == "dot_general":
        return math.prod(left[axis] for axis in dimensions[0][0])
    outputs = dimensions.rhs_spec[0]
    return math.prod(size for axis, size in enumerate(right) if axis != outputs)


def _iterations(equation: JaxprEqn) -> int:
    """Number of iterations of a loop; 1 for anything else, and for a `while` of unknown length."""
    if equation.primitive.name == "scan":
        return equation.params["length"]
    if equation.primitive.name == "while":
        return _counted_iterations(equation)
    return 1


def _counted_iterations(equation: JaxprEqn) -> int:
    """Iterations of `while i < stop: i += step` from a known start; 1 for any other loop."""
    params = equation.params
    test, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    less = test.eqns[0] if len(test.eqns) == 1 and test.eqns[0].primitive.name == "lt" else None
    carried_by_test = test.invars[params["cond_nconsts"] :]
    if less is None or less.invars[0] not in carried_by_test:
        return 1
    place = carried_by_test.index(less.invars[0])
    counter = body.invars[params["body_nconsts"] + place]
    adds = [each for each in body.eqns if each.primitive.name == "add" and each.outvars[0] is body.outvars[place]]
    if not adds or adds[0].invars[0] is not counter:
        return 1
    start = equation.invars[params["cond_nconsts"] + params["body_nconsts"] + place]
    known = [each.val for each in (start, less.invars[1], adds[0].invars[1]) if isinstance(each, Literal)]
    if len(known) < 3 or known[2] <= 0:
        return 1
    return max(0, math.ceil((int(known[1]) - int(known[0])) / int(known[2])))


def _aval(operand: Any) -> Any:
    """Shape and type of an operand."""
    return operand.aval
