# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="../../../tests/package/consumer")
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(f"{Path(self.build_folder) / 'consumer'} kokkos-serial", env="conanrun")
