// SPDX-License-Identifier: Apache-2.0
/// @file
/// A machine for backends/hip that the host plays: lanes take turns, and a matrix instruction does what AMD's own
/// tables (tests/hip/layouts) say, whatever the backend believes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/hip/fragment.hpp"
#include "core/tile/scalar.hpp"
#include "tests/hip/lanes.hpp"

namespace tilemamba::test {

/// A register of a lane, or half of one.
struct Place {
  int lane, word;
  int half;  ///< -1: the whole of it
};
/// A matrix instruction: every place that holds element (i, k) of a, (k, j) of b and (i, j) of d.
struct Instruction {
  std::string name;
  int depth;  ///< of the inner dimension
  std::vector<std::array<std::vector<Place>, 16>> a, b, d;
};
/// From tests/hip/layouts. @throws std::runtime_error
[[nodiscard]] const Instruction& instruction(const std::string& file);

/// d += a b as `its` tables have it; each lane's words of a, b and d follow each other. Where several places should
/// hold the same element and do not, that is a fault.
void perform(const Instruction& its, DType type, const std::vector<const std::uint32_t*>& a,
             const std::vector<const std::uint32_t*>& b, const std::vector<float*>& d);

template <class Target_>
struct StandIn {
  using Target = Target_;
  static constexpr bool multiplies_subnormal_halves = true;

  static int lane() { return lanes::lane(); }
  static int wave() { return lanes::wave(); }
  static std::int64_t block() { return lanes::block(); }

  template <class T>
  static T load(unsigned offset) {
    T value;
    std::memcpy(&value, lanes::readable(offset, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  static void store(unsigned offset, T value) {
    std::memcpy(lanes::writable(offset, sizeof(T)), &value, sizeof(T));
  }

  template <class T>
  static T read(const T* from) {
    return *from;
  }
  template <class T>
  static void write(T* to, T value) {
    *to = value;
  }

  static void meet() { lanes::meet(); }
  static void meet_wave() { lanes::meet_wave(); }

  static void forget(int&) {}
  static void in_order() {}

  template <class T>
  static T from_below(T value, int distance) {
    return of_lane(value, lane() < distance ? lane() : lane() - distance);
  }
  template <class T>
  static T from_above(T value, int distance) {
    return of_lane(value, lane() + distance < Target::wave ? lane() + distance : lane());
  }
  static std::uint32_t of_other_half(std::uint32_t value) { return of_lane(value, lane() ^ 16); }

  static float exp2(float x) { return tile::exp2(x); }

  template <DType type>
  static std::uint16_t narrow(float value) {
    return type == DType::bf16 ? tile::to_bf16(value) : tile::to_f16(value);
  }
  template <DType type>
  static float widen(std::uint16_t bits) {
    return type == DType::bf16 ? tile::from_bf16(bits) : tile::from_f16(bits);
  }

  template <DType type>
  static void multiply(hip::Sum<Target>& d, const hip::Operand<Target, type>& a, const hip::Operand<Target, type>& b) {
    constexpr bool mfma = Target::wave == 64;
    struct Lane {
      float* d;
      const std::uint32_t *a, *b;
    } mine{d.r, a.r, b.r};
    lanes::together(&mine, [](void* const* all) {
      static const Instruction& its = instruction(type == DType::f32 ? "mfma_16x16x4.csv"
                                                  : mfma             ? "mfma_16x16x16.csv"
                                                                     : "wmma_16x16x16.csv");
      std::vector<float*> its_d;
      for (int s = 0; s < (type == DType::f32 ? 4 : 1); ++s) {
        std::vector<const std::uint32_t*> its_a, its_b;
        its_d.clear();
        for (int i = 0; i < Target::wave; ++i) {
          const auto* lane = static_cast<const Lane*>(all[i]);
          its_a.push_back(lane->a + s), its_b.push_back(lane->b + s), its_d.push_back(lane->d);
        }
        perform(its, type, its_a, its_b, its_d);
      }
    });
  }

 private:
  template <class T>
  static T of_lane(T value, int its) {
    struct Lane {
      std::uint32_t bits;
      int from;
      std::uint32_t result;
    } mine{std::bit_cast<std::uint32_t>(value), its, 0};
    lanes::together(&mine, [](void* const* all) {
      for (int i = 0; i < Target::wave; ++i)
        static_cast<Lane*>(all[i])->result = static_cast<const Lane*>(all[static_cast<Lane*>(all[i])->from])->bits;
    });
    return std::bit_cast<T>(mine.result);
  }
};

}  // namespace tilemamba::test
