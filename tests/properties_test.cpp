// SPDX-License-Identifier: Apache-2.0
/// @file
/// What users rely on, each property said once for every backend, schedule and policy. Where a property is about bits
/// there is no tolerance; elsewhere the bars are those of the random tests (1.5 times the error of the same-precision
/// chunked form).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/mirror.hpp"
#include "core/reference.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

class Properties : public BackendTest {
 protected:
  /// Outputs of their own for `inputs`, dense; as `like` has them.
  Arguments with_outputs(Arguments inputs, const Arguments& like, std::int64_t sequences = 1) {
    const std::int64_t H = inputs.x.shape[2], P = inputs.x.shape[3], N = inputs.B.shape[3];
    inputs.y = arena_.tensor(like.y.dtype, {inputs.x.shape[0], inputs.x.shape[1], H, P});
    if (like.final_states) inputs.final_states = arena_.tensor(like.final_states->dtype, {sequences, H, P, N});
    return inputs;
  }

  /// A spec with everything in play that does not get in the way of a property's statement.
  [[nodiscard]] Spec rich(DType dtype) const;

  Arena arena_;
};

Spec everything(DType dtype) {
  Spec spec;
  spec.type(dtype);
  spec.batch = 2, spec.tokens = 200, spec.heads = 4, spec.groups = 2, spec.head_dim = 48, spec.state = 32;
  spec.skip = SkipForm::per_channel, spec.z = true, spec.dt_bias = DType::f32, spec.initial_states = DType::f32;
  spec.options.dt_softplus = true, spec.options.dt_min = 0.001f, spec.options.dt_max = 3.0f;
  spec.decay = Decay::slow;
  spec.seed = 11;
  return spec;
}

Spec Properties::rich(DType dtype) const { return fit(everything(dtype)); }

constexpr std::initializer_list<DType> input_types = {DType::f32, DType::f16, DType::bf16};

// --------------------------------------------------------------------------------------------------------------- bits

TEST_P(Properties, SameBitsEveryTime) {
  for (const bool invariant : {false, true}) {
    Spec spec = rich(DType::bf16);
    spec.tokens = 100, spec.heads = 2, spec.groups = 1, spec.head_dim = 24, spec.state = 16;
    spec.options.batch_invariant = invariant;
    Call first(spec), again(spec);
    if (!run(first)) continue;
    for (std::int64_t k = 0; k < draws(100); ++k) {
      ASSERT_TRUE(run(again));
      ASSERT_NO_FATAL_FAILURE(expect_same_outputs(first.arguments, again.arguments));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Properties, MemoryDoesNotChangeBits) {
  for (const DType dtype : types(input_types)) {
    for (const bool packed : {false, true}) {
      Spec spec = rich(dtype);
      if (packed) spec.pack({70, 0, 1, 129}), spec.new_document = 0.02;
      if (!packed) spec.options.chunk_states_every = 48, spec.chunk_states = DType::f32;
      Call dense(spec);
      if (!run(dense)) continue;
      for (const Memory memory : {Memory::one_buffer, Memory::scattered, Memory::scattered, Memory::scattered}) {
        spec.memory = memory;
        ++spec.seed;
        SCOPED_TRACE(to_string(spec));
        Call elsewhere(spec);
        ASSERT_TRUE(run(elsewhere));
        // A repeated dimension holds its last values in every place: the dense call gets the values that the other
        // really has.
        const auto take = [](const std::optional<Tensor>& from, const std::optional<Tensor>& to) {
          if (to) copy(*from, writable(*to));
        };
        const Arguments &from = elsewhere.arguments, &to = dense.arguments;
        for (auto member : {&Arguments::x, &Arguments::dt, &Arguments::A, &Arguments::B, &Arguments::C}) {
          copy(from.*member, writable(to.*member));
        }
        for (auto member :
             {&Arguments::D, &Arguments::z, &Arguments::dt_bias, &Arguments::initial_states, &Arguments::seq_idx}) {
          take(from.*member, to.*member);
        }
        ASSERT_TRUE(run(dense));
        expect_same_outputs(dense.arguments, elsewhere.arguments);
      }
    }
  }
}

/// y in float, rounded by the test, is y in x's type; the same for states: outputs are rounded once, at the very end.
TEST_P(Properties, OutputsAreRoundedOnce) {
  for (const DType dtype : types({DType::f16, DType::bf16})) {
    Spec spec = rich(dtype);
    spec.chunk_states = DType::f32, spec.options.chunk_states_every = 64;
    spec.y = DType::f32;
    Call wide(spec);
    spec.y = dtype, spec.final_states = dtype, spec.chunk_states = dtype;
    Call narrow(spec);
    if (!run(wide)) continue;
    ASSERT_TRUE(run(narrow));
    for (const auto& [from, to] : {std::pair<Tensor, Tensor>{wide.arguments.y, narrow.arguments.y},
                                   {*wide.arguments.final_states, *narrow.arguments.final_states},
                                   {*wide.arguments.chunk_states, *narrow.arguments.chunk_states}}) {
      const MutableTensor rounded = arena_.tensor(dtype, {size(from)});
      MutableTensor shaped = rounded;
      static_cast<Layout&>(shaped) = dense(dtype, {size(from)});
      shaped.rank = from.rank, shaped.shape = from.shape, shaped.strides = from.strides;
      copy(from, shaped);
      expect_same_bits(shaped, to, std::string(name(dtype)));
    }
  }
}

/// A tensor in another type that holds the same values gives the same bits.
TEST_P(Properties, TypeOfAnInputDoesNotMatterButItsValues) {
  for (const DType dtype : types({DType::f16, DType::bf16})) {
    Spec spec = rich(dtype);
    spec.dt = spec.D = dtype, spec.dt_bias = dtype, spec.initial_states = dtype;
    Call narrow(spec);
    if (!run(narrow)) continue;
    spec.dt = spec.D = DType::f32, spec.dt_bias = DType::f32, spec.initial_states = DType::f32;
    Call wide(spec);
    copy(narrow.arguments.dt, writable(wide.arguments.dt));
    for (auto member : {&Arguments::D, &Arguments::dt_bias, &Arguments::initial_states}) {
      copy(*(narrow.arguments.*member), writable(*(wide.arguments.*member)));
    }
    ASSERT_TRUE(run(wide));
    expect_same_outputs(narrow.arguments, wide.arguments);
  }
}

TEST_P(Properties, SkipPerHeadIsSkipPerChannelExpanded) {
  for (const DType dtype : types(input_types)) {
    Spec spec = rich(dtype);
    spec.heads = 8, spec.head_dim = 64, spec.skip = SkipForm::per_head;
    Call per_head(spec);
    spec.skip = SkipForm::per_channel;
    Call per_channel(spec);
    for (auto member :
         {&Arguments::z, &Arguments::dt_bias, &Arguments::initial_states}) {  // drawn after D: take them from the first
      copy(*(per_head.arguments.*member), writable(*(per_channel.arguments.*member)));
    }
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      for (std::int64_t p = 0; p < spec.head_dim; ++p)
        set(*per_channel.arguments.D, reference::at(*per_head.arguments.D, h), h, p);
    }
    if (!run(per_head)) continue;
    ASSERT_TRUE(run(per_channel));
    expect_same_outputs(per_head.arguments, per_channel.arguments);
  }
}

/// A stride along a dimension of one element steps to nothing.
TEST_P(Properties, StridesOfOneElementDoNotCount) {
  Spec spec;
  spec.heads = 1, spec.tokens = 1, spec.skip = SkipForm::per_channel, spec.dt_bias = DType::f32, spec.z = true;
  spec.new_document = 1e-9, spec.initial_states = DType::f32;
  spec = fit(spec);
  Call plain(spec), odd(spec);
  if (!run(plain)) GTEST_SKIP();
  Arguments& a = odd.arguments;
  a.x.strides = a.z->strides = a.y.strides = {12345, 777, 999, 1};
  a.dt.strides = {-5, 3, 17}, a.A.strides = {40}, a.dt_bias->strides = {50}, a.D->strides = {60, 1},
  a.seq_idx->strides = {70, 80};
  a.B.strides = a.C.strides = {1, 0, 3, 1};
  ASSERT_TRUE(run(odd));
  expect_same_outputs(plain.arguments, odd.arguments);
}

/// What is not asked for does not change what is.
TEST_P(Properties, OptionalOutputsDoNotChangeY) {
  Spec spec = rich(DType::bf16);
  Call with(spec);
  spec.final_states.reset();
  Call without(spec);
  if (!run(with)) GTEST_SKIP();
  ASSERT_TRUE(run(without));
  expect_same_bits(with.arguments.y, without.arguments.y, "y");
}

// --------------------------------------------------------------------------------------------------- packed and alone

/// Packed among others, in another order, among other values and as one row of a batch: under batch_invariant a
/// sequence's bits are those that it has alone. One sequence is long enough for several segments where the fused
/// schedule cuts one.
TEST_P(Properties, BatchInvariantBits) {
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    Spec spec;
    spec.type(dtype).pack({3, 4500, 0, 64, 257, 1, 130});
    spec.heads = 2, spec.head_dim = 16, spec.state = 16, spec.initial_states = DType::f32, spec.z = true;
    spec.decay = Decay::slow, spec.options.batch_invariant = true, spec.seed = 5;
    Call packed(spec);
    if (!run(packed)) continue;
    Options options = spec.options;
    std::int64_t begin = 0;
    for (std::size_t s = 0; s < spec.lengths->size(); ++s) {
      SCOPED_TRACE("sequence " + std::to_string(s));
      const std::int64_t length = (*spec.lengths)[s];
      Arguments alone = with_outputs(tokens_of(packed.arguments, 0, begin, length), packed.arguments);
      alone.initial_states = slice(*packed.arguments.initial_states, 0, static_cast<std::int64_t>(s), 1);
      ASSERT_TRUE(run(alone, options));
      expect_same_bits(slice(packed.arguments.y, 1, begin, length), alone.y, "y alone");
      expect_same_bits(slice(*packed.arguments.final_states, 0, static_cast<std::int64_t>(s), 1), *alone.final_states,
                       "state alone");
      begin += length;
    }

    // The long sequence and the one of 257 tokens among other mates: as rows of a batch, the other rows cut from other
    // places.
    for (const auto& [first, length, state] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{3, 4500, 1}, {4567, 257, 4}}) {
      Spec rows = spec;
      rows.lengths.reset();
      rows.batch = 4, rows.tokens = length, rows.seed = 6;
      Call batch(rows);
      for (auto member : {&Arguments::x, &Arguments::dt, &Arguments::B, &Arguments::C}) {
        copy(slice(packed.arguments.*member, 1, first, length), writable(slice(batch.arguments.*member, 0, 3, 1)));
      }
      copy(packed.arguments.A, writable(batch.arguments.A));
      copy(slice(*packed.arguments.z, 1, first, length), writable(slice(*batch.arguments.z, 0, 3, 1)));
      copy(slice(*packed.arguments.initial_states, 0, state, 1),
           writable(slice(*batch.arguments.initial_states, 0, 3, 1)));
      ASSERT_TRUE(run(batch));
      expect_same_bits(slice(packed.arguments.y, 1, first, length), slice(batch.arguments.y, 0, 3, 1), "y as a row");
      expect_same_bits(slice(*packed.arguments.final_states, 0, state, 1),
                       slice(*batch.arguments.final_states, 0, 3, 1), "state as a row");
    }
  }
}

/// The same for chunk states and documents inside packed sequences.
TEST_P(Properties, BatchInvariantBitsOfChunkStatesAndDocuments) {
  for (const bool documents : {false, true}) {
    Spec spec;
    spec.type(DType::bf16).pack({200, 70, 300});
    spec.heads = 2, spec.decay = Decay::slow, spec.options.batch_invariant = true, spec.initial_states = DType::f32;
    if (documents) spec.new_document = 0.02;
    if (!documents) spec.options.chunk_states_every = 48, spec.chunk_states = DType::f32;
    spec = fit(spec);
    Call packed(spec);
    if (!run(packed)) continue;
    std::int64_t begin = 0, chunk_state = 0;
    for (std::int64_t s = 0; s < 3; ++s) {
      const std::int64_t length = (*spec.lengths)[s], states = documents ? 0 : length / 48;
      Arguments alone = with_outputs(tokens_of(packed.arguments, 0, begin, length), packed.arguments);
      alone.initial_states = slice(*packed.arguments.initial_states, 0, s, 1);
      if (!documents) alone.chunk_states = arena_.tensor(DType::f32, {1, states, 2, 16, 16});
      ASSERT_TRUE(run(alone, spec.options));
      expect_same_bits(slice(packed.arguments.y, 1, begin, length), alone.y, "y");
      if (!documents)
        expect_same_bits(slice(*packed.arguments.chunk_states, 0, chunk_state, states), *alone.chunk_states,
                         "chunk_states");
      begin += length, chunk_state += states;
    }
  }
}

// -------------------------------------------------------------------------------------------------- split and resumed

TEST_P(Properties, SplitAndResumedEqualsTheWhole) {
  for (std::int64_t k = 0; k < draws(6); ++k) {
    const std::uint64_t seed = first_seed() + 1000 + static_cast<std::uint64_t>(k);
    SCOPED_TRACE("TILEMAMBA_TEST_SEED=" + std::to_string(seed - 1000));
    Random random(seed);
    Spec spec = rich(random.one_of(input_types));
    spec.seed = seed, spec.tokens = random.integer(2, 400), spec.batch = 1;
    SCOPED_TRACE(to_string(spec));
    const Call whole(spec);
    Arguments joined = with_outputs(whole.arguments, whole.arguments);
    const Tensor* state = &*whole.arguments.initial_states;
    Arguments part;
    std::vector<Tensor> states;
    states.reserve(8);
    for (std::int64_t begin = 0, count = 0; begin < spec.tokens; begin += count) {
      count = states.size() >= 6 ? spec.tokens - begin : random.integer(1, spec.tokens - begin);
      part = tokens_of(whole.arguments, 0, begin, count);
      part.initial_states = *state;
      part.y = slice(joined.y, 1, begin, count);
      part.final_states = arena_.tensor(DType::f32, {1, spec.heads, spec.head_dim, spec.state});
      if (!run(part, spec.options)) return;
      states.push_back(*part.final_states);
      state = &states.back();
    }
    joined.final_states = part.final_states;
    expect_within_bars(joined, spec.options, expected_of(spec));
  }
}

// ------------------------------------------------------------------------------------- what must not reach a sequence

/// Puts `value` into all of token `token`, row `row`, of one input.
void spoil_token(const Arguments& arguments, const std::string& tensor, std::int64_t row, std::int64_t token,
                 double value) {
  const std::map<std::string, Tensor> inputs = {{"x", arguments.x},
                                                {"dt", arguments.dt},
                                                {"B", arguments.B},
                                                {"C", arguments.C},
                                                {"z", arguments.z.value_or(arguments.x)}};
  const Tensor part = slice(slice(inputs.at(tensor), 0, row, 1), 1, token, 1);
  for (std::int64_t i = 0; i < part.shape[2]; ++i) {
    for (std::int64_t j = 0; j < (part.rank == 4 ? part.shape[3] : 1); ++j) {
      if (part.rank == 4) set(part, value, 0, 0, i, j);
      if (part.rank == 3) set(part, value, 0, 0, i);
    }
  }
}

/// seq_idx from the first tokens of documents.
void mark_documents(const Call& call, std::int64_t row, const std::vector<std::int64_t>& starts) {
  double id = 7;
  for (std::int64_t t = 0; t < call.spec.tokens; ++t) {
    if (std::find(starts.begin(), starts.end(), t) != starts.end()) ++id;
    set(*call.arguments.seq_idx, id, row, t);
  }
}

/// A token of one document, finite or not, changes no bit of another; wherever the border lies in a tile, and far from
/// it.
TEST_P(Properties, DocumentsDoNotReachEachOther) {
  const std::map<DType, std::vector<std::int64_t>> borders_of = {{DType::bf16, {2, 64, 65, 130, 257}},
                                                                 {DType::f32, {63, 130}}};
  for (const DType dtype : types({DType::bf16, DType::f32})) {
    const std::vector<std::int64_t>& borders = borders_of.at(dtype);
    Spec spec = rich(dtype);
    spec.batch = 1, spec.tokens = 300, spec.new_document = 1e-9, spec.heads = 2, spec.head_dim = 16, spec.state = 16;
    spec.options.dt_max = std::numeric_limits<float>::infinity();
    for (const std::int64_t border : borders) {
      Call clean(spec);
      mark_documents(clean, 0, {border, 290});
      if (!run(clean)) return;
      const auto same = [&](const Call& call, std::int64_t begin, std::int64_t end, const char* what) {
        expect_same_bits(slice(clean.arguments.y, 1, begin, end - begin),
                         slice(call.arguments.y, 1, begin, end - begin), what);
      };
      for (const auto& [tensor, value] : std::vector<std::pair<const char*, double>>{{"x", 100.0},
                                                                                     {"x", nan},
                                                                                     {"x", -infinite},
                                                                                     {"dt", nan},
                                                                                     {"dt", infinite},
                                                                                     {"B", nan},
                                                                                     {"B", infinite},
                                                                                     {"C", nan},
                                                                                     {"C", -infinite},
                                                                                     {"z", nan}}) {
        SCOPED_TRACE(std::string(tensor) + " = " + std::to_string(value) + " beside a border at token " +
                     std::to_string(border));
        // In the last token of the first document: the second and the third must not notice. Nor must earlier chunks of
        // the first; a chunk has at most 256 tokens.
        Call before(spec);
        mark_documents(before, 0, {border, 290});
        spoil_token(before.arguments, tensor, 0, border - 1, value);
        ASSERT_TRUE(run(before));
        same(before, border, 300, "y after it");
        same(before, 0, std::max<std::int64_t>(border - 256, 0), "y in earlier chunks");
        expect_same_bits(*clean.arguments.final_states, *before.arguments.final_states, "final state");

        // In the first token of the second document: the first and the third must not notice.
        Call after(spec);
        mark_documents(after, 0, {border, 290});
        spoil_token(after.arguments, tensor, 0, border, value);
        ASSERT_TRUE(run(after));
        same(after, 0, border, "y of the first document");
        same(after, 290, 300, "y of the third document");
        expect_same_bits(*clean.arguments.final_states, *after.arguments.final_states, "final state");
      }
      if (HasFailure()) return;
    }
  }
}

/// A spoiled initial state belongs to the first document alone.
TEST_P(Properties, InitialStateReachesTheFirstDocumentOnly) {
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    for (const std::int64_t border : {1, 64, 150}) {
      for (const double value : {5.0, nan, infinite}) {
        Spec spec = rich(dtype);
        spec.batch = 1, spec.new_document = 1e-9, spec.head_dim = 16;
        Call call(spec), clean(spec);
        mark_documents(call, 0, {border});
        mark_documents(clean, 0, {border});
        if (!run(clean)) return;
        for (std::int64_t n = 0; n < spec.state; ++n) set(*call.arguments.initial_states, value, 0, 1, 3, n);
        ASSERT_TRUE(run(call));
        expect_same_bits(slice(clean.arguments.y, 1, border, 200 - border),
                         slice(call.arguments.y, 1, border, 200 - border), "y");
        expect_same_bits(*clean.arguments.final_states, *call.arguments.final_states, "final state");
        EXPECT_NE(bits(slice(clean.arguments.y, 1, 0, 1)), bits(slice(call.arguments.y, 1, 0, 1)))
            << "the first document must notice";
      }
    }
  }
}

/// The same for packed sequences: neighbours on both sides, and their initial states.
TEST_P(Properties, SequencesDoNotReachEachOther) {
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    Spec spec = rich(dtype);
    spec.pack({65, 100, 0, 30});
    spec.head_dim = 16;
    spec.options.dt_max = std::numeric_limits<float>::infinity();
    for (const char* tensor : {"x", "dt", "B", "C", "z"}) {
      for (const double value : {nan, infinite}) {
        SCOPED_TRACE(std::string(tensor) + " = " + std::to_string(value));
        Call call(spec), clean(spec);
        if (!run(clean)) return;
        for (const std::int64_t token : {0, 64, 165, 194}) spoil_token(call.arguments, tensor, 0, token, value);
        for (const std::int64_t s : {0, 2, 3}) set(*call.arguments.initial_states, value, s, 0, 0, 0);
        ASSERT_TRUE(run(call));
        expect_same_bits(slice(clean.arguments.y, 1, 65, 100), slice(call.arguments.y, 1, 65, 100), "y");
        expect_same_bits(slice(*clean.arguments.final_states, 0, 1, 1), slice(*call.arguments.final_states, 0, 1, 1),
                         "final state");
      }
    }
  }
}

TEST_P(Properties, RowsAndHeadsDoNotReachEachOther) {
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    const Spec spec = rich(dtype);
    for (const char* tensor : {"x", "dt", "B", "C", "z"}) {
      SCOPED_TRACE(tensor);
      Call call(spec), clean(spec);
      if (!run(clean)) return;
      for (const std::int64_t token : {0, 63, 199}) spoil_token(call.arguments, tensor, 0, token, nan);
      ASSERT_TRUE(run(call));
      expect_same_bits(slice(clean.arguments.y, 0, 1, 1), slice(call.arguments.y, 0, 1, 1), "y of the other row");
      expect_same_bits(slice(*clean.arguments.final_states, 0, 1, 1), slice(*call.arguments.final_states, 0, 1, 1),
                       "state of the other row");

      // Head 1 of group 0, or all of group 0, spoiled in every token: the heads of group 1 (2 and 3) must not notice.
      Call one(spec);
      const std::map<std::string, Tensor> inputs = {{"x", one.arguments.x},
                                                    {"dt", one.arguments.dt},
                                                    {"B", one.arguments.B},
                                                    {"C", one.arguments.C},
                                                    {"z", *one.arguments.z}};
      const bool of_head = std::string(tensor) == "x" || std::string(tensor) == "dt" || std::string(tensor) == "z";
      const Tensor part = slice(inputs.at(tensor), 2, of_head ? 1 : 0, 1);
      for (std::int64_t t = 0; t < spec.tokens; ++t) {
        if (part.rank == 3) set(part, nan, 1, t, 0);
        for (std::int64_t j = 0; part.rank == 4 && j < part.shape[3]; ++j) set(part, nan, 1, t, 0, j);
      }
      ASSERT_TRUE(run(one));
      const auto unspoiled = [&](std::int64_t first, std::int64_t count) {
        expect_same_bits(slice(clean.arguments.y, 2, first, count), slice(one.arguments.y, 2, first, count),
                         "y of other heads");
        expect_same_bits(slice(*clean.arguments.final_states, 1, first, count),
                         slice(*one.arguments.final_states, 1, first, count), "states of other heads");
      };
      unspoiled(2, 2);
      if (of_head) unspoiled(0, 1);
    }
  }
}

// -------------------------------------------------------------------------------------------------- states on the way

/// The state after each K tokens is the final state of the call cut there.
TEST_P(Properties, ChunkStatesAreFinalStatesOfTruncatedCalls) {
  for (const std::int64_t every : {16, 48, 64, 112, 128, 1008}) {
    Spec spec;
    spec.type(DType::bf16).pack({130, 15, 0, 257, 64});
    if (every > 130) spec.pack({every - 1, 10, every + 1});
    spec.heads = 2, spec.decay = Decay::slow, spec.initial_states = DType::f32, spec.seed = 3;
    spec.chunk_states = DType::f32, spec.options.chunk_states_every = every;
    spec = fit(spec);
    SCOPED_TRACE(to_string(spec));
    Call call(spec);
    if (!run(call)) continue;
    const Expected& expected = expected_of(spec);
    expect_within_bars(call.arguments, call.options, expected);

    // `expected` counts chunk states as the definition does; here the count is checked against calls that have none.
    std::int64_t begin = 0, index = 0;
    for (std::size_t s = 0; s < spec.lengths->size(); ++s) {
      for (std::int64_t count = every; count <= (*spec.lengths)[s]; count += every, ++index) {
        Arguments cut = with_outputs(tokens_of(call.arguments, 0, begin, count), call.arguments);
        cut.initial_states = slice(*call.arguments.initial_states, 0, static_cast<std::int64_t>(s), 1);
        Options plain = spec.options;
        plain.chunk_states_every = 0;
        ASSERT_TRUE(run(cut, plain));
        const std::vector<double> state = reference::values(slice(*call.arguments.chunk_states, 0, index, 1));
        const std::vector<double> right = reference::values(*cut.final_states);
        double error = 0, norm = 0;
        for (std::size_t k = 0; k < state.size(); ++k)
          error += std::pow(state[k] - right[k], 2), norm += std::pow(right[k], 2);
        // Both are within bars.state of the truth.
        EXPECT_LE(std::sqrt(error / norm), 2 * expected.bars.state)
            << "sequence " << s << " after " << count << " tokens";
      }
      begin += (*spec.lengths)[s];
    }
  }
}

TEST_P(Properties, ChunkStatesOfABatch) {
  for (const std::int64_t every : {16, 80, 128}) {
    Spec spec = rich(DType::f32);
    spec.chunk_states = DType::f32, spec.options.chunk_states_every = every, spec.tokens = 260;
    (void)run_within_bars(spec);
  }
}

// -------------------------------------------------------------------------------------------------------------- sizes

TEST_P(Properties, EveryHeadDimAndStateSize) {
  const std::int64_t stride = std::max<std::int64_t>(1, 10 / draws(10));  // a build with sanitizers takes some of them
  std::int64_t pair = 0;
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    for (const std::int64_t head_dim : {16, 32, 48, 64, 80, 96, 128, 256, 1, 17, 100}) {
      for (const std::int64_t state : {8, 16, 32, 64, 96, 128, 256, 512, 1, 9, 130}) {
        if ((head_dim == 17 || head_dim == 100) && state > 130)
          continue;  // odd sizes: borders of tiles are what counts
        if (pair++ % stride != 0) continue;
        Spec spec;
        spec.type(dtype);
        // A bar is an error of the same kind as what it bounds: a block must hold enough elements for the two to be
        // alike.
        spec.tokens = head_dim == 1 ? 128 : 70, spec.heads = 1, spec.head_dim = head_dim, spec.state = state;
        spec.skip = SkipForm::per_channel;
        spec.initial_states = DType::f32, spec.decay = Decay::slow;
        (void)run_within_bars(spec);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Properties, EveryLengthAboutATile) {
  for (const std::int64_t tokens :
       {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 193, 255, 256, 257, 511, 513, 1025}) {
    Spec spec = rich(DType::bf16);
    spec.tokens = tokens, spec.batch = 1;
    (void)run_within_bars(spec);
  }
}

/// Sequences that the fused schedule cuts into several segments (of a few thousand tokens at most), the state crossing
/// them.
TEST_P(Properties, LongSequences) {
  for (const DType dtype : types({DType::f32, DType::bf16})) {
    Spec spec;
    spec.type(dtype);
    spec.tokens = 8500, spec.heads = 2, spec.initial_states = DType::f32, spec.decay = Decay::slow, spec.seed = 4;
    (void)run_within_bars(spec);
    spec.new_document = 0.0005;
    (void)run_within_bars(spec);
    spec.pack({4096, 0, 4097, 200});
    (void)run_within_bars(spec);
    spec.new_document = 0, spec.chunk_states = DType::f32, spec.options.chunk_states_every = 1008;
    (void)run_within_bars(spec);
    spec.options.batch_invariant = true;
    (void)run_within_bars(spec);
  }
}

TEST_P(Properties, GroupsAndHeads) {
  for (const auto& [heads, groups] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 1}, {7, 7}, {6, 2}, {9, 3}, {16, 1}, {15, 5}}) {
    Spec spec = rich(DType::f32);
    spec.heads = heads, spec.groups = groups, spec.tokens = 70;
    (void)run_within_bars(spec);
  }
}

/// T = 0, B = 0, a packed call of nothing, a call of empty sequences: outputs are empty, and the state that enters
/// leaves.
TEST_P(Properties, NothingToDo) {
  for (const DType dtype : types(input_types)) {
    for (const bool initial : {false, true}) {
      for (const DType final_type : input_types) {
        for (int kind = 0; kind < 5; ++kind) {
          Spec spec;
          spec.type(dtype);
          spec.batch = kind == 1 ? 0 : 2, spec.tokens = kind == 0 ? 0 : 5;
          if (kind == 2) spec.pack({});
          if (kind == 3) spec.pack({0, 0, 0});
          if (kind == 4) spec.batch = 0, spec.tokens = 0;
          spec.final_states = final_type;
          if (initial) spec.initial_states = DType::f32;
          SCOPED_TRACE(to_string(spec));
          Call call(spec);
          if (!run(call)) continue;
          const std::vector<double> final_states = reference::values(*call.arguments.final_states);
          for (std::size_t k = 0; k < final_states.size(); ++k) {
            const double entered =
                initial ? reference::load(DType::f32, call.arguments.initial_states->data, static_cast<std::int64_t>(k))
                        : 0.0;
            ASSERT_EQ(final_states[k], reference::rounded(final_type, static_cast<float>(entered))) << "element " << k;
          }
        }
      }
    }
  }
}

TEST_P(Properties, ChunkStatesOfNothing) {
  Spec spec;
  spec.tokens = 15, spec.chunk_states = DType::f32, spec.options.chunk_states_every = 16;
  (void)run_within_bars(spec);
  spec.tokens = 0;
  (void)run_within_bars(spec);
  spec.pack({3, 0, 15});
  (void)run_within_bars(spec);
}

// ------------------------------------------------------------------------------------------------------------ numbers

/// fp16 holds up to 65504. Scores alone go far beyond; times decay and delta, as they are narrowed, they do not.
TEST_P(Properties, HalfPrecisionIsFiniteWhereItsOperandsAre) {
  if (types({DType::f16}).empty()) return;  // skipped
  Spec spec;
  spec.type(DType::f16);
  spec.tokens = 130, spec.state = 128, spec.head_dim = 32;
  spec = fit(spec);
  Call call(spec);
  Random random(4);
  for (std::int64_t t = 0; t < spec.tokens; ++t) {
    for (std::int64_t n = 0; n < spec.state; ++n) {
      set(call.arguments.B, random.uniform(40, 60), 0, t, 0, n);
      set(call.arguments.C, random.uniform(40, 60), 0, t, 0, n);  // C.B is about 320000
    }
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      set(call.arguments.dt, random.uniform(0.01, 0.03), 0, t, h);
      for (std::int64_t p = 0; p < spec.head_dim; ++p) set(call.arguments.x, random.uniform(-1, 1), 0, t, h, p);
    }
  }
  for (std::int64_t h = 0; h < spec.heads; ++h) set(call.arguments.A, -8.0, h);
  const Expected expected = expected_of(call.arguments, call.options);
  for (const double value : expected.right.y) ASSERT_LT(std::fabs(value), 65504);
  if (!run(call)) GTEST_SKIP();
  expect_within_bars(call.arguments, call.options, expected);
}

/// A gate may bring an output back into the type's range: nothing is narrowed before it.
TEST_P(Properties, HalfPrecisionIsNarrowedAfterTheGate) {
  if (types({DType::f16}).empty()) return;  // skipped
  Spec spec;
  spec.type(DType::f16);
  spec.tokens = 80, spec.z = true, spec.skip = SkipForm::per_head;
  spec = fit(spec);
  Call call(spec);
  for (std::int64_t t = 0; t < spec.tokens; ++t) {
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      for (std::int64_t p = 0; p < spec.head_dim; ++p) {
        set(call.arguments.x, 500.0, 0, t, h, p);
        set(*call.arguments.z, 0.01, 0, t, h, p);
      }
    }
  }
  for (std::int64_t h = 0; h < spec.heads; ++h) set(*call.arguments.D, 200.0, h);  // D x = 100000
  const Expected expected = expected_of(call.arguments, call.options);
  if (!run(call)) GTEST_SKIP();
  expect_within_bars(call.arguments, call.options, expected);
}

/// Softplus must keep its relative accuracy where it is small (exp is below float's epsilon there), be the identity
/// above 20, and not overflow. There is no D and decay is weak, so y is as wrong as delta is.
TEST_P(Properties, SoftplusFarFromZero) {
  for (const double centre : {-30.0, -17.0, -8.0, 0.0, 10.2, 15.0, 19.999, 20.0, 20.001, 90.0}) {
    Spec spec;
    spec.tokens = 70, spec.options.dt_softplus = true;
    spec = fit(spec);
    SCOPED_TRACE("dt about " + std::to_string(centre));
    Call call(spec);
    Random random(9);
    for (std::int64_t t = 0; t < spec.tokens; ++t) {
      for (std::int64_t h = 0; h < spec.heads; ++h)
        set(call.arguments.dt, centre + random.uniform(-0.001, 0.001), 0, t, h);
    }
    for (std::int64_t h = 0; h < spec.heads; ++h) set(call.arguments.A, -0.01, h);
    if (!run(call)) GTEST_SKIP();
    expect_within_bars(call.arguments, call.options, expected_of(call.arguments, call.options));
  }
}

/// Under the published decay the sum of a chunk's decays is large, and what is left of its last tokens hangs on small
/// differences of it: a weight got by subtracting two entries of the sum is 1e-5 off. Many heads, so that some end in
/// small steps.
TEST_P(Properties, StatesUnderStrongDecay) {
  for (const std::int64_t tokens : {128, 200}) {
    Spec spec;
    spec.tokens = tokens, spec.heads = 12, spec.batch = 2;
    (void)run_within_bars(spec);
  }
}

/// One tf32 product may be as far off as its operands' 11 bits, wherever it is used at all.
TEST_P(Properties, Tf32WithinItsBar) {
  if (types({DType::f32}).empty()) return;
  for (const Decay decay : {Decay::published, Decay::slow}) {
    Spec spec = rich(DType::f32);
    spec.decay = decay, spec.tokens = 150, spec.options.allow_tf32 = true;
    Call call(fit(spec));
    if (!run(call)) continue;
    Expected expected = expected_of(call.arguments, call.options);
    for (double* bar : {&expected.bars.out, &expected.bars.block, &expected.bars.state}) *bar = std::max(*bar, 1e-3);
    expect_within_bars(call.arguments, call.options, expected);
  }
}

TEST_P(Properties, NoDecayAtAll) {
  Spec spec;
  spec.tokens = 200;
  spec = fit(spec);
  Call call(spec);
  for (std::int64_t h = 0; h < spec.heads; ++h) set(call.arguments.A, 0.0, h);
  if (!run(call)) GTEST_SKIP();
  expect_within_bars(call.arguments, call.options, expected_of(call.arguments, call.options));
}

// ------------------------------------------------------------------------------------------------------------ threads

/// One plan executed by several threads at once, each with its own workspace and outputs, and the one-call form on
/// problems of different shapes meanwhile.
TEST_P(Properties, ManyThreadsAtOnce) {
  const Spec spec = rich(DType::bf16);
  Call right(spec);
  if (!run(right)) GTEST_SKIP();
  Spec other_spec = spec;
  other_spec.pack({40, 0, 111}).type(DType::f32);
  other_spec = fit(other_spec);
  Call other_right(other_spec);
  ASSERT_TRUE(run(other_right));

  constexpr int threads = 6;
  std::vector<Call> calls;
  for (int k = 0; k < threads; ++k) calls.emplace_back(k % 3 == 2 ? other_spec : spec);
  std::vector<Mirror> mirrors;  // each call where the target can reach it, with a workspace
  for (Call& call : calls) {
    mirrors.emplace_back(plan_on(GetParam(), call.arguments, call.options), call.arguments);
  }
  const Plan plan = plan_on(GetParam(), right.arguments, right.options);
  std::vector<std::string> failures(threads);
  {
    std::vector<std::jthread> running;
    for (int k = 0; k < threads; ++k) {
      running.emplace_back([&, k] {
        try {
          for (int repeat = 0; repeat < 20; ++repeat) {
            if (k % 3 == 0) plan.execute(mirrors[k].arguments(), mirrors[k].workspace(), plan.workspace_bytes());
            if (k % 3 != 0) scan(mirrors[k].arguments(), calls[k].options, GetParam().choice());
          }
          mirrors[k].fetch();
        } catch (const std::exception& error) {
          failures[k] = error.what();
        }
      });
    }
  }
  for (int k = 0; k < threads; ++k) {
    SCOPED_TRACE("thread " + std::to_string(k));
    EXPECT_EQ(failures[k], "");
    EXPECT_EQ(calls[k].damage(), "");
    EXPECT_TRUE(mirrors[k].intact());
    expect_same_outputs(calls[k].arguments, (k % 3 == 2 ? other_right : right).arguments);
  }
}

/// The one-call form keeps plans: calls that differ in one option or type only must not get each other's.
TEST_P(Properties, OneCallFormKeepsPlansApart) {
  std::vector<Spec> specs;
  const auto vary = [&](const auto& change) {
    Spec spec;
    spec.type(DType::bf16);
    spec.tokens = 40, spec.initial_states = DType::f32;
    change(spec);
    specs.push_back(fit(spec));
  };
  vary([](Spec&) {});
  vary([](Spec& s) { s.options.dt_softplus = true; });
  vary([](Spec& s) { s.options.dt_min = 0.5f; });
  vary([](Spec& s) { s.options.dt_max = 0.25f; });
  vary([](Spec& s) { s.options.batch_invariant = true; });
  vary([](Spec& s) { s.options.chunk_states_every = 16, s.chunk_states = DType::f32; });
  vary([](Spec& s) { s.options.chunk_states_every = 32, s.chunk_states = DType::f32; });
  vary([](Spec& s) { s.z = true; });
  vary([](Spec& s) { s.skip = SkipForm::per_head; });
  vary([](Spec& s) { s.skip = SkipForm::per_channel; });
  vary([](Spec& s) { s.skip = SkipForm::per_head, s.D = DType::bf16; });
  vary([](Spec& s) { s.dt = DType::f32; });
  vary([](Spec& s) { s.y = DType::f32; });
  vary([](Spec& s) { s.dt_bias = DType::f32; });
  vary([](Spec& s) { s.initial_states.reset(); });
  vary([](Spec& s) { s.initial_states = DType::bf16; });
  vary([](Spec& s) { s.final_states = DType::bf16; });
  vary([](Spec& s) { s.new_document = 0.1; });
  vary([](Spec& s) { s.pack({13, 27}); });
  vary([](Spec& s) { s.pack({13, 20, 7}); });
  vary([](Spec& s) { s.type(DType::f16); });
  vary([](Spec& s) { s.type(DType::f32); });
  for (int round = 0; round < 2; ++round) {  // the second time every plan is a kept one
    for (const Spec& spec : specs) {
      SCOPED_TRACE(to_string(spec));
      Call planned(spec), called(spec);
      if (!run(planned)) continue;
      scan_on(GetParam(), called.arguments, called.options);
      EXPECT_EQ(called.damage(), "");
      expect_same_outputs(planned.arguments, called.arguments);
    }
  }
}

/// How many threads a backend has decides nothing: the same schedule and policy give the same bits with one and with
/// many. (What OMP_NUM_THREADS does is in threads_test: it is read once a process.)
TEST(Backends, SameBitsWithOneThreadAndMany) {
  int compared = 0;
  for (const Target& target : targets()) {
    if (target.backend != "kokkos-openmp") continue;
    SCOPED_TRACE(testing::PrintToString(target));
    Target serial = target;
    serial.backend = "kokkos-serial";
    for (const DType dtype : input_types) {
      Spec spec = everything(dtype);
      spec.tokens = 600;
      Call many(spec), one(spec);
      if (!run_on(target, many.arguments, many.options)) continue;
      ASSERT_TRUE(run_on(serial, one.arguments, one.options)) << "kokkos-serial lacks what kokkos-openmp has";
      expect_same_outputs(many.arguments, one.arguments);
      ++compared;
    }
  }
  const auto names = expected_backends();
  EXPECT_EQ(compared > 0, std::find(names.begin(), names.end(), "kokkos-openmp") != names.end());
}

/// Every backend that this build must be able to run here can, with every schedule.
TEST(Backends, AllExpectedRun) {
  for (const std::string& expected : expected_backends()) {
    for (const Schedule schedule : {Schedule::staged, Schedule::fused, Schedule::recurrent}) {
      EXPECT_TRUE(
          std::any_of(targets().begin(), targets().end(),
                      [&](const Target& target) { return target.backend == expected && target.schedule == schedule; }))
          << expected << ' ' << name(schedule) << " cannot run here";
    }
  }
}

TILEMAMBA_ON_EVERY_TARGET(Properties);

}  // namespace
}  // namespace tilemamba::test
