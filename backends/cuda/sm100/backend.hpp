// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

namespace tilemamba::cuda::sm100 {

/// The member cuda-sm100: tcgen05 and the copy engine, for compute capabilities 10.0 and 10.3. Nobody has run it on a
/// device.
[[nodiscard]] const Backend& backend();

}  // namespace tilemamba::cuda::sm100
