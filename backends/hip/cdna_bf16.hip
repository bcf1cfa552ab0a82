// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/instances.hpp"

template tilemamba::hip::Kernels tilemamba::hip::kernels_for<tilemamba::hip::Cdna, tilemamba::DType::bf16>(std::size_t);
