// SPDX-License-Identifier: Apache-2.0
// What a call's tensors must be to each other. Everything here comes before any launch.
#include "core/problem.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tilemamba {

std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
  }
  return "unknown";
}

std::string to_string(const Device& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceKind::hip:
      return "hip:" + std::to_string(device.index);
  }
  return "unknown";
}

namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string list(const Extents& values, int rank) {
  std::string text = "(";
  for (int d = 0; d < rank; ++d) text += (d == 0 ? "" : ",") + std::to_string(values[d]);
  return text + ")";
}

/// The extents of one dimension, for messages.
using Shape = std::initializer_list<std::int64_t>;

std::string list(Shape shape) {
  Extents extents{};
  std::copy(shape.begin(), shape.end(), extents.begin());
  return list(extents, static_cast<int>(shape.size()));
}

void check_rank(const char* tensor, const Layout& layout, int rank, const char* axes) {
  if (layout.rank != rank) {
    fail(std::string(tensor) + " has " + std::to_string(layout.rank) + " dimensions; it must have " +
         std::to_string(rank) + ", " + axes);
  }
  for (int d = 0; d < rank; ++d) {
    if (layout.shape[d] < 0)
      fail(std::string(tensor) + " has shape " + list(layout.shape, rank) + "; no extent may be negative");
  }
}

void check_shape(const char* tensor, const Layout& layout, Shape shape, const char* axes) {
  check_rank(tensor, layout, static_cast<int>(shape.size()), axes);
  if (!std::equal(shape.begin(), shape.end(), layout.shape.begin())) {
    fail(std::string(tensor) + " has shape " + list(layout.shape, layout.rank) + "; it must be " + axes + " = " +
         list(shape));
  }
}

void check_dtype(const char* tensor, DType dtype, std::initializer_list<DType> allowed, const char* rule) {
  if (std::find(allowed.begin(), allowed.end(), dtype) != allowed.end()) return;
  std::string valid;
  for (DType a : allowed) valid += (valid.empty() ? "" : " or ") + std::string(name(a));
  fail(std::string(tensor) + " has dtype " + std::string(name(dtype)) + "; it must be " + valid +
       (*rule == 0 ? "" : std::string(" (") + rule + ")"));
}

/// Strides that can be walked with 64-bit offsets, the last dimension contiguous, the data there and aligned, on the
/// device of x.
void check_memory(const char* tensor, const Layout& layout, const void* data, const Device& device) {
  if (!(layout.device == device)) {
    fail(std::string(tensor) + " is on " + to_string(layout.device) + " but x is on " + to_string(device) +
         "; all tensors must be on one device");
  }
  constexpr std::int64_t most = std::int64_t{1} << 60;  // elements; bytes fit as well
  std::int64_t elements = 1;
  std::int64_t reach = 0;
  for (int d = 0; d < layout.rank; ++d) {
    const std::int64_t extent = layout.shape[d];
    const std::int64_t stride = layout.strides[d];
    const bool fits = extent <= 1 || (-most <= stride && stride <= most &&
                                      (stride == 0 || extent - 1 <= (most - reach) / std::abs(stride)));
    if (!fits || __builtin_mul_overflow(elements, extent, &elements)) {
      fail(std::string(tensor) + " of shape " + list(layout.shape, layout.rank) + " and strides " +
           list(layout.strides, layout.rank) + " does not fit 64-bit offsets");
    }
    if (extent > 1) reach += (extent - 1) * std::abs(stride);
  }
  if (elements == 0) return;
  const int last = layout.rank - 1;
  if (layout.shape[last] > 1 && layout.strides[last] != 1) {
    fail(std::string(tensor) + " has strides " + list(layout.strides, layout.rank) +
         "; the last dimension must be contiguous (stride 1, not " + std::to_string(layout.strides[last]) + ")");
  }
  if (data == nullptr)
    fail(std::string(tensor) + " has no data (null pointer) for shape " + list(layout.shape, layout.rank));
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(layout.dtype) != 0) {
    fail(std::string(tensor) + " is not aligned to its element size, " + std::to_string(size_of(layout.dtype)) +
         " bytes");
  }
}

/// No two elements of an output may share their memory.
void check_distinct(const char* tensor, const Layout& layout) {
  std::array<int, max_rank> order{};
  int dimensions = 0;
  for (int d = 0; d < layout.rank; ++d) {
    if (layout.shape[d] == 0) return;
    if (layout.shape[d] > 1) order[dimensions++] = d;
  }
  const auto magnitude = [&](int d) { return std::abs(layout.strides[d]); };
  for (int k = 1; k < dimensions; ++k) {  // by stride, the smallest first
    for (int at = k; at > 0 && magnitude(order[at]) < magnitude(order[at - 1]); --at)
      std::swap(order[at], order[at - 1]);
  }
  std::int64_t covered = 1;
  for (int k = 0; k < dimensions; ++k) {
    if (magnitude(order[k]) < covered) {
      fail(std::string(tensor) + " is an output whose elements overlap: shape " + list(layout.shape, layout.rank) +
           ", strides " + list(layout.strides, layout.rank));
    }
    covered += (layout.shape[order[k]] - 1) * magnitude(order[k]);
  }
}

void check_output(const char* tensor, const MutableTensor& output, const Device& device) {
  check_memory(tensor, output, output.data, device);
  check_distinct(tensor, output);
}

std::string number(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  return text;
}

}  // namespace

Layout dense(DType dtype, std::initializer_list<std::int64_t> shape, Device device) {
  if (shape.size() > max_rank)
    fail("a tensor may have " + std::to_string(max_rank) + " dimensions, not " + std::to_string(shape.size()));
  Layout layout{dtype, static_cast<int>(shape.size()), {}, {}, device};
  std::copy(shape.begin(), shape.end(), layout.shape.begin());
  std::int64_t stride = 1;
  for (int d = layout.rank - 1; d >= 0; --d) {
    layout.strides[d] = stride;
    if (layout.shape[d] < 0) fail("shape " + list(layout.shape, layout.rank) + ": no extent may be negative");
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(layout.shape[d], 1), &stride))
      fail("shape " + list(layout.shape, layout.rank) + " is too large for 64-bit offsets");
  }
  return layout;
}

void Problem::check() const {
  const auto in_range = [](const char* what, const char* letter, std::int64_t value, std::int64_t low,
                           std::int64_t high) {
    if (value < low || value > high) {
      fail(std::string(what) + " " + letter + " = " + std::to_string(value) + "; it must be from " +
           std::to_string(low) + " to " + std::to_string(high));
    }
  };
  in_range("batch", "B", batch, 0, limits::batch);
  in_range("tokens", "T", tokens, 0, limits::tokens);
  in_range("heads", "H", heads, 1, limits::heads);
  in_range("groups", "G", groups, 1, limits::heads);
  in_range("head dimension", "P", head_dim, 1, limits::head_dim);
  in_range("state size", "N", state, 1, limits::state);
  if (heads % groups != 0) {
    fail("heads H = " + std::to_string(heads) + " must be a multiple of groups G = " + std::to_string(groups));
  }
  if (packed_sequences) {
    if (batch != 1) fail("cu_seqlens packs sequences into one row: batch B must be 1, not " + std::to_string(batch));
    in_range("packed sequences", "S", *packed_sequences, 0, limits::batch);
  }

  check_dtype("x", x, {DType::f32, DType::f16, DType::bf16}, "");
  check_dtype("dt", dt, {x, DType::f32}, "as x, or f32");
  check_dtype("y", y, {x, DType::f32}, "as x, or f32");
  if ((skip != SkipForm::none) != D.has_value()) fail("D: its form and its dtype must be given together");
  if (D) check_dtype("D", *D, {DType::f32, x}, "f32, or as x");
  if (dt_bias) check_dtype("dt_bias", *dt_bias, {DType::f32, dt}, "f32, or as dt");
  const std::initializer_list<DType> floats = {DType::f32, DType::bf16, DType::f16};
  if (initial_states) check_dtype("initial_states", *initial_states, floats, "");
  if (final_states) check_dtype("final_states", *final_states, floats, "");
  if (chunk_states) check_dtype("chunk_states", *chunk_states, floats, "");
  if (chunk_states && final_states && *chunk_states != *final_states) {
    fail("chunk_states has dtype " + std::string(name(*chunk_states)) + "; it must be that of final_states, " +
         std::string(name(*final_states)));
  }

  const std::int64_t every = options.chunk_states_every;
  if (every < 0 || every % 16 != 0 || every > limits::tokens) {
    fail("chunk_states_every K = " + std::to_string(every) +
         "; it must be a multiple of 16 (0: no chunk_states) up to " + std::to_string(limits::tokens));
  }
  if (chunk_states && every == 0)
    fail(
        "chunk_states was passed but chunk_states_every is 0; give the number of tokens between states, a multiple of "
        "16");
  if (!chunk_states && every != 0)
    fail("chunk_states_every = " + std::to_string(every) + " asks for chunk_states, but that tensor was not passed");
  if (chunk_states && seq_idx) fail("chunk_states cannot be combined with seq_idx; use cu_seqlens");
  if (packed_chunk_states.has_value() != (chunk_states && packed_sequences)) {
    fail(
        "packed_chunk_states, the first extent of chunk_states, goes with cu_seqlens and chunk_states and only with "
        "both");
  }
  if (packed_chunk_states) in_range("chunk_states", "(first extent)", *packed_chunk_states, 0, limits::tokens);

  // Written so that a NaN fails.
  if (!(options.dt_min >= 0.0f) || !(options.dt_min <= options.dt_max)) {
    fail("dt_limit = (" + number(options.dt_min) + ", " + number(options.dt_max) +
         "); it must be (lo, hi) with 0 <= lo <= hi");
  }
  if (options.chunk_size < 0)
    fail("chunk_size = " + std::to_string(options.chunk_size) + "; it is a hint and must be positive, or 0 for none");
}

Problem Problem::of(const Arguments& a, const Options& options) {
  check_rank("x", a.x, 4, "(B,T,H,P)");
  check_rank("B", a.B, 4, "(B,T,G,N)");

  Problem p;
  p.batch = a.x.shape[0];
  p.tokens = a.x.shape[1];
  p.heads = a.x.shape[2];
  p.head_dim = a.x.shape[3];
  p.groups = a.B.shape[2];
  p.state = a.B.shape[3];
  p.x = a.x.dtype;
  p.dt = a.dt.dtype;
  p.y = a.y.dtype;
  p.device = a.x.device;
  p.options = options;
  p.z = a.z.has_value();
  p.seq_idx = a.seq_idx.has_value();
  if (a.cu_seqlens) {
    check_rank("cu_seqlens", *a.cu_seqlens, 1, "(S+1)");
    if (a.cu_seqlens->shape[0] == 0) fail("cu_seqlens is empty; it must have S+1 entries, the first 0");
    p.packed_sequences = a.cu_seqlens->shape[0] - 1;
  }
  if (a.D) {
    if (a.D->rank != 1 && a.D->rank != 2)
      fail("D has " + std::to_string(a.D->rank) + " dimensions; it must be (H) or (H,P)");
    p.skip = a.D->rank == 1 ? SkipForm::per_head : SkipForm::per_channel;
    p.D = a.D->dtype;
  }
  if (a.dt_bias) p.dt_bias = a.dt_bias->dtype;
  if (a.initial_states) p.initial_states = a.initial_states->dtype;
  if (a.final_states) p.final_states = a.final_states->dtype;
  if (a.chunk_states) p.chunk_states = a.chunk_states->dtype;
  if (a.chunk_states && p.packed_sequences) {
    check_rank("chunk_states", *a.chunk_states, 4, "(sum of len div K,H,P,N)");
    p.packed_chunk_states = a.chunk_states->shape[0];
  }
  p.check();

  const std::int64_t b = p.batch, t = p.tokens, h = p.heads, d = p.head_dim, g = p.groups, n = p.state,
                     s = p.sequences();
  check_shape("dt", a.dt, {b, t, h}, "(B,T,H)");
  check_shape("A", a.A, {h}, "(H)");
  check_dtype("A", a.A.dtype, {DType::f32}, "");
  check_shape("B", a.B, {b, t, g, n}, "(B,T,G,N)");
  check_shape("C", a.C, {b, t, g, n}, "(B,T,G,N)");
  check_dtype("B", a.B.dtype, {p.x}, "as x");
  check_dtype("C", a.C.dtype, {p.x}, "as x");
  check_shape("y", a.y, {b, t, h, d}, "(B,T,H,P)");
  check_memory("x", a.x, a.x.data, p.device);
  check_memory("dt", a.dt, a.dt.data, p.device);
  check_memory("A", a.A, a.A.data, p.device);
  check_memory("B", a.B, a.B.data, p.device);
  check_memory("C", a.C, a.C.data, p.device);
  check_output("y", a.y, p.device);
  if (a.D) {
    p.skip == SkipForm::per_head ? check_shape("D", *a.D, {h}, "(H)") : check_shape("D", *a.D, {h, d}, "(H,P)");
    check_memory("D", *a.D, a.D->data, p.device);
  }
  if (a.z) {
    check_shape("z", *a.z, {b, t, h, d}, "(B,T,H,P)");
    check_dtype("z", a.z->dtype, {p.x}, "as x");
    check_memory("z", *a.z, a.z->data, p.device);
  }
  if (a.dt_bias) {
    check_shape("dt_bias", *a.dt_bias, {h}, "(H)");
    check_memory("dt_bias", *a.dt_bias, a.dt_bias->data, p.device);
  }
  if (a.seq_idx) {
    check_shape("seq_idx", *a.seq_idx, {b, t}, "(B,T)");
    check_dtype("seq_idx", a.seq_idx->dtype, {DType::i32}, "");
    check_memory("seq_idx", *a.seq_idx, a.seq_idx->data, p.device);
  }
  if (a.cu_seqlens) {
    check_dtype("cu_seqlens", a.cu_seqlens->dtype, {DType::i32}, "");
    check_memory("cu_seqlens", *a.cu_seqlens, a.cu_seqlens->data, p.device);
  }
  const char* states = p.packed_sequences ? "(S,H,P,N)" : "(B,H,P,N)";
  if (a.initial_states) {
    check_shape("initial_states", *a.initial_states, {s, h, d, n}, states);
    check_memory("initial_states", *a.initial_states, a.initial_states->data, p.device);
  }
  if (a.final_states) {
    check_shape("final_states", *a.final_states, {s, h, d, n}, states);
    check_output("final_states", *a.final_states, p.device);
  }
  if (a.chunk_states) {
    if (p.packed_sequences) {
      check_shape("chunk_states", *a.chunk_states, {*p.packed_chunk_states, h, d, n}, "(sum of len div K,H,P,N)");
    } else {
      check_shape("chunk_states", *a.chunk_states, {b, t / options.chunk_states_every, h, d, n}, "(B,T div K,H,P,N)");
    }
    check_output("chunk_states", *a.chunk_states, p.device);
  }
  return p;
}

void check_cu_seqlens(const Problem& problem, const std::int32_t* entries) {
  const std::int64_t count = *problem.packed_sequences;
  const auto entry = [&](std::int64_t s) {
    return "cu_seqlens[" + std::to_string(s) + "] = " + std::to_string(entries[s]);
  };
  if (entries[0] != 0) fail(entry(0) + "; the first entry must be 0");
  std::int64_t snapshots = 0;
  for (std::int64_t s = 1; s <= count; ++s) {
    if (entries[s] < 0) fail(entry(s) + "; no entry may be negative");
    if (entries[s] < entries[s - 1]) fail(entry(s) + " is below " + entry(s - 1) + "; entries must not decrease");
    if (entries[s] > problem.tokens) fail(entry(s) + " is beyond the tokens, T = " + std::to_string(problem.tokens));
    if (problem.chunk_states) snapshots += (entries[s] - entries[s - 1]) / problem.options.chunk_states_every;
  }
  if (entries[count] != problem.tokens)
    fail(entry(count) + "; the last entry must be T = " + std::to_string(problem.tokens));
  if (problem.packed_chunk_states && snapshots != *problem.packed_chunk_states) {
    fail("chunk_states has first extent " + std::to_string(*problem.packed_chunk_states) +
         "; it must be the sum of len div K over the sequences, " + std::to_string(snapshots));
  }
}

std::string difference(const Problem& planned, const Problem& given) {
  const auto number_differs = [](const char* what, std::int64_t p, std::int64_t g) {
    return std::string(what) + " is " + std::to_string(g) + " but the plan was made for " + std::to_string(p);
  };
  const auto dtype_differs = [](const char* what, std::optional<DType> p, std::optional<DType> g) {
    if (!p) return std::string(what) + " was passed, but the plan was made without it";
    if (!g) return std::string(what) + " was not passed, but the plan was made with it";
    return std::string(what) + " has dtype " + std::string(name(*g)) + " but the plan was made for " +
           std::string(name(*p));
  };
  const std::pair<const char*, std::int64_t Problem::*> sizes[] = {
      {"batch B", &Problem::batch},   {"tokens T", &Problem::tokens},
      {"heads H", &Problem::heads},   {"head dimension P", &Problem::head_dim},
      {"groups G", &Problem::groups}, {"state size N", &Problem::state}};
  for (const auto& [what, member] : sizes) {
    if (planned.*member != given.*member) return number_differs(what, planned.*member, given.*member);
  }
  const auto present = [](bool yes) { return yes ? std::optional<DType>(DType::f32) : std::nullopt; };
  if (planned.packed_sequences.has_value() != given.packed_sequences.has_value()) {
    return dtype_differs("cu_seqlens", present(planned.packed_sequences.has_value()),
                         present(given.packed_sequences.has_value()));
  }
  if (planned.packed_sequences != given.packed_sequences)
    return number_differs("the number of sequences S", *planned.packed_sequences, *given.packed_sequences);
  if (planned.x != given.x) return dtype_differs("x", planned.x, given.x);
  if (planned.dt != given.dt) return dtype_differs("dt", planned.dt, given.dt);
  if (planned.y != given.y) return dtype_differs("y", planned.y, given.y);
  if (planned.D != given.D) return dtype_differs("D", planned.D, given.D);
  if (planned.skip != given.skip)
    return std::string("D has shape ") + (given.skip == SkipForm::per_head ? "(H)" : "(H,P)") +
           " but the plan was made for the other form";
  if (planned.z != given.z) return dtype_differs("z", present(planned.z), present(given.z));
  if (planned.dt_bias != given.dt_bias) return dtype_differs("dt_bias", planned.dt_bias, given.dt_bias);
  if (planned.seq_idx != given.seq_idx)
    return dtype_differs("seq_idx", present(planned.seq_idx), present(given.seq_idx));
  if (planned.initial_states != given.initial_states)
    return dtype_differs("initial_states", planned.initial_states, given.initial_states);
  if (planned.final_states != given.final_states)
    return dtype_differs("final_states", planned.final_states, given.final_states);
  if (planned.chunk_states != given.chunk_states)
    return dtype_differs("chunk_states", planned.chunk_states, given.chunk_states);
  if (planned.packed_chunk_states != given.packed_chunk_states) {
    return number_differs("the first extent of chunk_states", planned.packed_chunk_states.value_or(0),
                          given.packed_chunk_states.value_or(0));
  }
  if (!(planned.device == given.device))
    return "the tensors are on " + to_string(given.device) + " but the plan was made for " + to_string(planned.device);
  return planned.options == given.options ? std::string() : "the options differ from the plan's";
}

}  // namespace tilemamba
