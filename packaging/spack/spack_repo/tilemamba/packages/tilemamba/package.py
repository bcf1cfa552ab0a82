# SPDX-License-Identifier: Apache-2.0
# Use: spack repo add packaging/spack/spack_repo/tilemamba && spack install tilemamba
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Tilemamba(CMakePackage):
    """The forward pass of Mamba-2 (the chunked scan, SSD) on any device: one algorithm for many backends, which are modules
    that are chosen at run time."""

    # The tree that this recipe is part of.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("shared", default=True, description="Build a shared library")
    variant("tools", default=True, description="Build the command line, tilemamba")

    # Inside the CPU's modules and nowhere else, so not an installed one: that is built for a microarchitecture, while there is
    # a module for each level of the CPU.
    resource(
        name="kokkos",
        url="https://github.com/kokkos/kokkos/releases/download/4.7.04/kokkos-4.7.04.tar.gz",
        sha256="4213b248c39e112299fa94ee08817e51126fc02996ed6e2ab56aec4cdb80ee1f",
        placement="kokkos",
    )

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    with when("+tools"):
        depends_on("cli11@2.1:", type="build")
        depends_on("fmt@9:")
        depends_on("nlohmann-json@3.11:", type="build")

    conflicts("platform=darwin", msg="modules are ELF shared objects")
    conflicts("platform=windows", msg="modules are ELF shared objects")
    conflicts("%gcc@:11", msg="C++20 is needed: GCC 12 or later")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("TILEMAMBA_TOOLS", "tools"),
            self.define("TILEMAMBA_TESTS", False),
            self.define("TILEMAMBA_CCACHE", False),
            self.define("TILEMAMBA_KOKKOS", True),
            self.define("FETCHCONTENT_SOURCE_DIR_KOKKOS", join_path(self.stage.source_path, "kokkos")),
        ]
