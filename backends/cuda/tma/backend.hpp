// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host's side of the walk, the same for every generation of tensor cores that it is compiled for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/cuda/common/capability.hpp"
#include "backends/cuda/tma/kernels.hpp"
#include "core/backend.hpp"

namespace tilemamba::cuda::tma {

/// What is a generation's own.
struct Generation {
  std::string_view name;      ///< of the member
  Instructions instructions;  ///< of its tensor cores
  std::span<const Policy> policies;
  Kernels (*kernels)(DType x, const Policy& policy, std::size_t variant);
  bool proven;  ///< has been run on a device
};

/// What these kernels are not made for runs as cuda-sm80.
[[nodiscard]] std::unique_ptr<const Backend> make_backend(const Generation& generation);

}  // namespace tilemamba::cuda::tma
