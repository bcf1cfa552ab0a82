# SPDX-License-Identifier: Apache-2.0
"""Reads the recipes in packaging/, without Spack or Conan: they are Python, and what they repeat of the build agrees with it.

check_recipes.py TREE
"""
import ast
import re
import sys
from pathlib import Path

SPACK = "packaging/spack/spack_repo/tilemamba"
CONAN = "packaging/conan"


def read(path):
    return (tree / path).read_text(encoding="utf-8")


def complain(path, what):
    print(f"{path} {what}", file=sys.stderr)
    complaints.append(path)


def recipe(path, base):
    """The parsed recipe; its class must be derived from `base` and may only set options that the build has."""
    text = read(path)
    module = ast.parse(text, path)
    bases = [name.id for node in module.body if isinstance(node, ast.ClassDef) for name in node.bases]
    if bases != [base]:
        complain(path, f"must hold one class, derived from {base}; it holds classes derived from {bases}")
    for option in sorted(set(re.findall(r"\bTILEMAMBA_[A-Z]+", text)) - options):
        complain(path, f"sets {option}, which the build does not have; it has {', '.join(sorted(options))}")
    return module


tree = Path(sys.argv[1])
complaints = []
options = set(re.findall(r"^option\((\w+)", read("cmake/options.cmake"), re.M))
families = re.findall(r"^tilemamba_backend\((\w+)", read("backends/CMakeLists.txt"), re.M)
options |= {f"TILEMAMBA_{family.upper()}" for family in families}

# Spack: the pinned Kokkos is the one of the build, and the folders are where its convention has them.
path = f"{SPACK}/packages/tilemamba/package.py"
given = {}
for call in ast.walk(recipe(path, "CMakePackage")):
    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "resource":
        given = {word.arg: word.value.value for word in call.keywords}
kokkos = dict(re.findall(r"^set\(TILEMAMBA_KOKKOS_UPSTREAM_(\w+) (\S+)\)", read("cmake/kokkos.cmake"), re.M))
if kokkos["SHA256"] != given.get("sha256") or f"/kokkos-{kokkos['VERSION']}.tar.gz" not in given.get("url", ""):
    complain(path, f"must take the Kokkos of cmake/kokkos.cmake, {kokkos}; it takes {given}")
if not re.search(r"^  namespace: tilemamba$", read(f"{SPACK}/repo.yaml"), re.M):
    complain(f"{SPACK}/repo.yaml", "must have the namespace tilemamba, like its folder")

# Conan: the version is found, and what is exported is there.
path = f"{CONAN}/conanfile.py"
recipe(f"{CONAN}/test_package/conanfile.py", "ConanFile")
for node in ast.walk(recipe(path, "ConanFile")):
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "search":
        if not re.search(node.args[0].value, read("CMakeLists.txt")):
            complain(path, f"looks for the version by {node.args[0].value}, which is not in CMakeLists.txt")
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
        for pattern in node.iter.elts:
            if node.target.id == "pattern" and not list(tree.glob(pattern.value)):
                complain(path, f"exports {pattern.value}, which is not there")
sys.exit(1 if complaints else 0)
