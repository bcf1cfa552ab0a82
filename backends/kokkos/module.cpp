// SPDX-License-Identifier: Apache-2.0
// The Kokkos backend: Kokkos is linked into this module, hidden, and nobody else's business.
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>

#include "backends/kokkos/bf16_worker.hpp"
#include "backends/kokkos/driver.hpp"
#include "backends/kokkos/policy.hpp"
#include "backends/kokkos/threads.hpp"
#include "core/backend.hpp"

#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tilemamba::kokkos {

namespace {

/// Linux lets a process have the registers of AMX if it asks: for all its threads, also those to come.
void ask_for_tiles() {
#if defined(__AMX_BF16__)
  constexpr long request_permission = 0x1023, tile_data = 18;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0) {
    throw std::runtime_error("the operating system does not let this process use AMX");
  }
#endif
}

/// This copy of Kokkos lives from its first use to the end of the process.
void initialize() {
  struct Lifetime {
    Lifetime() {
      ask_for_tiles();
      Kokkos::initialize(
          Kokkos::InitializationSettings().set_disable_warnings(true).set_num_threads(threads_to_start()));
    }
    ~Lifetime() { Kokkos::finalize(); }
    Lifetime(const Lifetime&) = delete;
    Lifetime& operator=(const Lifetime&) = delete;
  };
  static const Lifetime lifetime;
}

template <class W>
Extents extents_of(const Problem& problem, const Plan& plan) {
  return {padded(plan.arrangement.chunk), padded(plan.channels),
          padded(static_cast<int>(problem.state), W::state_padding)};
}

template <template <class> class WorkerOf, class Space>
class KokkosExecutable : public Executable {
 public:
  KokkosExecutable(const Problem& problem, const Plan& plan)
      : problem_(problem), plan_(plan), launcher_{Space(), extents_of<WorkerOf<Space>>(problem, plan)} {
    // A call without tensors is enough to know how a launch's tiles are laid out.
    kernels::Call call;
    call.heads = static_cast<int>(problem.heads);
    call.groups = static_cast<int>(problem.groups);
    call.head_dim = static_cast<int>(problem.head_dim);
    call.sequences.slots = 1;
    ScratchMeter<WorkerOf<Space>> meter{launcher_.extents};
    schedule<WorkerOf<Space>>(call, meter);
    // A thread of a caller's parallel region may not launch on all threads.
    if (!caller_is_parallel()) reserve_scratch(launcher_, meter.most);
  }

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    if (stream != nullptr) return {ErrorCode::invalid_argument, "it has no streams: pass a null stream"};
    const kernels::Call call = kernels::lower(arguments, problem_, plan_.arrangement, workspace);
    if (caller_is_parallel()) {
      // Inside a caller's parallel region no threads are started; such calls run one after the other.
      using Alone = WorkerOf<Kokkos::Serial>;
      schedule<Alone>(call, Launcher<Alone>{Kokkos::Serial(), launcher_.extents});
      return {};
    }
    schedule<WorkerOf<Space>>(call, launcher_);
    launcher_.space.fence("tilemamba");  // a name short enough not to be allocated
    return {};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  static bool caller_is_parallel() {
#if defined(_OPENMP)
    return omp_in_parallel() != 0;
#else
    return false;
#endif
  }

  template <class W, class Launch>
  void schedule(const kernels::Call& call, Launch&& launch) const {
    kernels::walk::run<W>(plan_.arrangement.schedule, call, kernels::HeadBlocks(call, plan_.channels, plan_.workers),
                          launch);
  }

  Problem problem_;
  Plan plan_;
  Launcher<WorkerOf<Space>> launcher_;
};

template <class Space>
class KokkosBackend : public Backend {
 public:
  explicit KokkosBackend(std::string_view name) : name_(name) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

  [[nodiscard]] Probe probe() const override {
    initialize();
    const int count = threads();
    const std::string version = std::to_string(KOKKOS_VERSION_MAJOR) + "." + std::to_string(KOKKOS_VERSION_MINOR) +
                                "." + std::to_string(KOKKOS_VERSION_PATCH);
    return {true,
            "Kokkos " + version,
            {"cpu, " + std::to_string(count) + (count == 1 ? " thread" : " threads") + ", " TILEMAMBA_CPU_LEVEL}};
  }

  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? "" : "it runs on the CPU and cannot address that device's memory";
  }

  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    std::vector<Offer> result;
    for (const Policy& policy : policies) {
      const kernels::WorkspaceLayout layout(problem, plan_of(problem, policy, threads()).arrangement);
      const bool fits = (layout.slots + problem.sequences()) * problem.heads <= std::numeric_limits<int>::max();
      result.push_back({policy.schedule, policy.name,
                        fits ? "" : "more blocks than a Kokkos league may have (2^31 - 1)", layout.bytes});
    }
    std::swap(result[0], result[default_policy(problem)]);
    return result;
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override try {
    initialize();
    for (const Policy& policy : policies) {
      if (policy.name != offer.policy || policy.schedule != offer.schedule) continue;
      const Plan plan = plan_of(problem, policy, threads());
#if defined(__AVX512BF16__)
      if (multiplies(problem) == pairs) return std::make_unique<KokkosExecutable<Bf16Worker, Space>>(problem, plan);
#endif
      return std::make_unique<KokkosExecutable<Worker, Space>>(problem, plan);
    }
    outcome.message = "it has no policy " + std::string(offer.policy);
    return nullptr;
  } catch (const std::exception& fault) {
    outcome.message = fault.what();
    return nullptr;
  }

  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override {
    return bytes > std::numeric_limits<std::size_t>::max() - 255 ? nullptr
                                                                 : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(const Device&, void* memory) const noexcept override { std::free(memory); }

 private:
  static int threads() {
    initialize();
    return Space().concurrency();
  }

  std::string_view name_;
};

}  // namespace

}  // namespace tilemamba::kokkos

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  using namespace tilemamba;
#if defined(KOKKOS_ENABLE_OPENMP)
  static const kokkos::KokkosBackend<Kokkos::OpenMP> openmp("kokkos-openmp");
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
  static const kokkos::KokkosBackend<Kokkos::Serial> serial("kokkos-serial");
#endif
  static const Backend* const backends[] = {
#if defined(KOKKOS_ENABLE_OPENMP)
    &openmp,
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
    &serial,
#endif
  };
  static const Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
