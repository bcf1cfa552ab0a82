// SPDX-License-Identifier: Apache-2.0
/// @file
/// tilemamba: the forward pass of the Mamba-2 chunked scan (SSD; Dao & Gu 2024, "Transformers are SSMs") on any device.
///
///     delta_t = dt_t + dt_bias, softplus if asked, clamped to dt_limit
///     h_t     = exp(delta_t A) h_(t-1) + delta_t x_t B_t^T          h in R^(P x N)
///     y_t     = h_t C_t + D x_t;   y_t = y_t * z_t * sigmoid(z_t) if z is given
///
/// Sizes: batch B, tokens T, heads H, head dimension P, groups G (head h reads group h / (H/G)), state size N, packed
/// sequences S.
///
/// Three ways in, from the simplest: `scan` (one call), `Plan` (plan once, execute many times without allocating), and
/// `backends` / `candidates` (what could run here, and why not). Every function reports failure by throwing `Error`,
/// before anything is launched and before any output is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tilemamba/dtype.hpp>
#include <tilemamba/export.hpp>
#include <tilemamba/schedule.hpp>

namespace tilemamba {

/// Version of the library, "major.minor.patch".
[[nodiscard]] TILEMAMBA_EXPORT std::string_view version() noexcept;

// ----------------------------------------------------------------------------------------------------------------
// errors

enum class ErrorCode : int {
  invalid_argument = 1,  ///< an argument is wrong in itself: a shape, a stride, a value
  unsupported = 2,       ///< a legal argument that the chosen backend cannot honour
  no_backend = 3,        ///< no backend can run here, the forced one cannot, or its name is unknown
  out_of_memory = 4,     ///< the workspace is too small or could not be had
  io = 5,                ///< a file cannot be read or written
  damaged_file = 6,      ///< a file's content is not what its format says
  backend_failure = 7,   ///< a launch or the device failed
};

/// The only exception that this library throws on purpose. `what()` names the tensor or option, what it was and what
/// would be right.
class TILEMAMBA_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ~Error() override;  // out of line: one type_info for every caller
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// ---------------------------------------------------------------------------------------------------------------
// tensors

/// "f32", "f16", "bf16", "i32".
[[nodiscard]] TILEMAMBA_EXPORT std::string_view name(DType dtype) noexcept;

enum class DeviceKind : std::uint8_t { cpu, cuda, hip };
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};
/// "cpu", "cuda:0", "hip:1".
[[nodiscard]] TILEMAMBA_EXPORT std::string to_string(const Device& device);

inline constexpr int max_rank = 5;
using Extents = std::array<std::int64_t, max_rank>;

/// What is known of a tensor apart from its bytes. Strides count elements; the last dimension must be contiguous.
struct Layout {
  DType dtype = DType::f32;
  int rank = 0;
  Extents shape{};
  Extents strides{};
  Device device{};
};

/// A tensor that is read. Nothing is owned or copied.
struct Tensor : Layout {
  const void* data = nullptr;
};
/// A tensor that is written.
struct MutableTensor : Layout {
  void* data = nullptr;
  operator Tensor() const noexcept {
    return Tensor{static_cast<const Layout&>(*this), data};
  }  // NOLINT(google-explicit-constructor)
};

/// A dense row-major layout. @throws Error if the rank is above max_rank, an extent is negative or the size overflows.
[[nodiscard]] TILEMAMBA_EXPORT Layout dense(DType dtype, std::initializer_list<std::int64_t> shape, Device device = {});

// ---------------------------------------------------------------------------------------------------------------- a
// call

/// The tensors of one call; every tensor lives on one device. An absent optional is a tensor not passed.
struct Arguments {
  Tensor x;                              ///< (B,T,H,P), f32, f16 or bf16
  Tensor dt;                             ///< (B,T,H), as x or f32
  Tensor A;                              ///< (H), f32; values <= 0 in every real model
  Tensor B;                              ///< (B,T,G,N), as x
  Tensor C;                              ///< (B,T,G,N), as x
  std::optional<Tensor> D;               ///< (H) or (H,P), f32 or as x
  std::optional<Tensor> z;               ///< (B,T,H,P), as x
  std::optional<Tensor> dt_bias;         ///< (H), f32 or as dt
  std::optional<Tensor> initial_states;  ///< (B,H,P,N), packed: (S,H,P,N); f32, f16 or bf16; absent: zeros
  std::optional<Tensor> seq_idx;         ///< (B,T) i32; a change of value starts a new document
  std::optional<Tensor> cu_seqlens;      ///< (S+1) i32, B = 1: sequence s is tokens [cu_seqlens[s], cu_seqlens[s+1])
  MutableTensor y;                       ///< (B,T,H,P), as x or f32
  std::optional<MutableTensor> final_states;  ///< (B,H,P,N), packed: (S,H,P,N); f32, f16 or bf16
  std::optional<MutableTensor> chunk_states;  ///< (B, T div K, H,P,N), packed: (sum of len div K, H,P,N); dtype as
                                              ///< final_states, when both are given
};

struct Options {
  bool dt_softplus = false;
  float dt_min = 0.0f;  ///< dt_limit, both ends inclusive; dt_min < 0 or dt_min > dt_max is an error
  float dt_max = std::numeric_limits<float>::infinity();
  std::int64_t chunk_size = 0;  ///< a hint that published interfaces pass; results differ only by rounding; 0: none
  std::int64_t chunk_states_every = 0;  ///< K of chunk_states, a multiple of 16; 0: chunk_states not asked for
  bool batch_invariant = false;         ///< a sequence packed among others gives bit for bit what it gives alone
  bool allow_tf32 = false;  ///< f32 inputs may be multiplied as tf32 (about 1e-3) where the device gains by it
  friend bool operator==(const Options&, const Options&) = default;
};

enum class SkipForm : std::uint8_t { none, per_head, per_channel };  ///< D absent, (H), (H,P)

/// Everything that a plan depends on: sizes, types and which optional tensors come. No pointers, no strides.
struct Problem {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_dim = 0, groups = 0, state = 0;
  std::optional<std::int64_t> packed_sequences;  ///< S when cu_seqlens is given
  std::optional<std::int64_t>
      packed_chunk_states;  ///< first extent of chunk_states when cu_seqlens and chunk_states are given
  DType x = DType::f32, dt = DType::f32, y = DType::f32;
  SkipForm skip = SkipForm::none;
  std::optional<DType> D, dt_bias, initial_states, final_states, chunk_states;
  bool z = false, seq_idx = false;
  Device device{};
  Options options{};

  /// Sequences that have a state of their own: S when packed, else B.
  [[nodiscard]] std::int64_t sequences() const noexcept { return packed_sequences.value_or(batch); }

  /// The problem that these tensors pose. @throws Error naming the tensor, its shape, dtype or stride, and what would
  /// be right.
  [[nodiscard]] TILEMAMBA_EXPORT static Problem of(const Arguments& arguments, const Options& options = {});
  /// @throws Error if the sizes, types and options do not go together.
  TILEMAMBA_EXPORT void check() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Checks all that `scan` checks, the values of cu_seqlens included (they must be in host memory, or on a device whose
/// backend is built).
/// @throws Error naming the tensor, or the entry of cu_seqlens.
TILEMAMBA_EXPORT void validate(const Arguments& arguments, const Options& options = {});

// ---------------------------------------------------------------------------------------------------- backends and
// plans

/// "automatic", "staged", "fused", "recurrent" (docs/tile-interface.md).
[[nodiscard]] TILEMAMBA_EXPORT std::string_view name(Schedule schedule) noexcept;
/// @throws Error listing the valid names.
[[nodiscard]] TILEMAMBA_EXPORT Schedule schedule_named(std::string_view name);

/// What the caller insists on. Empty fields are the library's choice.
struct Choice {
  std::string
      backend;  ///< a family ("kokkos") or a member ("kokkos-openmp"); empty: TILEMAMBA_BACKEND, else the device query
  Schedule schedule = Schedule::automatic;
  std::string policy;  ///< the name of a tile configuration, as `candidates` lists them
  friend bool operator==(const Choice&, const Choice&) = default;
};

struct BackendInfo {
  std::string name;    ///< member, e.g. "kokkos-openmp"
  std::string family;  ///< e.g. "kokkos"
  bool can_run = false;
  std::string reason;                ///< why not, or a word on what it is
  std::vector<std::string> devices;  ///< what it would run on
  bool proven = true;                ///< somebody has run it on a device; else it is used after a proof only (README)
};
/// Every backend of this build in the order in which they are tried, each probed now.
[[nodiscard]] TILEMAMBA_EXPORT std::vector<BackendInfo> backends();

struct Candidate {
  std::string backend;
  Schedule schedule = Schedule::automatic;
  std::string policy;
  bool is_default = false;  ///< the planner's choice for this problem on this backend
  std::string refusal;      ///< empty: can run; else why not
  std::size_t workspace_bytes = 0;
};
/// Every (backend, schedule, policy) for this problem, those that refuse included. A backend that nobody has run on a
/// device is not tried for it: a plan may still refuse it. @throws Error if the problem is wrong in itself.
[[nodiscard]] TILEMAMBA_EXPORT std::vector<Candidate> candidates(const Problem& problem);

/// A problem bound to a backend, a schedule and a policy. Cheap to copy; safe to execute from several threads at once,
/// each with its own workspace.
class TILEMAMBA_EXPORT Plan {
 public:
  /// @throws Error if the problem is wrong, or nothing can run it as `choice` asks: then with every candidate's reason.
  explicit Plan(const Problem& problem, const Choice& choice = {});

  /// The plan that `scan` uses: from a cache that is safe under threads, made when it is first asked for.
  /// @throws Error as the constructor.
  [[nodiscard]] static Plan cached(const Problem& problem, const Choice& choice = {});

  [[nodiscard]] const Problem& problem() const noexcept;
  [[nodiscard]] std::string_view backend() const noexcept;
  [[nodiscard]] Schedule schedule() const noexcept;
  [[nodiscard]] std::string_view policy() const noexcept;
  /// Bytes of memory, addressable by the device and aligned to 256, that `execute` needs. May be 0.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;

  /// Runs the call. Allocates nothing, synchronises nothing (a CPU backend returns when it is done), times nothing.
  /// No output may overlap an input, the workspace or another output.
  /// @param stream the device's stream (cudaStream_t, hipStream_t), or null for its default; CPU backends take null
  /// only.
  /// @throws Error if the arguments are not those of the plan's problem, naming the first difference; outputs are then
  /// untouched.
  void execute(const Arguments& arguments, void* workspace, std::size_t workspace_bytes, void* stream = nullptr) const;

  struct Impl;

 private:
  explicit Plan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

/// Plan (from a cache that is safe under threads), workspace and execute in one call, which waits for no device. The
/// values of cu_seqlens are checked where they are in host memory.
TILEMAMBA_EXPORT void scan(const Arguments& arguments, const Options& options = {}, const Choice& choice = {},
                           void* stream = nullptr);

}  // namespace tilemamba
