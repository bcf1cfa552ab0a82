// SPDX-License-Identifier: Apache-2.0
// Linked into every executable that is built with sanitizers, which ask here for their defaults.

extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();

// GCC 12's leak checker guesses where a module that was loaded later keeps its thread-local variables, and dies where it
// guessed wrong. Without the guess it does not look there.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
