// SPDX-License-Identifier: Apache-2.0
// The Kokkos backend on a GPU, through Kokkos's space of its vendor: a module of its own, since one Kokkos has one such
// space at most. It is there where nothing better is, and shows that the text needs nothing of a vendor.
#include <Kokkos_Core.hpp>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backends/kokkos/driver.hpp"
#include "core/backend.hpp"
#include "kernels/lower.hpp"

namespace tilemamba::kokkos {

namespace {

#if defined(KOKKOS_ENABLE_CUDA)
using Space = Kokkos::Cuda;
using Stream = cudaStream_t;
constexpr std::string_view member = "kokkos-cuda";
constexpr bool has_run = TILEMAMBA_KOKKOS_ARCHITECTURE == 90;  ///< here, on such a device
constexpr Device its_device{DeviceKind::cuda, 0};

/// Why Kokkos, which ends the process where it finds no device, cannot be asked; empty: it can.
std::string look(std::string& device) {
  int count = 0;
  cudaDeviceProp properties{};
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
                     cudaGetDeviceProperties(&properties, its_device.index) == cudaSuccess;
  (void)cudaGetLastError();
  if (!found) return "there is no NVIDIA driver, or no device that it shows";
  device = properties.name;
  const int capability = properties.major * 10 + properties.minor;
  if (capability / 10 == TILEMAMBA_KOKKOS_ARCHITECTURE / 10 && capability >= TILEMAMBA_KOKKOS_ARCHITECTURE) return "";
  return "it is compiled for compute capability " + std::to_string(TILEMAMBA_KOKKOS_ARCHITECTURE) +
         ", the device has " + std::to_string(capability);
}
std::string driver() {
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
#else
using Space = Kokkos::HIP;
using Stream = hipStream_t;
constexpr std::string_view member = "kokkos-hip";
constexpr bool has_run = false;
constexpr Device its_device{DeviceKind::hip, 0};

std::string look(std::string& device) {
  int count = 0;
  hipDeviceProp_t properties{};
  const bool found = hipGetDeviceCount(&count) == hipSuccess && count > 0 &&
                     hipGetDeviceProperties(&properties, its_device.index) == hipSuccess;
  (void)hipGetLastError();
  if (!found) return "there is no AMD driver, or no device that it shows";
  device = properties.name;
  const std::string architecture =
      std::string(properties.gcnArchName).substr(0, sizeof(TILEMAMBA_KOKKOS_ARCHITECTURE) - 1);
  if (architecture == TILEMAMBA_KOKKOS_ARCHITECTURE) return "";
  return "it is compiled for " TILEMAMBA_KOKKOS_ARCHITECTURE ", the device is " + architecture;
}
std::string driver() {
  int version = 0;
  (void)hipDriverGetVersion(&version);
  return "HIP " + std::to_string(version);
}
#endif

struct Policy {
  std::string_view name;
  Schedule schedule;
  int chunk;
};
inline constexpr Policy policies[] = {{"q64", Schedule::fused, 64}, {"q64", Schedule::staged, 64}};
constexpr int most_channels = 64;  ///< of a slice

[[nodiscard]] std::int64_t slices_of(const Problem& problem) {
  return problem.heads * kernels::divide_up<std::int64_t>(problem.head_dim, most_channels);
}

/// Sequences are cut until there is about a block for each multiprocessor of a large GPU: with more, they would not
/// find their tiles in its cache. Constants, since where a sequence is cut decides its bits.
[[nodiscard]] kernels::Arrangement arrangement_of(const Problem& problem, const Policy& policy) {
  constexpr std::int64_t enough_blocks = 128, invariant_chunks = 16;
  if (policy.schedule == Schedule::staged) return {policy.schedule, policy.chunk, 1};
  if (problem.options.batch_invariant) return {policy.schedule, policy.chunk, invariant_chunks};
  const std::int64_t sequences = std::max<std::int64_t>(problem.sequences(), 1),
                     length = kernels::divide_up(problem.batch * problem.tokens, sequences),
                     segments = std::max<std::int64_t>(enough_blocks / (sequences * slices_of(problem)), 1),
                     chunks = kernels::divide_up<std::int64_t>(length, policy.chunk);
  return {policy.schedule, policy.chunk, std::max<std::int64_t>(kernels::divide_up(chunks, segments), 1)};
}

/// This copy of Kokkos lives from its first use to the end of the process.
void initialize() {
  struct Lifetime {
    Lifetime() {
      Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true).set_device_id(its_device.index));
    }
    ~Lifetime() { Kokkos::finalize(); }
    Lifetime(const Lifetime&) = delete;
    Lifetime& operator=(const Lifetime&) = delete;
  };
  static const Lifetime lifetime;
}

/// Kokkos on a stream. Kept: each has memory of its own.
Space on(void* stream) {
  static std::mutex mutex;
  static std::map<void*, Space> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(stream);
  if (found != known.end()) return found->second;
  return known.emplace(stream, Space(static_cast<Stream>(stream))).first->second;
}

class DeviceExecutable : public Executable {
 public:
  DeviceExecutable(const Problem& problem, const Policy& policy)
      : problem_(problem),
        policy_(policy),
        channels_(static_cast<int>(std::min<std::int64_t>(problem.head_dim, most_channels))) {}

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    using W = Worker<Space>;
    const kernels::Call call = kernels::lower(arguments, problem_, arrangement_of(problem_, policy_), workspace);
    const Extents extents{padded(policy_.chunk), padded(channels_), padded(static_cast<int>(problem_.state))};
    kernels::walk::run<W>(policy_.schedule, call, kernels::HeadBlocks(call, channels_, 1),
                          Launcher<W>{on(stream), extents});
    return {};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  Problem problem_;
  Policy policy_;
  int channels_;
};

class DeviceBackend : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return member; }
  [[nodiscard]] bool proven() const noexcept override { return has_run; }

  [[nodiscard]] Probe probe() const override {
    std::string device;
    if (std::string why = look(device); !why.empty()) return {false, std::move(why), {}};
    return {true,
            "Kokkos " + std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100),
            {device}};
  }

  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    if (device.kind != its_device.kind) return "it runs on a GPU and cannot address that device's memory";
    if (device.index != its_device.index) return "its Kokkos has one device, the first";
    std::string ignored;
    return look(ignored);
  }

  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    std::vector<Offer> result;
    for (const Policy& policy : policies) {
      const kernels::WorkspaceLayout layout(problem, arrangement_of(problem, policy));
      const bool fits = (layout.slots + problem.sequences()) * slices_of(problem) <= std::numeric_limits<int>::max();
      result.push_back({policy.schedule, policy.name,
                        fits ? "" : "more blocks than a Kokkos league may have (2^31 - 1)", layout.bytes});
    }
    return result;
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override try {
    initialize();
    for (const Policy& policy : policies) {
      if (policy.name == offer.policy && policy.schedule == offer.schedule)
        return std::make_unique<DeviceExecutable>(problem, policy);
    }
    outcome.message = "it has no policy " + std::string(offer.policy);
    return nullptr;
  } catch (const std::exception& fault) {
    outcome.message = fault.what();
    return nullptr;
  }

  /// (kokkos_malloc's memory begins after a header: it is aligned to 128 bytes, and workspaces to 256.)
  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override try {
    initialize();
    return Space::memory_space().allocate(bytes);
  } catch (const std::exception&) {
    return nullptr;
  }
  void release(const Device&, void* memory) const noexcept override {
    Kokkos::fence("tilemamba");
    Space::memory_space().deallocate(memory, 0);  // the size is for profilers
  }
  [[nodiscard]] Identity identity(const Device&) const override {
    std::string device;
    return look(device).empty() ? Identity{std::move(device), driver()} : Identity{};
  }
  [[nodiscard]] Device home() const noexcept override { return its_device; }
  [[nodiscard]] Outcome upload(const Device&, void* to, const void* from, std::size_t bytes) const noexcept override {
    return copy<Space::memory_space, Kokkos::HostSpace>(to, from, bytes);
  }
  [[nodiscard]] Outcome download(const Device&, void* to, const void* from, std::size_t bytes) const noexcept override {
    return copy<Kokkos::HostSpace, Space::memory_space>(to, from, bytes);
  }

 private:
  template <class To, class From>
  static Outcome copy(void* to, const void* from, std::size_t bytes) noexcept try {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    initialize();
    Kokkos::fence("tilemamba");
    Kokkos::deep_copy(Kokkos::View<char*, To, Unmanaged>(static_cast<char*>(to), bytes),
                      Kokkos::View<const char*, From, Unmanaged>(static_cast<const char*>(from), bytes));
    return {};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }
};

}  // namespace

}  // namespace tilemamba::kokkos

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  using namespace tilemamba;
  static const kokkos::DeviceBackend backend;
  static const Backend* const backends[] = {&backend};
  static const Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
