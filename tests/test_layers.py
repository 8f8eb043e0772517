"""Imports go one way only, and importing the package is cheap."""

import ast
import pathlib
import subprocess
import sys

import pytest

import advsurprise

PACKAGE = pathlib.Path(advsurprise.__file__).parent

# The floors of the house, lowest first. A module may import from the floors below its own, and from its own folder.
# Names are module paths below the package; the longest match decides.
FLOORS = [
    ["errors"],
    ["types", "tree", "config", "training.files", "userfile", "zoo"],
    ["grid", "theory", "trust"],
    ["learning.stats", "learning.images", "learning.chunks", "learning.convolution", "learning.advantage"],
    ["learning.density", "learning.networks"],
    ["learning.devices", "learning.fit", "learning.ppo"],
    ["envs"],
    ["methods", "theory.enumerate"],
    ["learning"],
    ["training"],
    ["evaluation"],
    ["api"],
    ["bench", "experiments"],
    ["cli"],
    ["__main__"],
]
# The public door sits outside the order: it resolves names on first use.
FREE = {"__init__"}


def _floor(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        for index, names in enumerate(FLOORS):
            if ".".join(parts[:length]) in names:
                return index
    raise AssertionError(f"advsurprise.{module} has no floor: give it one in FLOORS")


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
        if target in FREE:
            continue
        same_family = _family(target) == _family(module)
        assert _floor(target) < _floor(module) or same_family, f"{module} imports {target}, which lies above it"


def test_floors_list_only_what_exists():
    known = {".".join(name.split(".")[:length]) for name in _modules() for length in (1, 2)}
    assert {name for names in FLOORS for name in names} <= known


def test_no_environment_imports_a_method_nor_the_reverse():
    for module, path in _modules().items():
        families = {_family(target) for target in _imports(path)}
        if _family(module) == "envs":
            assert "methods" not in families, module
        if _family(module) == "methods" or module in {"learning.ppo", "learning.fit", "learning.advantage"}:
            assert "envs" not in families, module
        if module in {"learning.ppo", "learning.fit", "learning.advantage"}:
            assert "methods" not in families, module


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
    assert "jax" not in _imported_after("import advsurprise.cli.main")
