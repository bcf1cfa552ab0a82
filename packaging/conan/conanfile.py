# SPDX-License-Identifier: Apache-2.0
# Use: conan create packaging/conan -s compiler.cppstd=20
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.1"


class TilemambaConan(ConanFile):
    name = "tilemamba"
    description = "Mamba-2 chunked scan, one algorithm for many backends"
    license = "Apache-2.0"
    topics = ("mamba", "ssm", "kernels", "machine-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    def _tree(self):
        return Path(self.recipe_folder).parents[1]

    def set_version(self):
        text = load(self, self._tree() / "CMakeLists.txt")
        self.version = re.search(r"project\(tilemamba VERSION ([0-9.]+)", text)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "backends/*", "cmake/*", "core/*", "kernels/*"):
            copy(self, pattern, self._tree(), self.export_sources_folder)

    def layout(self):
        self.folders.root = "../.."
        cmake_layout(self)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("tilemamba is built on Linux only: its modules are ELF shared objects")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TILEMAMBA_TESTS"] = False
        toolchain.cache_variables["TILEMAMBA_TOOLS"] = False
        toolchain.cache_variables["TILEMAMBA_KOKKOS"] = "ON"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, Path(self.package_folder) / "licenses")
        # Conan makes these for whoever asks, from package_info.
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):
            rmdir(self, Path(self.package_folder) / folder)

    def package_info(self):
        self.cpp_info.libs = ["tilemamba"]
        self.cpp_info.system_libs = ["dl", "pthread"]
        if not self.options.shared:
            # Where the program finds the modules.
            rpath = [f"-Wl,-rpath,{Path(self.package_folder) / 'lib'}"]
            self.cpp_info.exelinkflags = rpath
            self.cpp_info.sharedlinkflags = rpath
