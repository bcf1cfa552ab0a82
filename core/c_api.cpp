// SPDX-License-Identifier: Apache-2.0
// The C interface over the C++ one. What is checked here is what only C can get wrong: sizes of structs, null pointers,
// numbers that are no enumerator. No exception leaves.
#include <tilemamba/tilemamba.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <tilemamba/tilemamba.hpp>

struct tilemamba_plan {
  tilemamba::Plan plan;
  std::string backend;
  std::string policy;
};

struct tilemamba_backend_list {
  std::vector<tilemamba::BackendInfo> backends;
  std::vector<std::vector<const char*>> devices;
};

struct tilemamba_candidate_list {
  std::vector<tilemamba::Candidate> candidates;
};

namespace tilemamba {
namespace {

static_assert(TILEMAMBA_MAX_RANK == max_rank);

thread_local std::string last_error;
thread_local const char* last_error_text = "";

tilemamba_status failed(tilemamba_status status, const char* message) noexcept {
  try {
    last_error = message;
    last_error_text = last_error.c_str();
  } catch (...) {
    last_error_text = "out of memory";
  }
  return status;
}

template <class Body>
tilemamba_status guarded(Body&& body) noexcept {
  try {
    body();
    return TILEMAMBA_OK;
  } catch (const Error& error) {
    return failed(static_cast<tilemamba_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(TILEMAMBA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(TILEMAMBA_INTERNAL, error.what());
  } catch (...) {
    return failed(TILEMAMBA_INTERNAL, "unknown exception");
  }
}

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_pointer(const char* what, const void* pointer) {
  if (pointer == nullptr) fail(std::string(what) + " is a null pointer");
}

/// The first version of a struct is the smallest that is taken.
template <class Struct>
void check_size(const char* what, const Struct& given) {
  if (given.size >= sizeof(Struct)) return;
  fail(std::string(what) + " has size " + std::to_string(given.size) + "; it must be sizeof(" + what +
       ") = " + std::to_string(sizeof(Struct)));
}

/// A struct that is read, without what a newer header may have added.
template <class Struct>
Struct known_part(const char* what, const Struct& given) {
  check_size(what, given);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  if (!std::all_of(bytes + sizeof(Struct), bytes + given.size, [](unsigned char byte) { return byte == 0; })) {
    fail(std::string(what) +
         " has fields that version " TILEMAMBA_VERSION " of the library does not know, beyond its first " +
         std::to_string(sizeof(Struct)) + " bytes; they must be zero");
  }
  return given;
}

/// Fills in a struct of the caller's, whose size the caller has set.
template <class Struct>
void fill(const char* what, Struct* to, Struct values) {
  check_pointer(what, to);
  check_size(what, *to);
  values.size = to->size;
  std::memcpy(to, &values, sizeof(Struct));
}

template <class List>
const auto& entry(const char* what, const List& list, std::size_t index) {
  if (index < list.size()) return list[index];
  fail(std::string("there is no ") + what + " " + std::to_string(index) + "; the list has " +
       std::to_string(list.size()) + ", counted from 0");
}

template <class Enum>
Enum enumerator(const std::string& what, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    fail(what + " is " + std::to_string(value) + "; tilemamba.h has the values 0 to " +
         std::to_string(static_cast<std::int32_t>(last)));
  }
  return static_cast<Enum>(value);
}

bool flag(const char* what, std::int32_t value) {
  if (value != 0 && value != 1) fail(std::string(what) + " is " + std::to_string(value) + "; it must be 0 or 1");
  return value == 1;
}

MutableTensor tensor_of(const std::string& name, const tilemamba_tensor& given, bool planning) {
  const tilemamba_tensor t = known_part("tilemamba_tensor", given);
  MutableTensor tensor;
  tensor.dtype = enumerator(name + ".dtype", t.dtype, DType::i32);
  tensor.rank = t.rank;
  std::copy_n(t.shape, max_rank, tensor.shape.begin());
  std::copy_n(t.strides, max_rank, tensor.strides.begin());
  tensor.device = {enumerator(name + ".device_kind", t.device_kind, DeviceKind::hip), t.device_index};
  // A plan depends on no address. Any that is there and aligned will do for the checks.
  tensor.data = planning ? reinterpret_cast<void*>(alignof(std::max_align_t)) : t.data;
  return tensor;
}

Arguments arguments_of(const tilemamba_arguments* given, bool planning = false) {
  check_pointer("tilemamba_arguments", given);
  const tilemamba_arguments a = known_part("tilemamba_arguments", *given);
  const auto required = [&](const char* name, const tilemamba_tensor* tensor) {
    check_pointer(name, tensor);
    return tensor_of(name, *tensor, planning);
  };
  const auto optional = [&](const char* name, const tilemamba_tensor* tensor, auto& to) {
    if (tensor != nullptr) to = tensor_of(name, *tensor, planning);
  };
  Arguments result;
  result.x = required("x", a.x);
  result.dt = required("dt", a.dt);
  result.A = required("A", a.A);
  result.B = required("B", a.B);
  result.C = required("C", a.C);
  result.y = required("y", a.y);
  optional("D", a.D, result.D);
  optional("z", a.z, result.z);
  optional("dt_bias", a.dt_bias, result.dt_bias);
  optional("initial_states", a.initial_states, result.initial_states);
  optional("seq_idx", a.seq_idx, result.seq_idx);
  optional("cu_seqlens", a.cu_seqlens, result.cu_seqlens);
  optional("final_states", a.final_states, result.final_states);
  optional("chunk_states", a.chunk_states, result.chunk_states);
  return result;
}

Options options_of(const tilemamba_options* given) {
  if (given == nullptr) return {};
  const tilemamba_options o = known_part("tilemamba_options", *given);
  return {.dt_softplus = flag("dt_softplus", o.dt_softplus),
          .dt_min = o.dt_min,
          .dt_max = o.dt_max,
          .chunk_size = o.chunk_size,
          .chunk_states_every = o.chunk_states_every,
          .batch_invariant = flag("batch_invariant", o.batch_invariant),
          .allow_tf32 = flag("allow_tf32", o.allow_tf32)};
}

Choice choice_of(const tilemamba_choice* given) {
  if (given == nullptr) return {};
  const tilemamba_choice c = known_part("tilemamba_choice", *given);
  const auto text = [](const char* string) { return string == nullptr ? "" : string; };
  return {text(c.backend), enumerator("schedule", c.schedule, Schedule::recurrent), text(c.policy)};
}

}  // namespace
}  // namespace tilemamba

using namespace tilemamba;

const char* tilemamba_version(void) { return TILEMAMBA_VERSION; }

const char* tilemamba_last_error(void) { return last_error_text; }

tilemamba_status tilemamba_scan(const tilemamba_arguments* arguments, const tilemamba_options* options,
                                const tilemamba_choice* choice, void* stream) {
  return guarded([&] { scan(arguments_of(arguments), options_of(options), choice_of(choice), stream); });
}

tilemamba_status tilemamba_validate(const tilemamba_arguments* arguments, const tilemamba_options* options) {
  return guarded([&] { validate(arguments_of(arguments), options_of(options)); });
}

tilemamba_status tilemamba_plan_create(tilemamba_plan** plan, const tilemamba_arguments* arguments,
                                       const tilemamba_options* options, const tilemamba_choice* choice) {
  return guarded([&] {
    check_pointer("plan", plan);
    *plan = nullptr;
    Plan made(Problem::of(arguments_of(arguments, true), options_of(options)), choice_of(choice));
    std::string backend(made.backend());
    std::string policy(made.policy());
    *plan = new tilemamba_plan{std::move(made), std::move(backend), std::move(policy)};
  });
}

void tilemamba_plan_destroy(tilemamba_plan* plan) { delete plan; }

tilemamba_status tilemamba_plan_query(const tilemamba_plan* plan, tilemamba_plan_info* info) {
  return guarded([&] {
    check_pointer("plan", plan);
    fill("tilemamba_plan_info", info,
         {0, plan->backend.c_str(), plan->policy.c_str(), static_cast<tilemamba_schedule>(plan->plan.schedule()),
          plan->plan.workspace_bytes()});
  });
}

tilemamba_status tilemamba_plan_execute(const tilemamba_plan* plan, const tilemamba_arguments* arguments,
                                        void* workspace, size_t workspace_bytes, void* stream) {
  return guarded([&] {
    check_pointer("plan", plan);
    plan->plan.execute(arguments_of(arguments), workspace, workspace_bytes, stream);
  });
}

tilemamba_status tilemamba_backend_list_create(tilemamba_backend_list** list) {
  return guarded([&] {
    check_pointer("list", list);
    *list = nullptr;
    auto made = std::make_unique<tilemamba_backend_list>();
    made->backends = backends();
    for (const BackendInfo& backend : made->backends) {
      auto& devices = made->devices.emplace_back();
      for (const std::string& device : backend.devices) devices.push_back(device.c_str());
    }
    *list = made.release();
  });
}

void tilemamba_backend_list_destroy(tilemamba_backend_list* list) { delete list; }

size_t tilemamba_backend_list_count(const tilemamba_backend_list* list) { return list->backends.size(); }

tilemamba_status tilemamba_backend_list_query(const tilemamba_backend_list* list, size_t index,
                                              tilemamba_backend_info* info) {
  return guarded([&] {
    check_pointer("list", list);
    const BackendInfo& backend = entry("backend", list->backends, index);
    const auto& devices = list->devices[index];
    fill("tilemamba_backend_info", info,
         {0, backend.name.c_str(), backend.family.c_str(), backend.reason.c_str(), backend.can_run ? 1 : 0,
          devices.size(), devices.data()});
  });
}

tilemamba_status tilemamba_candidate_list_create(tilemamba_candidate_list** list, const tilemamba_arguments* arguments,
                                                 const tilemamba_options* options) {
  return guarded([&] {
    check_pointer("list", list);
    *list = nullptr;
    *list = new tilemamba_candidate_list{candidates(Problem::of(arguments_of(arguments, true), options_of(options)))};
  });
}

void tilemamba_candidate_list_destroy(tilemamba_candidate_list* list) { delete list; }

size_t tilemamba_candidate_list_count(const tilemamba_candidate_list* list) { return list->candidates.size(); }

tilemamba_status tilemamba_candidate_list_query(const tilemamba_candidate_list* list, size_t index,
                                                tilemamba_candidate* candidate) {
  return guarded([&] {
    check_pointer("list", list);
    const Candidate& found = entry("candidate", list->candidates, index);
    fill("tilemamba_candidate", candidate,
         {0, found.backend.c_str(), found.policy.c_str(), found.refusal.c_str(),
          static_cast<tilemamba_schedule>(found.schedule), found.is_default ? 1 : 0, found.workspace_bytes});
  });
}
