// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inputs that broke other systems (public reports), each said as its kind; rows are numbered as the project's list has
/// them. Elsewhere: 10, 15 and 20's cu_seqlens in errors_test, 12 in properties_test and threads_test, 18 in
/// selection_test, 14 and 16 in cuda_test. Row 17 is a step of bench/device_suite.sh.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/mirror.hpp"
#include "core/reference.hpp"
#include "core/registry.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

class Cases : public BackendTest {
 protected:
  /// Runs tokens [0, T) in pieces of the lengths given, the state carried; fills outputs like those of `whole`.
  [[nodiscard]] bool run_in_pieces(const Call& whole, std::int64_t row, std::int64_t first,
                                   const std::vector<std::int64_t>& lengths, std::optional<Tensor> state,
                                   const MutableTensor& y, MutableTensor& final_state) {
    const Spec& spec = whole.spec;
    std::int64_t begin = first;
    for (const std::int64_t length : lengths) {
      Arguments part = tokens_of(whole.arguments, row, begin, length);
      part.initial_states = state;
      part.y = slice(y, 1, begin, length);
      part.final_states = arena_.tensor(DType::f32, {1, spec.heads, spec.head_dim, spec.state});
      if (!run(part, spec.options)) return false;
      state = *part.final_states;
      final_state = *part.final_states;
      begin += length;
    }
    return true;
  }

  Arena arena_;
};

// -------------------------------------------------------------------------------------------------- 1: 64-bit offsets

/// Memory of a target's device, more than its host may have: on the CPU address space that is backed only where it is
/// touched. Tensors are brought there and back one run of neighbouring elements after the other.
class FarMemory {
 public:
  FarMemory(const Target& target, std::size_t bytes) : device_(home_of(target.backend)), bytes_(bytes) {
    for (const Entry* entry : registry().named(target.backend)) backend_ = entry->backend;
    if (device_.kind != DeviceKind::cpu) {
      data_ = backend_->allocate(device_, bytes);
      return;
    }
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) data_ = nullptr;
  }
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;
  ~FarMemory() {
    if (data_ == nullptr) return;
    device_.kind == DeviceKind::cpu ? static_cast<void>(munmap(data_, bytes_)) : backend_->release(device_, data_);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

  /// A tensor here, with the next free elements, that is like `near` but for one stride; it holds the same values.
  template <typename T>
  T spread(const T& near, int dimension, std::int64_t stride) {
    T far = near;
    far.device = device_;
    std::int64_t inner = 1;
    for (int d = near.rank - 1; d >= 0; --d) {
      far.strides[d] = d == dimension ? stride : inner;
      if (d != dimension) inner *= near.shape[d];
    }
    far.data = data() + taken_;
    taken_ += static_cast<std::size_t>(inner) * size_of(near.dtype);
    taken_ = (taken_ + 4095) / 4096 * 4096;  // a page of its own
    each_run(near, far, [&](const std::byte* here, std::byte* there, std::size_t count) {
      EXPECT_EQ(backend_->upload(device_, there, here, count).message, "");
    });
    return far;
  }
  /// Runs `call` with those of its tensors that `far` has here, and the others brought here; fills `outputs`.
  void run(const Target& target, const Call& call, Arguments far, const Arguments& outputs) {
    const auto place = [&](auto& tensor) {
      const bool here = tensor.data >= data_ && tensor.data < data() + bytes_;
      if (!here) tensor = spread(tensor, tensor.rank, 0);
    };
    for (Tensor* tensor : {&far.x, &far.dt, &far.A, &far.B, &far.C}) place(*tensor);
    for (std::optional<Tensor>* tensor : {&far.z, &far.initial_states}) {
      if (*tensor) place(**tensor);
    }
    place(far.y);
    for (std::optional<MutableTensor>* tensor : {&far.final_states, &far.chunk_states}) {
      if (*tensor) place(**tensor);
    }
    const Plan plan(Problem::of(far, call.options), target.choice());
    void* const workspace = backend_->allocate(device_, plan.workspace_bytes() + 1);
    ASSERT_NE(workspace, nullptr);
    plan.execute(far, workspace, plan.workspace_bytes());
    fetch(far.y, outputs.y);
    if (far.final_states) fetch(*far.final_states, *outputs.final_states);
    if (far.chunk_states) fetch(*far.chunk_states, *outputs.chunk_states);
    backend_->release(device_, workspace);
  }

 private:
  void fetch(const Tensor& far, const MutableTensor& near) {
    each_run(near, far, [&](std::byte* here, const std::byte* there, std::size_t count) {
      EXPECT_EQ(backend_->download(device_, here, there, count).message, "");
    });
  }
  /// f(bytes of `near`, which is dense, bytes of `far`, their count) for runs of the last dimension.
  template <typename Near, typename Far, typename F>
  void each_run(const Near& near, const Far& far, const F& f) {
    const std::int64_t width = near.rank == 0 ? 1 : near.shape[near.rank - 1];
    const auto element = static_cast<std::int64_t>(size_of(near.dtype));
    for (std::int64_t run = 0; width > 0 && run < size(near) / width; ++run) {
      std::int64_t rest = run, there = 0;
      for (int d = near.rank - 2; d >= 0; --d) {
        there += rest % near.shape[d] * far.strides[d];
        rest /= near.shape[d];
      }
      using Byte = std::conditional_t<std::is_same_v<Near, Tensor>, const std::byte, std::byte>;
      f(static_cast<Byte*>(near.data) + run * width * element,
        const_cast<std::byte*>(static_cast<const std::byte*>(far.data)) + there * element,
        static_cast<std::size_t>(width * element));
    }
  }

  Device device_;
  std::size_t bytes_, taken_ = 0;
  const Backend* backend_ = nullptr;
  void* data_ = nullptr;
};
/// The list has rows of 35,072 elements and 61,440 tokens, which is the work of an hour here. What it tests is offsets
/// beyond 2^31 (and 2^32) elements: the same offsets, with few tokens far apart.
TEST_P(Cases, Row1OffsetsBeyond32Bits) {
  struct Stretched {
    int dimension;  // of y, x, z, dt, B, C
    std::int64_t extent;
    std::int64_t far;  // elements from one to the next
  };
  // Rows, tokens and heads whose offsets pass 2^32; tokens that pass 2^31 within a chunk of 64, and within one of 16.
  for (const auto& [dimension, extent, far] : {Stretched{0, 130, std::int64_t{1} << 25},
                                               {1, 130, std::int64_t{1} << 25},
                                               {1, 70, std::int64_t{1} << 26},
                                               {1, 18, std::int64_t{1} << 28},
                                               {2, 130, std::int64_t{1} << 25}}) {
    Spec spec;
    spec.type(DType::bf16);
    spec.batch = dimension == 0 ? extent : 1, spec.tokens = dimension == 1 ? extent : 3;
    spec.heads = dimension == 2 ? extent : 2, spec.groups = dimension == 2 ? extent : 1;
    spec.z = true, spec.head_dim = 16, spec.state = 8, spec.decay = Decay::slow;
    spec = fit(spec);
    const Call near(spec), again(spec);
    if (!run(near.arguments, near.options)) GTEST_SKIP();
    FarMemory memory(GetParam(), static_cast<std::size_t>((extent + 1) * far) * size_of(spec.x));
    if (memory.data() == nullptr) GTEST_SKIP() << "there is no room for tensors of 10 GB, or 20 in float";
    Arguments apart = near.arguments;
    apart.x = memory.spread(near.arguments.x, dimension, far);
    apart.z = memory.spread(*near.arguments.z, dimension, far);
    apart.B = memory.spread(near.arguments.B, dimension, far);
    apart.C = memory.spread(near.arguments.C, dimension, far);
    apart.y = memory.spread(near.arguments.y, dimension, far);
    // The last dimension must be contiguous; in dt that is the heads'.
    if (dimension < 2) apart.dt = memory.spread(near.arguments.dt, dimension, far);
    memory.run(GetParam(), near, apart, again.arguments);
    expect_same_outputs(near.arguments, again.arguments);
  }
}

/// States beyond 2^31 elements: the last sequence's, and the last channel's.
TEST_P(Cases, Row1StateOffsetsBeyond32Bits) {
  for (const int dimension : {0, 1, 2}) {
    Spec spec;
    spec.batch = dimension == 0 ? 3 : 1, spec.tokens = 40, spec.heads = 3, spec.head_dim = 16, spec.state = 8;
    spec.initial_states = DType::f32, spec.chunk_states = DType::f32, spec.options.chunk_states_every = 16;
    spec = fit(spec);
    const Call near(spec), again(spec);
    if (!run(near.arguments, near.options)) GTEST_SKIP();
    const std::int64_t far = (std::int64_t{1} << 32) / (near.arguments.final_states->shape[dimension] - 1);
    FarMemory memory(GetParam(), (std::size_t{1} << 34) + (std::size_t{1} << 24));
    if (memory.data() == nullptr) GTEST_SKIP() << "there is no room for tensors of 17 GB";
    Arguments apart = near.arguments;
    apart.initial_states = memory.spread(*near.arguments.initial_states, dimension, far);
    apart.final_states = memory.spread(*near.arguments.final_states, dimension, far);
    apart.chunk_states = memory.spread(*near.arguments.chunk_states, dimension == 0 ? 0 : dimension + 1, far);
    memory.run(GetParam(), near, apart, again.arguments);
    expect_same_outputs(near.arguments, again.arguments);
  }
}

/// The row itself, with its own strides and the fewest heads: one of x, B, C's buffer rows is 35,072 wide.
TEST_P(Cases, Row1WideRowsSplitAndResumed) {
  constexpr std::int64_t width = 35072, tokens = 130, heads = 256, head_dim = 64, groups = 8, state = 128;
  Spec spec;  // dt, A and the outputs' types
  spec.type(DType::bf16);
  spec.tokens = tokens, spec.heads = heads, spec.head_dim = 16, spec.groups = groups, spec.state = 8;
  spec = fit(spec);
  Call call(spec);
  std::vector<std::byte> buffer(static_cast<std::size_t>(tokens * width) * size_of(spec.x));
  Random random(1);
  for (std::int64_t k = 0; k < tokens * width; ++k) reference::store(spec.x, buffer.data(), k, random.uniform(-1, 1));
  const auto view = [&](Tensor& tensor, std::int64_t column, std::int64_t outer, std::int64_t stride) {
    tensor.data = buffer.data() + column * static_cast<std::int64_t>(size_of(spec.x));
    tensor.shape[2] = outer;
    tensor.strides = {tokens * width, width, stride, 1};
  };
  view(call.arguments.x, width - heads * head_dim, heads, head_dim);  // 16 channels of each head's 64: a view again
  view(call.arguments.B, 0, groups, state);
  view(call.arguments.C, groups * state, groups, state);
  const Expected expected = expected_of(call.arguments, call.options);
  if (!run(call)) GTEST_SKIP();
  expect_within_bars(call.arguments, call.options, expected);
  MutableTensor final_state;
  Arguments joined = call.arguments;
  joined.y = arena_.tensor(spec.y, {1, tokens, heads, spec.head_dim});
  ASSERT_TRUE(run_in_pieces(call, 0, 0, {65, 65}, {}, joined.y, final_state));
  joined.final_states = final_state;
  expect_within_bars(joined, call.options, expected);
}

// ----------------------------------------------------------------------------------------- 2, 3, 7: states carried on

TEST_P(Cases, Row2ResumedInsideAChunk) {
  Spec spec;
  spec.type(DType::bf16).pack({270, 88, 212, 203});
  spec.heads = 2, spec.head_dim = 64, spec.state = 32, spec.options.chunk_size = 256, spec.initial_states = DType::f32;
  spec.decay = Decay::slow;
  spec = fit(spec);
  Call whole(spec);
  if (!run(whole)) GTEST_SKIP();
  const Expected& expected = expected_of(spec);
  expect_within_bars(whole.arguments, whole.options, expected);
  Arguments joined = whole.arguments;
  joined.y = arena_.tensor(spec.y, {1, spec.tokens, spec.heads, spec.head_dim});
  joined.final_states = arena_.tensor(DType::f32, {4, spec.heads, spec.head_dim, spec.state});
  std::int64_t begin = 0;
  for (std::int64_t s = 0; s < 4; ++s) {
    const std::int64_t length = (*spec.lengths)[s];
    MutableTensor final_state;
    ASSERT_TRUE(run_in_pieces(whole, 0, begin, {length / 2, length - length / 2},
                              slice(*whole.arguments.initial_states, 0, s, 1), joined.y, final_state));
    copy(final_state, slice(*joined.final_states, 0, s, 1));
    begin += length;
  }
  expect_within_bars(joined, whole.options, expected);
}

TEST_P(Cases, Row3SnapshotsAcrossPackedSequences) {
  Spec spec;
  spec.type(DType::bf16).pack({500, 700, 900});
  spec.heads = 1, spec.head_dim = 32, spec.state = 32, spec.decay = Decay::slow;
  spec.chunk_states = DType::f32, spec.options.chunk_states_every = 128, spec.options.chunk_size = 128;
  ASSERT_TRUE(
      run_within_bars(spec));  // chunk states of the reference are those of each sequence, counted from its start
}

TEST_P(Cases, Row7SegmentWisePrefill) {
  Spec spec;
  spec.type(DType::bf16);
  spec.tokens = 256, spec.head_dim = 64, spec.state = 64, spec.decay = Decay::slow;
  spec = fit(spec);
  Call whole(spec);
  Arguments joined = whole.arguments;
  MutableTensor final_state;
  ASSERT_TRUE(run_in_pieces(whole, 0, 0, {64, 64, 64, 64}, {}, joined.y, final_state));
  joined.final_states = final_state;
  expect_within_bars(joined, whole.options, expected_of(spec));
}

// ----------------------------------------------------------------------------------------------- 4, 8, 22: step sizes

TEST_P(Cases, Row4OverflowAboveTheDiagonal) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Spec spec;
    spec.type(dtype);
    spec.tokens = 300, spec.options.chunk_size = 256, spec.decay = Decay::strong, spec.initial_states = DType::f32;
    ASSERT_TRUE(run_within_bars(spec));
  }
}

TEST_P(Cases, Row8Clamp) {
  constexpr float none = std::numeric_limits<float>::infinity();
  for (const auto& [low, high] :
       {std::pair{0.001f, 0.1f}, {0.0f, none}, {0.5f, none}, {0.0f, 0.0f}, {0.25f, 0.25f}, {2.0f, 3.0f}}) {
    for (const bool softplus : {false, true}) {
      Spec spec;
      spec.tokens = 100, spec.options.dt_min = low, spec.options.dt_max = high, spec.options.dt_softplus = softplus;
      spec.initial_states = DType::f32, spec.decay = Decay::slow;
      ASSERT_TRUE(run_within_bars(spec));
    }
  }
}

/// delta = 0, by dt or by the upper limit: no token changes the state, and y is C's view of it.
TEST_P(Cases, Row22ZeroSteps) {
  Spec spec = Spec{};
  spec.tokens = 130, spec.initial_states = DType::f32;
  spec = fit(spec);
  Call call(spec);
  for (std::int64_t t = 0; t < spec.tokens; ++t) {
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      if (t % 3 != 0) set(call.arguments.dt, 0.0, 0, t, h);
    }
  }
  if (!run(call)) GTEST_SKIP();
  expect_within_bars(call.arguments, call.options, expected_of(call.arguments, call.options));

  for (std::int64_t t = 0; t < spec.tokens; ++t) {
    for (std::int64_t h = 0; h < spec.heads; ++h) set(call.arguments.dt, 0.0, 0, t, h);
  }
  ASSERT_TRUE(run(call));
  expect_same_bits(*call.arguments.final_states, *call.arguments.initial_states, "the state after zero steps");
}

// ---------------------------------------------------------------------------------------- 5: every tile configuration

/// Each target is a forced policy; this is the one problem that all of them share, large enough for several tiles each
/// way.
TEST_P(Cases, Row5EveryPolicyOnOneProblem) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Spec spec;
    spec.type(dtype);
    spec.batch = 2, spec.tokens = 333, spec.heads = 3, spec.head_dim = 80, spec.state = 128, spec.decay = Decay::slow;
    spec.initial_states = DType::f32, spec.skip = SkipForm::per_head, spec.z = true;
    ASSERT_TRUE(run_within_bars(spec));
  }
}

// ------------------------------------------------------------------------------------------------ 6: packed documents

TEST_P(Cases, Row6DocumentsDoNotLeak) {
  Spec spec;
  spec.type(DType::bf16);
  spec.tokens = 4, spec.new_document = 1e-9, spec.initial_states = DType::f32;
  spec = fit(spec);
  Call first(spec), changed(spec);
  for (const Call* call : {&first, &changed}) {
    for (std::int64_t t = 0; t < 4; ++t) set(*call->arguments.seq_idx, t / 2, 0, t);
  }
  for (std::int64_t p = 0; p < spec.head_dim; ++p) set(changed.arguments.x, 77.0, 0, 1, 0, p);
  if (!run(first)) GTEST_SKIP();
  ASSERT_TRUE(run(changed));
  expect_same_bits(slice(first.arguments.y, 1, 2, 2), slice(changed.arguments.y, 1, 2, 2), "second document");
  expect_same_bits(*first.arguments.final_states, *changed.arguments.final_states, "final state");
  EXPECT_NE(bits(slice(first.arguments.y, 1, 1, 1)), bits(slice(changed.arguments.y, 1, 1, 1)));
  expect_within_bars(first.arguments, first.options, expected_of(first.arguments, first.options));
}

/// Ids that do not start at 0, that fall, that return, that are negative or the largest: only a change counts.
TEST_P(Cases, Row6IdsOfDocuments) {
  constexpr double largest = 2147483647.0, least = -2147483648.0;
  for (const auto& ids :
       std::vector<std::vector<double>>{{5, 5, 5}, {1, 0, 1}, {-1, 0, -1}, {largest, least, largest}, {0, 1, 0}}) {
    Spec spec;
    spec.tokens = 150, spec.new_document = 1e-9, spec.initial_states = DType::f32, spec.decay = Decay::slow;
    spec = fit(spec);
    Call call(spec);
    for (std::int64_t t = 0; t < 150; ++t) set(*call.arguments.seq_idx, ids[static_cast<std::size_t>(t / 50)], 0, t);
    if (!run(call)) GTEST_SKIP();
    expect_within_bars(call.arguments, call.options, expected_of(call.arguments, call.options));
  }
}

/// A document a token, and one that starts at every border of a tile.
TEST_P(Cases, Row6ManyDocuments) {
  for (const double chance : {1.0, 0.5}) {
    Spec spec;
    spec.type(DType::bf16);
    spec.tokens = 200, spec.batch = 2, spec.new_document = chance, spec.initial_states = DType::f32,
    spec.decay = Decay::slow;
    ASSERT_TRUE(run_within_bars(spec));
  }
  Spec spec;
  spec.tokens = 300, spec.new_document = 1e-9, spec.decay = Decay::slow;
  spec = fit(spec);
  Call call(spec);
  for (std::int64_t t = 0; t < 300; ++t) set(*call.arguments.seq_idx, t / 64, 0, t);
  ASSERT_TRUE(run(call));
  expect_within_bars(call.arguments, call.options, expected_of(call.arguments, call.options));
}

// --------------------------------------------------------------------------------------------------------- 9: D (H,P)

TEST_P(Cases, Row9SkipPerChannel) {
  Spec spec;
  spec.type(DType::bf16);
  spec.heads = 8, spec.head_dim = 64, spec.tokens = 70, spec.skip = SkipForm::per_channel;
  ASSERT_TRUE(run_within_bars(spec));
  spec.D = DType::bf16;
  ASSERT_TRUE(run_within_bars(spec));
}

// ---------------------------------------------------------------------------------------------------- 11: large heads

/// On a GPU this is about shared memory; on any backend the answer is the right one, or one clear refusal before
/// anything is launched: 512 is beyond the range of P.
TEST_P(Cases, Row11LargeHead) {
  Spec spec;
  spec.type(DType::bf16);
  spec.state = 64, spec.tokens = 100, spec.heads = 1, spec.initial_states = DType::f32;
  spec.head_dim = 256;
  ASSERT_TRUE(run_within_bars(spec));
  spec.head_dim = 512;
  spec = fit(spec);
  Call call(spec);
  expect_error(ErrorCode::invalid_argument, {"P", "512", "256"},
               [&] { scan(call.arguments, call.options, GetParam().choice()); });
  EXPECT_TRUE(call.outputs_untouched());
}

// -------------------------------------------------------------------------------------------------------- 13: strides

TEST_P(Cases, Row13ViewsOfOneHeadOfMany) {
  Spec spec;
  spec.type(DType::bf16);
  spec.heads = 7, spec.tokens = 100, spec.head_dim = 32, spec.z = true, spec.memory = Memory::one_buffer;
  spec = fit(spec);
  Call all(spec);
  if (!run(all)) GTEST_SKIP();
  for (const std::int64_t head : {0, 3, 6}) {
    Arguments one = all.arguments;
    for (auto member : {&Arguments::x, &Arguments::dt}) one.*member = slice(one.*member, 2, head, 1);
    one.z = slice(*one.z, 2, head, 1);
    one.A = slice(one.A, 0, head, 1);
    one.y = arena_.tensor(spec.y, {1, spec.tokens, 1, spec.head_dim});
    one.final_states = arena_.tensor(DType::f32, {1, 1, spec.head_dim, spec.state});
    ASSERT_TRUE(run(one, spec.options));
    expect_within_bars(one, spec.options, expected_of(one, spec.options));
  }
}

// --------------------------------------------------------------------------------------- 15: heads that do not divide

TEST_P(Cases, Row15HeadsAndGroups) {
  Spec spec;
  spec.heads = 15, spec.groups = 5, spec.tokens = 20;
  ASSERT_TRUE(run_within_bars(spec));
}

// ---------------------------------------------------------------------------------------- 20: padding, bad cu_seqlens

/// Between the rows of a padded batch lies memory of nobody: it holds NaN in every test (Memory::scattered), and so do
/// the guard zones behind the last token. Here what lies there is as large as can be, and the length ends inside a
/// tile.
TEST_P(Cases, Row20PaddingIsNeverRead) {
  for (const DType dtype : types({DType::f32, DType::f16, DType::bf16})) {
    Spec spec;
    spec.type(dtype);
    spec.batch = 3, spec.tokens = 128, spec.z = true, spec.new_document = 0.03, spec.options.dt_min = 0.01f;
    spec = fit(spec);
    Call padded(spec);
    // Rows of 77 tokens within rows of 128: the rest is no part of the call.
    Arguments cut = padded.arguments;
    for (auto member : {&Arguments::x, &Arguments::dt, &Arguments::B, &Arguments::C})
      cut.*member = slice(cut.*member, 1, 0, 77);
    cut.z = slice(*cut.z, 1, 0, 77), cut.seq_idx = slice(*cut.seq_idx, 1, 0, 77), cut.y = slice(cut.y, 1, 0, 77);
    if (!run(cut, spec.options)) GTEST_SKIP();
    expect_within_bars(cut, spec.options, expected_of(cut, spec.options));
    const std::vector<std::byte> clean = bits(cut.y), clean_states = bits(*cut.final_states);
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t t = 77; t < 128; ++t) {
          for (std::int64_t h = 0; h < spec.heads; ++h) {
            set(padded.arguments.dt, value, b, t, h);
            for (std::int64_t p = 0; p < spec.head_dim; ++p) {
              set(padded.arguments.x, value, b, t, h, p);
              set(*padded.arguments.z, value, b, t, h, p);
            }
          }
          for (std::int64_t n = 0; n < spec.state; ++n) {
            set(padded.arguments.B, value, b, t, 0, n);
            set(padded.arguments.C, value, b, t, 0, n);
          }
        }
      }
      ASSERT_TRUE(run(cut, spec.options));
      EXPECT_EQ(bits(cut.y), clean);
      EXPECT_EQ(bits(*cut.final_states), clean_states);
    }
  }
}

// -------------------------------------------------------------------------------------------- 23: many tiny sequences

TEST_P(Cases, Row23ManyTinySequences) {
  Random random(23);
  std::vector<std::int64_t> lengths;
  for (int k = 0; k < 300; ++k) lengths.push_back(random.integer(1, 199));
  // All of them once; fewer for every group count with one type and every type with one group count, whose products say
  // nothing more.
  const std::vector<std::int64_t> fewer(lengths.begin(), lengths.begin() + 40);
  for (const auto& [groups, dtype, packed] : {std::tuple{1, DType::bf16, &std::as_const(lengths)},
                                              {1, DType::f32, &fewer},
                                              {2, DType::bf16, &fewer},
                                              {8, DType::f16, &fewer},
                                              {4, DType::bf16, &fewer}}) {
    Spec spec;
    spec.type(dtype).pack(*packed);
    spec.heads = groups == 1 ? 3 : 8, spec.groups = groups, spec.initial_states = DType::f32;
    spec.decay = Decay::slow, spec.seed = 23;
    ASSERT_TRUE(run_within_bars(spec));
  }
}

TILEMAMBA_ON_EVERY_TARGET(Cases);

}  // namespace
}  // namespace tilemamba::test
