// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

namespace tilemamba::cuda::sm90 {

/// The member cuda-sm90: wgmma and the copy engine, for compute capability 9.0.
[[nodiscard]] const Backend& backend();

}  // namespace tilemamba::cuda::sm90
