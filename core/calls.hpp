// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls said field by field, with the memory they need and what they should give: for the tests and for the proof of a
/// backend that nobody has run (core/proof.hpp). Every tensor has guard zones around it and poison (NaN) in whatever
/// belongs to no tensor, so that a read or a write outside shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

#include "core/golden.hpp"
#include "core/reference.hpp"

namespace tilemamba::calls {

/// Random numbers that are the same with every standard library (its distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  std::uint64_t bits();
  double uniform(double low = 0.0, double high = 1.0);
  double normal();
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< both ends included
  bool chance(double probability) { return uniform() < probability; }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + integer(0, static_cast<std::int64_t>(choices.size()) - 1));
  }

 private:
  std::uint64_t state_;
};

/// How fast the state forgets.
enum class Decay {
  published,  ///< x, B, C = silu(randn), dt = softplus(randn), A = -U(1,16): the state dies within a few tokens
  slow,       ///< half the heads |A dt| <= 1e-4, the others about 0.02: what crosses a chunk counts
  strong,     ///< A = -16, dt up to 10: exp overflows wherever a difference of decays has the wrong sign
};

/// Where tensors lie.
enum class Memory {
  dense,
  one_buffer,  ///< x, B, C are views of one buffer, as in the model (the output of its convolution), rows of odd width
  scattered,   ///< dimensions permuted, padded, repeated (stride 0) and offset, each tensor in its own way
};

/// Everything that a call is made of, apart from its bytes. Two calls of one spec hold the same bytes.
struct Spec {
  std::int64_t batch = 1, tokens = 64, heads = 2, head_dim = 16, groups = 1, state = 16;
  std::optional<std::vector<std::int64_t>> lengths;  ///< packed sequences; then batch is 1 and tokens their sum
  DType x = DType::f32, dt = DType::f32, y = DType::f32;
  SkipForm skip = SkipForm::none;
  DType D = DType::f32;
  std::optional<DType> dt_bias, initial_states, chunk_states;
  std::optional<DType> final_states = DType::f32;
  bool z = false;
  double new_document = 0;  ///< chance that a token starts a document; 0: no seq_idx
  Decay decay = Decay::published;
  Memory memory = Memory::dense;
  Options options{};
  std::uint64_t seed = 1;

  /// `lengths` as packed sequences.
  Spec& pack(std::vector<std::int64_t> sequence_lengths);
  /// x in `dtype`, and with it dt and y.
  Spec& type(DType dtype);
};
std::ostream& operator<<(std::ostream& out, const Spec& spec);
std::string to_string(const Spec& spec);

/// Memory of tensors, watched.
class Arena {
 public:
  /// A tensor in memory of its own that holds poison: dense, or if `scatter` is given as it decides. `repeatable`: a
  /// dimension other than the last may get stride 0.
  MutableTensor tensor(DType dtype, const std::vector<std::int64_t>& shape, Random* scatter = nullptr,
                       bool repeatable = false);
  /// Tensors over one dense buffer of `shape` with its last dimension cut into `widths`, its rows `gap` elements wider
  /// than their sum.
  std::vector<MutableTensor> columns(DType dtype, std::vector<std::int64_t> shape,
                                     const std::vector<std::int64_t>& widths, std::int64_t gap);
  /// Poison in every element of a tensor made by `tensor`.
  void poison(const MutableTensor& tensor);
  /// From now on nothing may change but the elements of `outputs`.
  void freeze(const std::vector<MutableTensor>& outputs);
  /// What changed that must not; empty if nothing.
  [[nodiscard]] std::string damage() const;

 private:
  struct Block;
  Block& allocate(DType dtype, std::int64_t elements);
  std::vector<std::shared_ptr<Block>> blocks_;
};

/// A spec with its memory. `arguments` and `options` may be changed by the test.
class Call {
 public:
  explicit Call(const Spec& spec);
  Call(Call&&) = default;
  Call& operator=(Call&&) = default;

  Spec spec;
  Arguments arguments;
  Options options;

  /// Poison in all outputs; and guard zones, gaps and inputs as they are now are what `damage` compares with.
  void prepare();
  [[nodiscard]] std::string damage() const { return arena_.damage(); }
  /// True if every byte of the outputs is still the poison that `prepare` put there.
  [[nodiscard]] bool outputs_untouched() const;
  [[nodiscard]] Problem problem() const { return Problem::of(arguments, options); }

 private:
  Arena arena_;
};

/// Those of an answer that `arguments` has outputs for.
[[nodiscard]] golden::Answers answers_of(const reference::Answer& answer, const Arguments& arguments);

/// The right answers to a call, and the bars of its same-precision chunked form.
struct Expected {
  golden::Answers right;
  golden::Bars bars;
  /// What share of the row rule is allowed. The rule is made for the lost or wrong row, which exceeds it many times. In
  /// float, a row whose decay is a difference of two large sums (strong decay), or which nearly cancels, exceeds it a
  /// little in the chunked form too: then 1.5 times that, as for every other bar.
  double row = 1;
};
[[nodiscard]] Expected expected_of(const Arguments& arguments, const Options& options);
/// How far the outputs in `arguments` are from what was expected, as shares of the bars.
[[nodiscard]] golden::Shares shares_of(const Arguments& arguments, const Options& options, const Expected& expected);

/// The tensor with dimension `dimension` cut to [begin, begin + count): a view.
[[nodiscard]] Tensor slice(const Tensor& tensor, int dimension, std::int64_t begin, std::int64_t count);
[[nodiscard]] MutableTensor slice(const MutableTensor& tensor, int dimension, std::int64_t begin, std::int64_t count);

/// Inputs of tokens [begin, begin + count) of batch row `row`, alone; no initial states, no cu_seqlens, no outputs.
[[nodiscard]] Arguments tokens_of(const Arguments& arguments, std::int64_t row, std::int64_t begin, std::int64_t count);

/// Number of elements.
[[nodiscard]] std::int64_t size(const Layout& layout);
/// The bytes of the elements in dense order.
[[nodiscard]] std::vector<std::byte> bits(const Tensor& tensor);
/// Copies the values of `from` (rounded to the type of `to`) into `to`, which has the same shape.
void copy(const Tensor& from, const MutableTensor& to);
/// `tensor` to be written to: for tests that spoil an input of their own.
[[nodiscard]] MutableTensor writable(const Tensor& tensor);
/// Sets one element.
template <typename... Coordinate>
void set(const Tensor& tensor, double value, Coordinate... coordinate);
void set_at(const Tensor& tensor, double value, std::initializer_list<std::int64_t> coordinates);
template <typename... Coordinate>
void set(const Tensor& tensor, double value, Coordinate... coordinate) {
  set_at(tensor, value, {static_cast<std::int64_t>(coordinate)...});
}

}  // namespace tilemamba::calls
