// SPDX-License-Identifier: Apache-2.0
/// @file
/// How `tilemamba_prove` ends, for who starts it. Anything else is a fault of what it tried.
#pragma once

namespace tilemamba::proof {

enum class End : int {
  right = 0,
  wrong = 10,    ///< the last line on stderr says how
  not_run = 11,  ///< it says nothing of the backend: the last line on stderr says why
};

}  // namespace tilemamba::proof
