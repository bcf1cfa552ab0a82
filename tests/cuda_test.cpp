// SPDX-License-Identifier: Apache-2.0
/// @file
/// What only a program that uses CUDA itself can try: graphs, and which device is current. Rows 14 and 16 of the
/// project's list of inputs that broke other systems.
#include <stdexcept>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/mirror.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

class OnCuda : public BackendTest {
 protected:
  /// Everything that one call can have.
  [[nodiscard]] Spec spec(bool packed) const {
    Spec spec;
    spec.type(DType::bf16);
    spec.batch = 2, spec.tokens = 300, spec.heads = 4, spec.groups = 2, spec.head_dim = 64, spec.state = 64;
    if (packed) spec.pack({70, 0, 201});
    spec.skip = SkipForm::per_head, spec.z = packed, spec.initial_states = DType::f32, spec.decay = Decay::slow;
    return fit(spec);
  }
};

/// Nothing is loaded, allocated or waited for in a call that was planned, the first one included.
TEST_P(OnCuda, FirstPlannedCallIsCaptured) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed ? "packed" : "a batch");
    Call replayed(spec(packed)), called(spec(packed));
    const Plan plan = plan_on(GetParam(), replayed.arguments, replayed.options);
    Mirror mirror(plan, replayed.arguments);
    cudaStream_t stream{};
    cudaGraph_t graph{};
    cudaGraphExec_t ready{};
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes(), stream);
    require(cudaStreamEndCapture(stream, &graph));
    require(cudaGraphInstantiate(&ready, graph, 0));
    for (int k = 0; k < 2; ++k) require(cudaGraphLaunch(ready, stream));
    require(cudaStreamSynchronize(stream));
    mirror.fetch();
    EXPECT_TRUE(mirror.intact());
    expect_within_bars(replayed.arguments, replayed.options, expected_of(replayed.spec));
    ASSERT_TRUE(run(called));
    expect_same_outputs(replayed.arguments, called.arguments);
    require(cudaGraphExecDestroy(ready));
    require(cudaGraphDestroy(graph));
    require(cudaStreamDestroy(stream));
  }
}

/// The device that holds the tensors runs the call, whichever is current, and current it stays.
TEST_P(OnCuda, AnotherDeviceIsCurrent) {
  int count = 0;
  require(cudaGetDeviceCount(&count));
  if (count < 2) GTEST_SKIP() << "there is one device only";
  for (const int holder : {0, 1}) {
    Call call(spec(true));
    require(cudaSetDevice(1 - holder));
    const Device device{DeviceKind::cuda, holder};
    const Plan plan(Problem::of(placed_on(device, call.arguments), call.options), GetParam().choice());
    Mirror mirror(plan, call.arguments);
    plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes());
    mirror.fetch();
    int current = -1;
    require(cudaGetDevice(&current));
    EXPECT_EQ(current, 1 - holder);
    EXPECT_TRUE(mirror.intact());
    expect_within_bars(call.arguments, call.options, expected_of(call.spec));
    ASSERT_TRUE(run(call));
  }
}

/// So many that what is theirs together is made once, before (on an H200; see CudaPlans.ScoresOfManyHeadsAreMadeOnce),
/// in a row and packed, and with the same bits every time.
TEST_P(OnCuda, ManyHeadsOfAGroup) {
  for (const DType dtype : types({DType::bf16, DType::f16})) {
    for (int kind = 0; kind < 3; ++kind) {
      Spec spec;
      spec.type(dtype);
      spec.tokens = kind == 0 ? 1300 : 500, spec.heads = kind == 0 ? 132 : 64, spec.state = kind == 0 ? 256 : 512;
      if (kind == 2) spec.pack({0, 249, 0, 1, 250});
      spec.head_dim = 8, spec.initial_states = spec.final_states = DType::f32, spec.decay = Decay::slow;
      if (!run_within_bars(spec)) continue;
      Call first(fit(spec)), again(fit(spec));
      ASSERT_TRUE(run(first));
      for (std::int64_t k = 0; k < draws(20); ++k) {
        ASSERT_TRUE(run(again));
        ASSERT_NO_FATAL_FAILURE(expect_same_outputs(first.arguments, again.arguments));
      }
    }
  }
}

std::vector<Target> cuda_targets() {
  std::vector<Target> result;
  for (const Target& target : targets()) {
    if (home_of(target.backend).kind == DeviceKind::cuda) result.push_back(target);
  }
  return result;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnCuda);  // a machine may have no GPU
INSTANTIATE_TEST_SUITE_P(On, OnCuda, testing::ValuesIn(cuda_targets()), target_name);

}  // namespace
}  // namespace tilemamba::test
