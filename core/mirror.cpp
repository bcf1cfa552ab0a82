// SPDX-License-Identifier: Apache-2.0
#include "core/mirror.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "core/registry.hpp"

namespace tilemamba {

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t guard_bytes = 1024;
constexpr std::byte poison_byte{0xff};  // a NaN in every floating type

const Backend& running(std::string_view member) {
  for (const Entry* entry : registry().named(member)) {
    if (entry->backend != nullptr) return *entry->backend;
  }
  throw Error(ErrorCode::no_backend, "backend '" + std::string(member) + "' is not loaded");
}

void require(const Outcome& outcome) {
  if (!outcome.message.empty()) throw Error(outcome.code, outcome.message);
}

/// Bytes from a tensor's first element to its last.
std::size_t span_of(const Layout& layout) {
  std::int64_t last = 0;
  for (int i = 0; i < layout.rank; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (layout.shape[k] == 0) return 0;
    last += (layout.shape[k] - 1) * layout.strides[k];
  }
  return static_cast<std::size_t>(last + 1) * size_of(layout.dtype);
}

/// f(tensor, is an output) for every tensor of a call.
template <class F>
void each_tensor(Arguments& arguments, const F& f) {
  for (Tensor* tensor : {&arguments.x, &arguments.dt, &arguments.A, &arguments.B, &arguments.C}) f(*tensor, false);
  for (std::optional<Tensor>* tensor : {&arguments.D, &arguments.z, &arguments.dt_bias, &arguments.initial_states,
                                        &arguments.seq_idx, &arguments.cu_seqlens}) {
    if (*tensor) f(**tensor, false);
  }
  f(arguments.y, true);
  for (std::optional<MutableTensor>* tensor : {&arguments.final_states, &arguments.chunk_states}) {
    if (*tensor) f(**tensor, true);
  }
}

/// Bytes on a device: a copy of the host's between guards, with as much in front as keeps its alignment.
class Piece {
 public:
  Piece(const Backend& backend, const Device& device, void* host, std::size_t bytes, bool output)
      : backend_(backend),
        device_(device),
        host_(static_cast<std::byte*>(host)),
        bytes_(bytes),
        output_(output),
        offset_(guard_bytes + reinterpret_cast<std::uintptr_t>(host) % alignment) {
    const std::size_t all = offset_ + bytes + guard_bytes;
    memory_ = static_cast<std::byte*>(backend.allocate(device, all));
    if (memory_ == nullptr) {
      throw Error(ErrorCode::out_of_memory, std::to_string(all) + " bytes could not be had on " + to_string(device));
    }
    try {
      poison(0, offset_);
      poison(offset_ + bytes, guard_bytes);
      if (host == nullptr) poison(offset_, bytes);
      if (host != nullptr) require(backend.upload(device, data(), host, bytes));
    } catch (...) {
      backend.release(device, memory_);
      throw;
    }
  }
  ~Piece() { backend_.release(device_, memory_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  [[nodiscard]] void* data() const { return memory_ + offset_; }
  void refill() const {
    if (output_ && host_ != nullptr) require(backend_.upload(device_, data(), host_, bytes_));
  }
  void fetch() {
    if (output_ && host_ != nullptr) require(backend_.download(device_, host_, data(), bytes_));
  }
  [[nodiscard]] bool intact() const {
    return holds(0, offset_, nullptr) && holds(offset_ + bytes_, guard_bytes, nullptr) &&
           (output_ || holds(offset_, bytes_, host_));
  }

 private:
  static constexpr std::size_t most_at_once = std::size_t{1} << 24;

  /// f(offset, bytes) for pieces that are no burden on the host.
  template <class F>
  static void in_pieces(std::size_t offset, std::size_t bytes, const F& f) {
    for (std::size_t done = 0; done < bytes; done += most_at_once) {
      f(offset + done, std::min(most_at_once, bytes - done));
    }
  }
  void poison(std::size_t offset, std::size_t bytes) const {
    const std::vector<std::byte> image(std::min(most_at_once, bytes), poison_byte);
    in_pieces(offset, bytes, [&](std::size_t at, std::size_t count) {
      require(backend_.upload(device_, memory_ + at, image.data(), count));
    });
  }
  /// Whether the device has there what the host has, or poison.
  [[nodiscard]] bool holds(std::size_t offset, std::size_t bytes, const std::byte* host) const {
    bool same = true;
    in_pieces(offset, bytes, [&](std::size_t at, std::size_t count) {
      std::vector<std::byte> now(count);
      require(backend_.download(device_, now.data(), memory_ + at, count));
      same =
          same && (host != nullptr ? std::equal(now.begin(), now.end(), host + (at - offset))
                                   : std::all_of(now.begin(), now.end(), [](std::byte b) { return b == poison_byte; }));
    });
    return same;
  }

  const Backend& backend_;
  Device device_;
  std::byte* host_;
  std::size_t bytes_;
  bool output_;
  std::size_t offset_;
  std::byte* memory_ = nullptr;
};

}  // namespace

Device home_of(std::string_view backend) {
  const std::string wanted = backend.empty() ? environment().backend : std::string(backend);
  if (wanted.empty()) return {};
  for (const Entry* entry : registry().named(wanted)) {
    if (probe(*entry).can_run) return entry->backend->home();
  }
  return {};
}

Arguments placed_on(const Device& device, Arguments arguments) {
  each_tensor(arguments, [&](auto& tensor, bool) { tensor.device = device; });
  return arguments;
}

struct Mirror::Impl {
  const Backend& backend;
  Device device;
  Arguments arguments;
  std::deque<Piece> pieces;
  void* workspace = nullptr;

  Impl(const Backend& its_backend, const Device& its_device, const Arguments& host)
      : backend(its_backend), device(its_device), arguments(placed_on(its_device, host)) {}
};

Mirror::Mirror(const Plan& plan, const Arguments& host)
    : impl_(std::make_unique<Impl>(running(plan.backend()), plan.problem().device, host)) {
  const Device& device = impl_->device;
  const Backend& backend = impl_->backend;
  if (device.kind != DeviceKind::cpu) {
    each_tensor(impl_->arguments, [&](auto& tensor, bool output) {
      void* const data =
          const_cast<void*>(static_cast<const void*>(tensor.data));  // NOLINT: written if it is an output only
      tensor.data = impl_->pieces.emplace_back(backend, device, data, span_of(tensor), output).data();
    });
  }
  impl_->workspace = impl_->pieces.emplace_back(backend, device, nullptr, plan.workspace_bytes(), true).data();
}
Mirror::~Mirror() = default;
Mirror::Mirror(Mirror&&) noexcept = default;
Mirror& Mirror::operator=(Mirror&&) noexcept = default;

const Arguments& Mirror::arguments() const noexcept { return impl_->arguments; }
void* Mirror::workspace() const noexcept { return impl_->workspace; }

void Mirror::wait() const {
  std::byte nothing{};
  require(impl_->backend.download(impl_->device, &nothing, impl_->workspace, 0));
}

void Mirror::poison() const {
  for (const Piece& piece : impl_->pieces) piece.refill();
}

void Mirror::fetch() {
  for (Piece& piece : impl_->pieces) piece.fetch();
}

bool Mirror::intact() const {
  return std::all_of(impl_->pieces.begin(), impl_->pieces.end(), [](const Piece& piece) { return piece.intact(); });
}

// --------------------------------------------------------------------------------------------------------------- times

struct Timing::Impl {
  std::unique_ptr<Stopwatch> stopwatch;
};

Timing::Timing(const Plan& plan, const std::vector<const Mirror*>& mirrors) {
  const auto call = [plan, mirrors](std::size_t i, void* stream) -> Outcome {
    const Mirror& mirror = *mirrors[i % mirrors.size()];
    try {
      plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes(), stream);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {};
  };
  Outcome outcome;
  auto stopwatch = running(plan.backend()).stopwatch(plan.problem().device, call, outcome);
  require(outcome);
  impl_ = std::make_unique<Impl>(Impl{std::move(stopwatch)});
}
Timing::~Timing() = default;
Timing::Timing(Timing&&) noexcept = default;
Timing& Timing::operator=(Timing&&) noexcept = default;

Timing::Taken Timing::take() {
  Taken taken;
  require(impl_->stopwatch->time(taken.seconds, taken.calls));
  return taken;
}

}  // namespace tilemamba
