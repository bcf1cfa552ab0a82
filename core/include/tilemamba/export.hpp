// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which symbols the shared library shows. Everything else is hidden.
#pragma once

#if defined(_WIN32)
#define TILEMAMBA_EXPORT
#else
#define TILEMAMBA_EXPORT __attribute__((visibility("default")))
#endif
