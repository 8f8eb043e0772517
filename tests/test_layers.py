"""Imports go one way only, and importing the package is cheap."""

import ast
import pathlib
import subprocess
import sys

import pytest

import advsurprise

PACKAGE = pathlib.Path(advsurprise.__file__).parent

# Each line may import only from the lines above it (and `errors`, which imports nothing). Names are module paths
# below the package; the longest match decides. Siblings on a line may import each other only where said below.
LAYERS = [
    ["errors"],
    ["types", "tree", "config", "convolution", "devices"],
    ["stats", "density", "networks", "advantage", "fit", "grid", "theory"],
    ["ppo", "envs.base", "methods.base"],
    ["envs", "methods", "interaction", "measures"],
    ["collect", "learn"],
    ["parallel", "checkpoint", "metrics", "evaluate"],
    ["training"],
    ["run"],
    ["api"],
    ["curves"],
    ["plot"],
    ["comparison"],
    ["experiments", "sweep", "bench", "commands"],
    ["cli"],
    ["__main__"],
]
# The public door and modules that Gymnasium or Python load by name sit outside the order.
FREE = {"__init__"}
# The tabular theory is used with worlds small enough to enumerate, which only this file of it touches.
ALLOWED_UPWARDS = {("theory.enumerate", "envs"), ("theory.enumerate", "grid")}


def _layer(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        for index, names in enumerate(LAYERS):
            if ".".join(parts[:length]) in names:
                return index
    raise AssertionError(f"advsurprise.{module} has no place in LAYERS: give it one")


def _family(module: str) -> str:
    return module.split(".")[0]


def _imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("advsurprise"):
            module = node.module.removeprefix("advsurprise").lstrip(".")
            for name in node.names:
                deeper = PACKAGE.joinpath(*module.split("."), name.name) if module else PACKAGE / name.name
                is_module = deeper.is_dir() or deeper.with_suffix(".py").exists()
                found.add(f"{module}.{name.name}".lstrip(".") if is_module else module or "__init__")
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: relative import; write the whole name")
        elif isinstance(node, ast.Import):
            found |= {n.name.removeprefix("advsurprise.") for n in node.names if n.name.startswith("advsurprise.")}
    return found


def _modules() -> dict[str, pathlib.Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        names[name.removesuffix(".__init__")] = path
    return names


@pytest.mark.parametrize("module", sorted(set(_modules()) - FREE))
def test_imports_point_down(module):
    for target in _imports(_modules()[module]):
        if target in FREE or (module, _family(target)) in ALLOWED_UPWARDS:
            continue
        same_family = _family(target) == _family(module)
        assert _layer(target) < _layer(module) or same_family, f"{module} imports {target}, which lies above it"


def test_no_environment_imports_a_method_nor_the_reverse():
    for module, path in _modules().items():
        families = {_family(target) for target in _imports(path)}
        if _family(module) == "envs":
            assert "methods" not in families, module
        if _family(module) in {"methods", "ppo"}:
            assert "envs" not in families - {"envs.base"}, module


def _imported_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_pulls_in_nothing_heavy():
    loaded = _imported_after("import advsurprise")
    heavy = {"jax", "minigrid", "ale_py", "vizdoom", "matplotlib", "ray", "advsurprise.envs.rooms"}
    assert not loaded & heavy


def test_public_names_pull_in_no_environment_plotting_or_ray():
    loaded = _imported_after("import advsurprise; advsurprise.TimeStep; advsurprise.make")
    unwanted = {"minigrid", "ale_py", "vizdoom", "matplotlib", "ray", "advsurprise.envs.rooms"}
    assert not loaded & unwanted


def test_the_command_line_parses_before_jax_is_imported():
    assert "jax" not in _imported_after("import advsurprise.cli")
