// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls with known answers. Two halves that need not meet: comparing answers with bars (for a stored case and for a
/// random problem alike), and loading a case from a safetensors file (tests/golden/README.md describes the files).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

#include "core/safetensors.hpp"

namespace tilemamba::golden {

// ----------------------------------------------------------------------------------------------------------- comparing

/// The answers of one call, widened, dense, in the shapes of `Arguments`.
struct Answers {
  std::vector<double> y;                            ///< (B,T,H,P)
  std::optional<std::vector<double>> final_states;  ///< (B,H,P,N), packed: (S,H,P,N)
  std::optional<std::vector<double>> chunk_states;  ///< (B, T div K, H,P,N), packed: (sum of len div K, H,P,N)
};

/// The outputs that `arguments` names, gathered from host memory through their strides.
[[nodiscard]] Answers gather(const Arguments& arguments);

/// An error, or a share of a bar, and where it is the worst, e.g. "batch 0, head 3, tokens 64-127".
struct Worst {
  double value = 0;  ///< infinity if anything is not finite, or if an answer that should be zero is not
  std::string place;
};

/// How far answers are from the right ones; each is ||answer - right|| / ||right|| over the part named.
struct Errors {
  Worst out;                         ///< y as a whole
  Worst block;                       ///< (batch, head, 64 tokens from a multiple of 64 of the row, packed or not)
  std::optional<Worst> state;        ///< (sequence, head) of final_states
  std::optional<Worst> chunk_state;  ///< (chunk, head) of chunk_states
};

/// @param problem gives the sizes.
/// @throws Error invalid_argument if one of the two lacks what the other has, or a size is not the problem's.
[[nodiscard]] Errors measure(const Problem& problem, const Answers& answers, const Answers& right);

/// What an answer's errors may be.
struct Bars {
  double out = 0;
  double block = 0;
  double state = 0;  ///< for final_states and chunk_states
};

/// 1.5 times the errors of the chunked form in the input's precision; for f32 inputs at least 2e-6.
[[nodiscard]] Bars bars_from(const Errors& same_precision, DType x);

/// Each error as a share of its bar: at most 1 passes.
struct Shares {
  Worst out;
  Worst block;
  /// A row (token, head) fails when its error exceeds both 6 times its block's RMS row error and 2 bars.out times its
  /// own norm: one lost row hides in the norm of its block where the block's errors are far below their bar.
  Worst row;
  std::optional<Worst> state;
  std::optional<Worst> chunk_state;

  [[nodiscard]] double worst() const noexcept;
  [[nodiscard]] bool pass() const noexcept { return worst() <= 1; }
};

/// @throws Error as `measure`.
[[nodiscard]] Shares compare(const Problem& problem, const Answers& answers, const Answers& right, const Bars& bars);

// -------------------------------------------------------------------------------------------------------------- memory

/// Host memory for a kernel under suspicion: between two guard zones, and filled with bytes that are a NaN in every
/// floating type.
class GuardedMemory {
 public:
  /// @param bytes may be 0; the memory is aligned to 256 bytes all the same.
  /// @throws Error out_of_memory.
  explicit GuardedMemory(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Fills the memory with NaN again.
  void poison() noexcept;
  /// Whether nothing was written beside the memory.
  [[nodiscard]] bool intact() const noexcept;

 private:
  struct Deleter {
    void operator()(std::byte* memory) const noexcept;
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Deleter> memory_;
};

/// Outputs for a call, poisoned and guarded: y in x's dtype, final_states and chunk_states in f32, all dense.
class GuardedOutputs {
 public:
  /// @param inputs a call's arguments; what it says of outputs is not looked at, x, B and cu_seqlens must be well
  /// formed.
  /// @param want_final_states whether the call gives final_states; chunk_states come if `options` asks for them.
  /// @throws Error out_of_memory.
  GuardedOutputs(const Arguments& inputs, const Options& options, bool want_final_states);

  /// `inputs` with the outputs set.
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  void poison() noexcept;
  /// The outputs whose guard zones were written to: empty is good.
  [[nodiscard]] std::string damage() const;

 private:
  MutableTensor add(std::string name, const Layout& layout);

  Arguments arguments_;
  std::vector<std::string> names_;
  std::vector<GuardedMemory> memory_;
};

// ------------------------------------------------------------------------------------------------------------- loading

/// A call from a file: it owns what its arguments point to.
struct Case {
  std::string name;
  Arguments arguments;  ///< the inputs; no outputs
  Options options;
  std::vector<GuardedMemory> memory;
  /// What the file holds that is no input and no answer and has no meaning here: metadata keys, for a warning.
  std::vector<std::string> unknown_metadata;
};

/// A call with its answers and bars.
struct GoldenCase : Case {
  Answers right;
  Bars bars;
};

/// The call that a file poses. Tensors: x, dt, A, B, C and, if present, D, z, dt_bias, initial_states, seq_idx,
/// cu_seqlens; out, final_states and chunk_states are stored answers and not looked at. Metadata, all optional: name,
/// chunk_size, dt_softplus, dt_limit_lo, dt_limit_hi, chunk_states_every and bar_*.
/// @throws Error damaged_file for a required tensor that is missing, an unknown tensor, a dtype or metadata that cannot
/// be used, and inputs that do not go together. What chunk_states_every asks for is checked where the call is planned.
[[nodiscard]] Case case_from(const safetensors::Contents& contents);

/// As `case_from`, with the answers (F32, exactly the shapes of the call's outputs; out is required) and the bars.
/// @throws Error damaged_file, also for missing or ill-shaped answers and bars.
[[nodiscard]] GoldenCase golden_case_from(const safetensors::Contents& contents);

/// @throws Error as `safetensors::File::read`, `case_from`, `golden_case_from`.
[[nodiscard]] Case load_case(const std::filesystem::path& path);
[[nodiscard]] GoldenCase load_golden_case(const std::filesystem::path& path);

}  // namespace tilemamba::golden
