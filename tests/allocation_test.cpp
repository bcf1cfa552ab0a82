// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plan::execute allocates nothing. A program of its own: it has the C library's allocation functions, and with them
/// operator new, wherever in the process they are called from.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "core/mirror.hpp"
#include "tests/backend_test.hpp"

namespace {
std::atomic<bool> counting = false;
std::atomic<long> allocations = 0;

void count() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}
}  // namespace

// The names that glibc gives to its own versions.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace tilemamba::test {
namespace {

/// The count itself works, for memory that is taken here and by the library.
TEST(Allocation, IsCounted) {
  counting = true;
  const Plan plan(Call(Spec{}).problem());
  counting = false;
  EXPECT_GT(allocations.exchange(0), 0);
}

class AllocationOnBackend : public BackendTest {};

TEST_P(AllocationOnBackend, ExecuteAllocatesNothing) {
  for (const bool packed : {false, true}) {
    for (const DType dtype : types({DType::f32, DType::f16, DType::bf16})) {
      Spec spec;
      spec.type(dtype);
      spec.batch = 2, spec.tokens = 300, spec.heads = 4, spec.head_dim = 80, spec.state = 128, spec.z = true;
      spec.skip = SkipForm::per_channel, spec.dt_bias = DType::f32, spec.initial_states = DType::f32,
      spec.new_document = 0.01;
      if (packed) spec.pack({100, 0, 77});
      spec = fit(spec);
      Call call(spec);
      if (!run(call)) continue;  // counts as run; the plan below is another one, and its first call is counted
      const Plan plan = plan_on(GetParam(), call.arguments, call.options);
      const Mirror mirror(plan, call.arguments);
      for (const char* which : {"first", "second"}) {
        counting = true;
        plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes());
        counting = false;
        EXPECT_EQ(allocations.exchange(0), 0) << which << " call, " << spec;
      }
    }
  }
}

/// The scalar backend is for tests only and makes its tiles as it needs them.
std::vector<Target> targets_of_the_library() {
  std::vector<Target> all = targets();
  all.erase(std::remove_if(all.begin(), all.end(), [](const Target& target) { return target.backend == "scalar"; }),
            all.end());
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AllocationOnBackend);  // a build may have no backend but the scalar one
INSTANTIATE_TEST_SUITE_P(On, AllocationOnBackend, testing::ValuesIn(targets_of_the_library()), target_name);

}  // namespace
}  // namespace tilemamba::test
