// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

namespace tilemamba::cuda::sm80 {

/// The member cuda-sm80: mma.sync, for any device from compute capability 8.0 on.
[[nodiscard]] const Backend& backend();

}  // namespace tilemamba::cuda::sm80
