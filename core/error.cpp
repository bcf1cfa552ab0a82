// SPDX-License-Identifier: Apache-2.0
#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

Error::~Error() = default;

}  // namespace tilemamba
