// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every way to get a call wrong: one thing of a valid call is changed, and the error must name it, say what it was and
/// what would be right; outputs stay as they were. Sizes are all different and rarely found elsewhere, so that a number
/// in a message is that size.
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/mirror.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A valid call with every tensor that can come together.
Spec full(bool packed) {
  Spec spec;
  spec.type(DType::bf16);
  spec.batch = 2, spec.tokens = 39, spec.heads = 6, spec.head_dim = 17, spec.groups = 3, spec.state = 11;
  if (packed) spec.pack({20, 0, 19});
  spec.dt = DType::f32, spec.skip = SkipForm::per_channel, spec.z = true, spec.dt_bias = DType::f32;
  spec.initial_states = DType::f32, spec.new_document = 0.1;
  return spec;
}

/// Chunk states and seq_idx exclude each other.
Spec with_chunk_states(bool packed) {
  Spec spec = full(packed);
  spec.new_document = 0;
  spec.chunk_states = DType::f32, spec.options.chunk_states_every = 16;
  return spec;
}

struct Wrong {
  const char* what;
  std::function<void(Call&)> change;
  std::vector<std::string> words;  ///< that the message must hold
};

/// Changes a valid call, which must then be refused by both ways in, and leave the outputs as they were.
void expect_refused(const Spec& spec, const Wrong& wrong) {
  SCOPED_TRACE(wrong.what);
  Call call(spec);
  ASSERT_NO_THROW(validate(call.arguments, call.options)) << "valid before the change";
  const Arguments before = call.arguments;
  wrong.change(call);
  expect_error(ErrorCode::invalid_argument, wrong.words, [&] { scan(call.arguments, call.options); });
  expect_error(ErrorCode::invalid_argument, wrong.words, [&] { validate(call.arguments, call.options); });
  call.arguments = before;
  EXPECT_TRUE(call.outputs_untouched());
}

void shape(Layout& tensor, int dimension, std::int64_t extent) { tensor.shape[dimension] = extent; }
void type(Layout& tensor, DType dtype) { tensor.dtype = dtype; }
/// Every second element: legal memory, but the last dimension is not contiguous.
void spread(Layout& tensor) { tensor.strides[tensor.rank - 1] = 2; }

// The buffers stay as they are, so a changed shape never asks for more than there is: sizes only shrink.
const std::vector<Wrong>& wrong_tensors() {
  static const std::vector<Wrong> all = {
      {"x: rank", [](Call& c) { c.arguments.x.rank = 3; }, {"x", "3", "(B,T,H,P)"}},
      {"x: dtype", [](Call& c) { type(c.arguments.x, DType::i32); }, {"x", "i32", "bf16"}},
      {"x: last stride", [](Call& c) { spread(c.arguments.x); }, {"x", "stride", "2", "contiguous"}},
      {"x: contiguous along T (row 13)",
       [](Call& c) {
         c.arguments.x.strides = {39 * 6 * 17, 1, 17 * 39, 39};
       },
       {"x", "stride", "39", "contiguous"}},
      {"x: negative extent", [](Call& c) { shape(c.arguments.x, 1, -1); }, {"x", "-1"}},
      {"x: no data", [](Call& c) { c.arguments.x.data = nullptr; }, {"x", "null"}},
      {"dt: rank", [](Call& c) { c.arguments.dt.rank = 2; }, {"dt", "(B,T,H)"}},
      {"dt: shape", [](Call& c) { shape(c.arguments.dt, 2, 5); }, {"dt", "5", "6"}},
      {"dt: tokens", [](Call& c) { shape(c.arguments.dt, 1, 38); }, {"dt", "38", "39"}},
      {"dt: dtype", [](Call& c) { type(c.arguments.dt, DType::f16); }, {"dt", "f16", "bf16", "f32"}},
      {"dt: last stride", [](Call& c) { spread(c.arguments.dt); }, {"dt", "stride", "2"}},
      {"dt: no data", [](Call& c) { c.arguments.dt.data = nullptr; }, {"dt", "null"}},
      {"A: shape", [](Call& c) { shape(c.arguments.A, 0, 5); }, {"A", "5", "6"}},
      {"A: rank",
       [](Call& c) {
         c.arguments.A.rank = 2;
         c.arguments.A.shape = {3, 2};
         c.arguments.A.strides = {2, 1};
       },
       {"A", "(H)"}},
      {"A: dtype", [](Call& c) { type(c.arguments.A, DType::bf16); }, {"A", "bf16", "f32"}},
      {"A: no data", [](Call& c) { c.arguments.A.data = nullptr; }, {"A", "null"}},
      {"B: rank", [](Call& c) { c.arguments.B.rank = 3; }, {"B", "(B,T,G,N)"}},
      {"B: tokens", [](Call& c) { shape(c.arguments.B, 1, 38); }, {"B", "38", "39"}},
      {"B: dtype", [](Call& c) { type(c.arguments.B, DType::f16); }, {"B", "f16", "bf16"}},
      {"B: last stride", [](Call& c) { spread(c.arguments.B); }, {"B", "stride", "2"}},
      {"B: no data", [](Call& c) { c.arguments.B.data = nullptr; }, {"B", "null"}},
      {"C: state size", [](Call& c) { shape(c.arguments.C, 3, 10); }, {"C", "10", "11"}},
      {"C: groups", [](Call& c) { shape(c.arguments.C, 2, 2); }, {"C", "2", "3"}},
      {"C: dtype", [](Call& c) { type(c.arguments.C, DType::f16); }, {"C", "f16", "bf16"}},
      {"C: last stride", [](Call& c) { spread(c.arguments.C); }, {"C", "stride", "2"}},
      {"C: no data", [](Call& c) { c.arguments.C.data = nullptr; }, {"C", "null"}},
      {"heads and groups (row 15)",
       [](Call& c) {
         for (Tensor* tensor : {&c.arguments.B, &c.arguments.C}) *tensor = slice(*tensor, 2, 0, 2);
         for (Tensor* tensor : {&c.arguments.x, &c.arguments.dt}) *tensor = slice(*tensor, 2, 0, 5);
         c.arguments.z = slice(*c.arguments.z, 2, 0, 5), c.arguments.y = slice(c.arguments.y, 2, 0, 5);
         c.arguments.A = slice(c.arguments.A, 0, 0, 5), c.arguments.D = slice(*c.arguments.D, 0, 0, 5);
         c.arguments.dt_bias = slice(*c.arguments.dt_bias, 0, 0, 5);
         c.arguments.initial_states = slice(*c.arguments.initial_states, 1, 0, 5);
         c.arguments.final_states = slice(*c.arguments.final_states, 1, 0, 5);
       },
       {"5", "2", "group", "multiple"}},
      {"D: heads", [](Call& c) { shape(*c.arguments.D, 0, 5); }, {"D", "5", "6"}},
      {"D: channels", [](Call& c) { shape(*c.arguments.D, 1, 16); }, {"D", "16", "17"}},
      {"D: rank",
       [](Call& c) {
         c.arguments.D->rank = 3;
         c.arguments.D->shape = {6, 17, 1};
         c.arguments.D->strides = {17, 1, 1};
       },
       {"D", "(H)", "(H,P)"}},
      {"D: dtype", [](Call& c) { type(*c.arguments.D, DType::f16); }, {"D", "f16", "bf16", "f32"}},
      {"D: last stride", [](Call& c) { spread(*c.arguments.D); }, {"D", "stride", "2"}},
      {"D: no data", [](Call& c) { c.arguments.D->data = nullptr; }, {"D", "null"}},
      {"z: shape", [](Call& c) { shape(*c.arguments.z, 3, 16); }, {"z", "16", "17"}},
      {"z: dtype", [](Call& c) { type(*c.arguments.z, DType::f16); }, {"z", "f16", "bf16"}},
      {"z: last stride", [](Call& c) { spread(*c.arguments.z); }, {"z", "stride", "2"}},
      {"z: no data", [](Call& c) { c.arguments.z->data = nullptr; }, {"z", "null"}},
      {"dt_bias: shape", [](Call& c) { shape(*c.arguments.dt_bias, 0, 5); }, {"dt_bias", "5", "6"}},
      {"dt_bias: dtype", [](Call& c) { type(*c.arguments.dt_bias, DType::f16); }, {"dt_bias", "f16", "f32"}},
      {"dt_bias: no data", [](Call& c) { c.arguments.dt_bias->data = nullptr; }, {"dt_bias", "null"}},
      {"initial_states: state size",
       [](Call& c) { shape(*c.arguments.initial_states, 3, 10); },
       {"initial_states", "10", "11"}},
      {"initial_states: sequences", [](Call& c) { shape(*c.arguments.initial_states, 0, 1); }, {"initial_states", "1"}},
      {"initial_states: dtype",
       [](Call& c) { type(*c.arguments.initial_states, DType::i32); },
       {"initial_states", "i32", "f32"}},
      {"initial_states: last stride",
       [](Call& c) { spread(*c.arguments.initial_states); },
       {"initial_states", "stride", "2"}},
      {"initial_states: no data",
       [](Call& c) { c.arguments.initial_states->data = nullptr; },
       {"initial_states", "null"}},
      {"seq_idx: shape", [](Call& c) { shape(*c.arguments.seq_idx, 1, 38); }, {"seq_idx", "38", "39"}},
      {"seq_idx: dtype", [](Call& c) { type(*c.arguments.seq_idx, DType::f32); }, {"seq_idx", "f32", "i32"}},
      {"seq_idx: last stride", [](Call& c) { spread(*c.arguments.seq_idx); }, {"seq_idx", "stride", "2"}},
      {"seq_idx: no data", [](Call& c) { c.arguments.seq_idx->data = nullptr; }, {"seq_idx", "null"}},
      {"y: heads", [](Call& c) { shape(c.arguments.y, 2, 5); }, {"y", "5", "6"}},
      {"y: rank", [](Call& c) { c.arguments.y.rank = 3; }, {"y", "(B,T,H,P)"}},
      {"y: dtype", [](Call& c) { type(c.arguments.y, DType::f16); }, {"y", "f16", "bf16", "f32"}},
      {"y: last stride", [](Call& c) { spread(c.arguments.y); }, {"y", "stride", "2"}},
      {"y: no data", [](Call& c) { c.arguments.y.data = nullptr; }, {"y", "null"}},
      {"y: two heads in one place", [](Call& c) { c.arguments.y.strides[2] = 0; }, {"y", "overlap"}},
      {"final_states: two rows in one place",
       [](Call& c) { c.arguments.final_states->strides[1] = 17; },
       {"final_states", "overlap"}},
      {"final_states: head dimension",
       [](Call& c) { shape(*c.arguments.final_states, 2, 16); },
       {"final_states", "16", "17"}},
      {"final_states: dtype",
       [](Call& c) { type(*c.arguments.final_states, DType::i32); },
       {"final_states", "i32", "f32"}},
      {"final_states: last stride",
       [](Call& c) { spread(*c.arguments.final_states); },
       {"final_states", "stride", "2"}},
      {"final_states: no data", [](Call& c) { c.arguments.final_states->data = nullptr; }, {"final_states", "null"}},
      {"one tensor elsewhere",
       [](Call& c) {
         c.arguments.C.device = {DeviceKind::cuda, 1};
       },
       {"C", "cuda:1", "cpu"}},
      {"an output elsewhere",
       [](Call& c) {
         c.arguments.y.device = {DeviceKind::hip, 0};
       },
       {"y", "hip:0", "cpu"}},
      {"dt_limit: below zero", [](Call& c) { c.options.dt_min = -0.5f; }, {"dt_limit", "-0.5"}},
      {"dt_limit: order",
       [](Call& c) { c.options.dt_min = 0.75f, c.options.dt_max = 0.25f; },
       {"dt_limit", "0.75", "0.25"}},
      {"dt_limit: NaN below", [](Call& c) { c.options.dt_min = nan; }, {"dt_limit", "nan"}},
      {"dt_limit: NaN above", [](Call& c) { c.options.dt_max = nan; }, {"dt_limit", "nan"}},
      {"chunk_size: negative", [](Call& c) { c.options.chunk_size = -64; }, {"chunk_size", "-64"}},
      {"chunk_states asked for, not given",
       [](Call& c) { c.arguments.seq_idx.reset(), c.options.chunk_states_every = 16; },
       {"chunk_states", "16"}},
  };
  return all;
}

TEST(Errors, Tensors) {
  for (const Wrong& wrong : wrong_tensors()) {
    expect_refused(full(false), wrong);
  }
}

TEST(Errors, TensorsOfAPackedCall) {
  for (const Wrong& wrong : wrong_tensors()) {
    expect_refused(full(true), wrong);
  }
}

TEST(Errors, ChunkStates) {
  const std::vector<Wrong> all = {
      {"given, not asked for",
       [](Call& c) { c.options.chunk_states_every = 0; },
       {"chunk_states", "chunk_states_every"}},
      {"not a multiple of 16", [](Call& c) { c.options.chunk_states_every = 24; }, {"chunk_states_every", "24", "16"}},
      {"negative", [](Call& c) { c.options.chunk_states_every = -16; }, {"chunk_states_every", "-16"}},
      {"dtype", [](Call& c) { type(*c.arguments.chunk_states, DType::i32); }, {"chunk_states", "i32"}},
      {"another dtype than final_states",
       [](Call& c) { type(*c.arguments.chunk_states, DType::bf16); },
       {"chunk_states", "bf16", "f32"}},
      {"last stride", [](Call& c) { spread(*c.arguments.chunk_states); }, {"chunk_states", "stride", "2"}},
      {"no data", [](Call& c) { c.arguments.chunk_states->data = nullptr; }, {"chunk_states", "null"}},
      {"with documents",
       [](Call& c) {
         static std::vector<std::int32_t> ids(78);
         Tensor seq_idx;
         static_cast<Layout&>(seq_idx) = dense(DType::i32, {c.spec.batch, c.spec.tokens});
         seq_idx.data = ids.data();
         c.arguments.seq_idx = seq_idx;
       },
       {"chunk_states", "seq_idx"}},
  };
  for (const bool packed : {false, true}) {
    for (const Wrong& wrong : all) {
      expect_refused(with_chunk_states(packed), wrong);
    }
  }
  expect_refused(with_chunk_states(false),
                 {"too few", [](Call& c) { shape(*c.arguments.chunk_states, 1, 1); }, {"chunk_states", "1", "2"}});
  expect_refused(with_chunk_states(true),
                 {"too few", [](Call& c) { shape(*c.arguments.chunk_states, 0, 1); }, {"chunk_states", "1", "2"}});
}

/// Row 20: the entry is named.
TEST(Errors, CuSeqlens) {
  const auto entry = [](Call& c, std::int64_t index, double value) { set(*c.arguments.cu_seqlens, value, index); };
  const std::vector<Wrong> all = {
      {"dtype", [](Call& c) { type(*c.arguments.cu_seqlens, DType::f32); }, {"cu_seqlens", "f32", "i32"}},
      {"rank", [](Call& c) { c.arguments.cu_seqlens->rank = 2; }, {"cu_seqlens", "(S+1)"}},
      {"no entry", [](Call& c) { shape(*c.arguments.cu_seqlens, 0, 0); }, {"cu_seqlens", "0"}},
      {"no data", [](Call& c) { c.arguments.cu_seqlens->data = nullptr; }, {"cu_seqlens", "null"}},
      {"stride", [](Call& c) { c.arguments.cu_seqlens->strides[0] = 2; }, {"cu_seqlens", "stride", "2"}},
      {"does not start at 0", [&](Call& c) { entry(c, 0, 4); }, {"cu_seqlens[0]", "4"}},
      {"negative", [&](Call& c) { entry(c, 1, -7); }, {"cu_seqlens[1]", "-7"}},
      {"falls", [&](Call& c) { entry(c, 1, 30), entry(c, 2, 29); }, {"cu_seqlens[2]", "29", "30"}},
      {"ends before T", [&](Call& c) { entry(c, 3, 38); }, {"cu_seqlens[3]", "38", "39"}},
      {"ends after T", [&](Call& c) { entry(c, 3, 40); }, {"cu_seqlens[3]", "40", "39"}},
      {"beyond T on the way", [&](Call& c) { entry(c, 2, 1000); }, {"cu_seqlens", "1000"}},
      {"overflows", [&](Call& c) { entry(c, 1, -2147483648.0); }, {"cu_seqlens[1]", "-2147483648"}},
  };
  for (const Wrong& wrong : all) {
    expect_refused(full(true), wrong);
  }
  // A packed call has one row.
  Call batch(full(false));
  const Call packed(full(true));
  batch.arguments.cu_seqlens = packed.arguments.cu_seqlens;
  batch.arguments.initial_states = packed.arguments.initial_states,
  batch.arguments.final_states = packed.arguments.final_states;
  expect_error(ErrorCode::invalid_argument, {"cu_seqlens", "2", "1"}, [&] { scan(batch.arguments, batch.options); });
}

// ------------------------------------------------------------------------------------------------- problems and plans

TEST(Errors, Problems) {
  const Problem valid = Call(full(false)).problem();
  ASSERT_NO_THROW(valid.check());
  const std::vector<std::pair<std::function<void(Problem&)>, std::vector<std::string>>> all = {
      {[](Problem& p) { p.batch = -1; }, {"-1"}},
      {[](Problem& p) { p.tokens = -2; }, {"-2"}},
      {[](Problem& p) { p.heads = 0; }, {"head"}},
      {[](Problem& p) { p.head_dim = 0; }, {"head"}},
      {[](Problem& p) { p.groups = 0; }, {"group"}},
      {[](Problem& p) { p.state = 0; }, {"state"}},
      {[](Problem& p) { p.heads = 15, p.groups = 4; }, {"15", "4"}},
      {[](Problem& p) { p.x = DType::i32; }, {"x", "i32"}},
      {[](Problem& p) { p.dt = DType::f16; }, {"dt", "f16"}},
      {[](Problem& p) { p.y = DType::f16; }, {"y", "f16"}},
      {[](Problem& p) { p.D = DType::f16; }, {"D", "f16"}},
      {[](Problem& p) { p.D.reset(); }, {"D"}},
      {[](Problem& p) { p.skip = SkipForm::none; }, {"D"}},
      {[](Problem& p) { p.dt_bias = DType::f16; }, {"dt_bias", "f16"}},
      {[](Problem& p) { p.initial_states = DType::i32; }, {"initial_states", "i32"}},
      {[](Problem& p) { p.final_states = DType::i32; }, {"final_states", "i32"}},
      {[](Problem& p) { p.packed_sequences = 3; }, {"cu_seqlens", "2"}},
      {[](Problem& p) { p.batch = 1, p.packed_sequences = -3; }, {"-3"}},
      {[](Problem& p) { p.options.dt_min = -1; }, {"dt_limit", "-1"}},
      {[](Problem& p) { p.options.dt_max = -1; }, {"dt_limit", "-1"}},
      {[](Problem& p) { p.options.chunk_states_every = 16; }, {"chunk_states"}},
      {[](Problem& p) { p.seq_idx = false, p.chunk_states = DType::f32, p.options.chunk_states_every = 8; },
       {"chunk_states_every", "8", "16"}},
      {[](Problem& p) { p.seq_idx = false, p.chunk_states = DType::f32; }, {"chunk_states"}},
  };
  for (const auto& [change, words] : all) {
    Problem wrong = valid;
    change(wrong);
    expect_error(ErrorCode::invalid_argument, words, [&] { wrong.check(); });
    expect_error(ErrorCode::invalid_argument, words, [&] { (void)Plan(wrong); });
    expect_error(ErrorCode::invalid_argument, words, [&] { (void)candidates(wrong); });
  }
}

class ErrorsOfPlans : public BackendTest {};

/// Row 10, and every other difference between the problem of a plan and the tensors that it is given.
TEST_P(ErrorsOfPlans, ArgumentsOfAnotherProblem) {
  const Spec spec = fit(full(false));
  const DType other_type = spec.x == DType::f32 ? DType::bf16 : DType::f32;
  Call call(spec);
  ASSERT_TRUE(run(call));
  const Plan plan = plan_on(GetParam(), call.arguments, call.options);
  const std::vector<Wrong> all = {
      {"initial_states missing", [](Call& c) { c.arguments.initial_states.reset(); }, {"initial_states"}},
      {"D missing", [](Call& c) { c.arguments.D.reset(); }, {"D"}},
      {"D in the other form", [](Call& c) { c.arguments.D->rank = 1, c.arguments.D->strides = {1}; }, {"D", "(H)"}},
      {"z missing", [](Call& c) { c.arguments.z.reset(); }, {"z"}},
      {"dt_bias missing", [](Call& c) { c.arguments.dt_bias.reset(); }, {"dt_bias"}},
      {"seq_idx missing", [](Call& c) { c.arguments.seq_idx.reset(); }, {"seq_idx"}},
      {"final_states missing", [](Call& c) { c.arguments.final_states.reset(); }, {"final_states"}},
      {"dt in another type", [](Call& c) { type(c.arguments.dt, DType::bf16); }, {"dt", "bf16", "f32"}},
      {"y in another type",
       [&](Call& c) { type(c.arguments.y, other_type); },
       {"y", std::string(name(other_type)), std::string(name(spec.x))}},
      {"initial_states in another type",
       [](Call& c) { type(*c.arguments.initial_states, DType::bf16); },
       {"initial_states", "bf16", "f32"}},
      {"final_states in another type",
       [](Call& c) { type(*c.arguments.final_states, DType::f16); },
       {"final_states", "f16", "f32"}},
      {"fewer rows",
       [](Call& c) {
         for (Tensor* tensor : {&c.arguments.x, &c.arguments.dt, &c.arguments.B, &c.arguments.C, &*c.arguments.z,
                                &*c.arguments.seq_idx, &*c.arguments.initial_states}) {
           *tensor = slice(*tensor, 0, 0, 1);
         }
         c.arguments.y = slice(c.arguments.y, 0, 0, 1),
         c.arguments.final_states = slice(*c.arguments.final_states, 0, 0, 1);
       },
       {"1", "2"}},
      {"x: last stride", [](Call& c) { spread(c.arguments.x); }, {"x", "stride", "2"}},
      {"x: no data", [](Call& c) { c.arguments.x.data = nullptr; }, {"x", "null"}},
  };
  const auto refused = [&](const Plan& bound, const Spec& of, const Wrong& wrong) {
    SCOPED_TRACE(wrong.what);
    Call other(of);
    Mirror mirror(bound, other.arguments);
    const Arguments before = std::exchange(other.arguments, mirror.arguments());
    wrong.change(other);
    expect_error(ErrorCode::invalid_argument, wrong.words,
                 [&] { bound.execute(other.arguments, mirror.workspace(), bound.workspace_bytes()); });
    other.arguments = before;
    mirror.fetch();
    EXPECT_TRUE(other.outputs_untouched());
  };
  for (const Wrong& wrong : all) refused(plan, spec, wrong);

  // The other way round: a plan made without an optional tensor is given one.
  for (const char* tensor : {"initial_states", "D", "z", "dt_bias", "seq_idx", "final_states"}) {
    const std::string name = tensor;
    Spec without = spec;
    if (name == "initial_states") without.initial_states.reset();
    if (name == "D") without.skip = SkipForm::none;
    if (name == "z") without.z = false;
    if (name == "dt_bias") without.dt_bias.reset();
    if (name == "seq_idx") without.new_document = 0;
    if (name == "final_states") without.final_states.reset();
    const Call call_without(without);
    const Plan bare = plan_on(GetParam(), call_without.arguments, call_without.options);
    refused(bare, spec, {tensor, [](Call&) {}, {name}});
  }
}

/// On a CPU the values of cu_seqlens are looked at in a planned call too. On a device they are where the host cannot
/// see them: nothing is read or written that is not the call's, and validate names the entry.
TEST_P(ErrorsOfPlans, BadValuesOfAPlannedCall) {
  Call call(fit(full(true)));
  ASSERT_TRUE(run(call));
  call.prepare();
  const Plan plan = plan_on(GetParam(), call.arguments, call.options);
  for (const double value : {-1.0, 38.0, 1000.0}) {
    set(*call.arguments.cu_seqlens, value, 3);
    const std::vector<std::string> words = {"cu_seqlens[3]", std::to_string(static_cast<int>(value))};
    Mirror mirror(plan, call.arguments);
    const auto execute = [&] { plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes()); };
    if (plan.problem().device.kind == DeviceKind::cpu) {
      expect_error(ErrorCode::invalid_argument, words, execute);
      EXPECT_TRUE(call.outputs_untouched());
    } else {
      execute();
      EXPECT_TRUE(mirror.intact());
      expect_error(ErrorCode::invalid_argument, words, [&] { validate(mirror.arguments(), call.options); });
    }
  }
}

TEST_P(ErrorsOfPlans, WorkspaceAndStream) {
  Call call(fit(full(true)));
  ASSERT_TRUE(run(call));
  call.prepare();
  const Plan plan = plan_on(GetParam(), call.arguments, call.options);
  const std::size_t bytes = plan.workspace_bytes();
  Mirror mirror(plan, call.arguments);
  const auto execute = [&](void* workspace, std::size_t its_bytes, void* stream = nullptr) {
    plan.execute(mirror.arguments(), workspace, its_bytes, stream);
  };
  if (bytes > 0) {
    const std::string size = std::to_string(bytes);
    expect_error(ErrorCode::out_of_memory, {"workspace", size, std::to_string(bytes - 1)},
                 [&] { execute(mirror.workspace(), bytes - 1); });
    expect_error(ErrorCode::out_of_memory, {"workspace", size, "0"}, [&] { execute(mirror.workspace(), 0); });
    expect_error(ErrorCode::invalid_argument, {"workspace", "null"}, [&] { execute(nullptr, bytes); });
    expect_error(ErrorCode::invalid_argument, {"workspace", "256"},
                 [&] { execute(static_cast<std::byte*>(mirror.workspace()) + 8, bytes); });
  }
  if (plan.problem().device.kind == DeviceKind::cpu) {  // elsewhere it is the vendor's, and opaque
    int not_a_stream = 0;
    expect_error(ErrorCode::invalid_argument, {"stream"}, [&] { execute(mirror.workspace(), bytes, &not_a_stream); });
  }
  mirror.fetch();
  EXPECT_TRUE(call.outputs_untouched());
}

/// A plan says no if its policy, schedule or backend is none.
TEST(Errors, Choices) {
  const Problem problem = Call(full(false)).problem();
  for (const std::string& backend : expected_backends()) {
    expect_error(ErrorCode::no_backend, {"kokos", backend}, [&] {
      (void)Plan(problem, {"kokos", Schedule::automatic, ""});
    });
    expect_error(ErrorCode::no_backend, {"no such policy", backend, "staged", "fused"}, [&] {
      (void)Plan(problem, {backend, Schedule::automatic, "no such policy"});
    });
  }
  expect_error(ErrorCode::invalid_argument, {"sideways", "staged", "fused"}, [] { (void)schedule_named("sideways"); });
  for (const Schedule schedule : {Schedule::automatic, Schedule::staged, Schedule::fused, Schedule::recurrent}) {
    EXPECT_EQ(schedule_named(name(schedule)), schedule);
  }
}

/// Tensors in a GPU's memory: no CPU backend is a candidate, and the error has every backend's reason.
TEST(Errors, MemoryThatNoBackendReaches) {
  Problem problem = Call(full(false)).problem();
  problem.device = {DeviceKind::hip, 3};
  for (const std::string& backend : expected_backends()) {
    expect_error(ErrorCode::no_backend, {"hip:3", backend}, [&] { (void)Plan(problem); });
    expect_error(ErrorCode::no_backend, {"hip:3", backend}, [&] {
      (void)Plan(problem, {backend, Schedule::automatic, ""});
    });
  }
}

TEST(Errors, DenseLayouts) {
  const Layout layout = dense(DType::bf16, {2, 3, 5});
  EXPECT_EQ(layout.strides, (Extents{15, 5, 1, 0, 0}));
  EXPECT_EQ(layout.rank, 3);
  expect_error(ErrorCode::invalid_argument, {"6", "5"}, [] { (void)dense(DType::f32, {1, 1, 1, 1, 1, 1}); });
  expect_error(ErrorCode::invalid_argument, {"-4"}, [] { (void)dense(DType::f32, {2, -4}); });
  constexpr std::int64_t large = std::int64_t{1} << 31;
  expect_error(ErrorCode::invalid_argument, {"64-bit"}, [] { (void)dense(DType::f32, {large, large, 2}); });
  EXPECT_EQ(size(dense(DType::f32, {large, 0, large})), 0);
}

TILEMAMBA_ON_DEFAULT_TARGETS(ErrorsOfPlans);

}  // namespace
}  // namespace tilemamba::test
