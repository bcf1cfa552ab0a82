// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/machine.hpp"

namespace tilemamba::test::cuda {

At of_a(int thread, int i) {
  const int group = thread % 32 / 4, in_group = thread % 4;
  return {(i < 2 || (i >= 4 && i < 6) ? group : group + 8) + thread / 32 * 16,
          in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
At of_d(int thread, int i) {
  const int group = thread % 32 / 4, in_group = thread % 4;
  return {(i % 4 < 2 ? group : group + 8) + thread / 32 * 16, i / 4 * 8 + in_group * 2 + i % 2};
}
At of_b(int lane, int i) { return {lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4}; }
At of_a_tf32(int lane, int i) { return {lane / 4 + i % 2 * 8, lane % 4 + i / 2 * 4}; }
At of_b_tf32(int lane, int i) { return {lane % 4 + i * 4, lane / 4}; }
At of_matrix(int lane, int half, bool transposed) {
  const int along = lane / 4, across = lane % 4 * 2 + half;
  return transposed ? At{across, along} : At{along, across};
}
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7u) << 4; }

At in_tensor(int thread, int i, bool wide) {
  // .16x256b: of eight columns, registers 0 and 1 are two of row thread / 4, 2 and 3 those of the row eight further on.
  if (wide) return {thread / 4 + i / 2 % 2 * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
  // .16x128b: of four columns, register 0 is one of row thread / 4, register 1 that of the row eight further on.
  return {thread / 4 + i % 2 * 8, i / 2 * 4 + thread % 4};
}
int lane_of_row(int row) { return row / 16 * 32 + row % 16; }
Instruction decoded(std::uint32_t descriptor) {
  const auto field = [&](int at, int bits) { return descriptor >> at & ((1u << bits) - 1); };
  const std::uint32_t a = field(7, 3), b = field(10, 3);
  // Bits 0-3 sparsity and saturation, 4-5 the result's type (1: fp32), 13-14 negation, 15 a transposed, 16 b
  // transposed, 17-22 N / 8, 24-28 M / 16, 30-31 shift.
  const bool right = field(0, 4) == 0 && field(4, 2) == 1 && field(6, 1) == 0 && a == b && a <= 1 &&
                     field(13, 3) == 0 && field(23, 1) == 0 && field(29, 3) == 0;
  return {right, a == 1 ? DType::bf16 : DType::f16, field(16, 1) == 1, static_cast<int>(field(24, 5)) * 16,
          static_cast<int>(field(17, 6)) * 8};
}

unsigned in_shared(std::uint64_t descriptor, bool transposed, int row, int inner) {
  // Addresses and distances are kept without their last four bits, 14 bits each.
  const auto field = [&](int at) { return static_cast<unsigned>(descriptor >> at & 0x3fffu) << 4; };
  const unsigned start = field(0), leading = field(16), stride = field(32);
  const auto u = [](int v) { return static_cast<unsigned>(v); };
  // In units of 8 elements (16 bytes), with swizzle: K-major ((8,m),(T,2)): ((8T,SBO),(1,T)); MN-major ((T,8,m),(8,k)):
  // ((1,T,LBO),(8T,SBO)).
  const unsigned offset = transposed
                              ? u(row % 64) * 2 + u(row / 64) * leading + u(inner % 8) * 128 + u(inner / 8) * stride
                              : u(row % 8) * 128 + u(row / 8) * stride + u(inner) * 2;
  return swizzled(start + offset);
}

}  // namespace tilemamba::test::cuda
