// SPDX-License-Identifier: Apache-2.0
// The extension under the Python package: arrays in, C++ calls, errors out. What can be said in Python is in
// python/tilemamba/.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace nb = nanobind;
using namespace nb::literals;

namespace tilemamba {
namespace {

std::string text(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

[[noreturn]] void type_error(const std::string& message) { throw nb::type_error(message.c_str()); }

// ------------------------------------------------------------------------------------------------------------- arrays

/// The types of elements, as Python's frameworks call them.
struct NamedDType {
  const char* name;
  DType dtype;
  nb::dlpack::dtype_code code;
  int bits;
};
constexpr std::array<NamedDType, 4> dtypes{{{"float32", DType::f32, nb::dlpack::dtype_code::Float, 32},
                                            {"float16", DType::f16, nb::dlpack::dtype_code::Float, 16},
                                            {"bfloat16", DType::bf16, nb::dlpack::dtype_code::Bfloat, 16},
                                            {"int32", DType::i32, nb::dlpack::dtype_code::Int, 32}}};

[[noreturn]] void refuse_dtype(const char* name, const std::string& dtype) {
  type_error(std::string(name) + " has dtype " + dtype + "; it must be float32, float16, bfloat16 or int32");
}

[[noreturn]] void refuse_device(const char* name, const std::string& device) {
  type_error(std::string(name) + " is on " + device + "; it must be on the CPU or on a GPU of CUDA or ROCm");
}

/// Extents beyond max_rank are left out: no tensor may have so many, and the library says so.
template <class At>
void set_extents(MutableTensor& tensor, std::size_t rank, At&& at) {
  tensor.rank = static_cast<int>(rank);
  for (std::size_t d = 0; d < std::min(rank, std::size_t{max_rank}); ++d)
    std::tie(tensor.shape[d], tensor.strides[d]) = at(d);
}

// What PyTorch (from 2.10 on) and others show of DLPack's C interface, version 1: dlpack.h's DLPackExchangeAPI.
struct ManagedTensor {
  std::uint32_t major, minor;
  void* owner;
  void (*release)(ManagedTensor* self);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
struct ExchangeFunctions {
  using SayWhy = void (*)(void* context, const char* kind, const char* message);
  std::uint32_t major, minor;
  const ExchangeFunctions* previous;  ///< of an older major version
  int (*allocate)(const nb::dlpack::dltensor* like, ManagedTensor** made, void* context, SayWhy say_why);
  void* managed_from_object;
  int (*to_object)(ManagedTensor* given, void** object);      ///< not 0: a Python error is set
  int (*borrow)(void* object, nb::dlpack::dltensor* tensor);  ///< not 0: a Python error is set
  int (*current_stream)(int device_type, std::int32_t device, void** stream);
};

/// Null if the type shows none.
const ExchangeFunctions* exchange_functions_of(const nb::object& type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  const auto* found = static_cast<const ExchangeFunctions*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (found != nullptr && found->major != 1) found = found->previous;
  return found == nullptr || found->borrow == nullptr ? nullptr : found;
}

/// A name that Python need not make again for each look-up.
nb::object interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

/// What is asked of PyTorch, in a program that has loaded it.
struct Torch {
  nb::object tensor;
  std::array<nb::object, dtypes.size()> dtype_of;
  DeviceKind gpu = DeviceKind::cuda;
  const ExchangeFunctions* functions = nullptr;
  // Attributes of tensors, for versions without the functions.
  nb::object dtype = interned("dtype"), shape = interned("shape"), stride = interned("stride"),
             data_ptr = interned("data_ptr"), is_cuda = interned("is_cuda"), is_cpu = interned("is_cpu"),
             get_device = interned("get_device");
};

const Torch* torch() {
  // Never destroyed: the interpreter may be gone by then.
  static const Torch* found = nullptr;
  static PyObject* const modules = nb::module_::import_("sys").attr("modules").inc_ref().ptr();
  if (found != nullptr) return found;
  const nb::object module = nb::borrow(PyDict_GetItemString(modules, "torch"));
  if (!module.is_valid() || !nb::hasattr(module, "Tensor")) return nullptr;
  auto* made = new Torch{module.attr("Tensor"), {}};
  if (!module.attr("version").attr("hip").is_none()) made->gpu = DeviceKind::hip;
  for (std::size_t i = 0; i < dtypes.size(); ++i) made->dtype_of[i] = module.attr(dtypes[i].name);
  made->functions = exchange_functions_of(made->tensor);
  return found = made;
}

/// Reads the arrays of one call, of any framework, and keeps alive what they need.
class Arrays {
 public:
  MutableTensor read(const char* name, const nb::object& object, bool is_output = false) {
    return is_torch(object) ? read_torch(name, object) : read_dlpack(name, object, is_output);
  }

  /// The current stream of the framework that `like` comes from. @param framework one of
  /// python/tilemamba/_frameworks.py.
  void* stream(const nb::object& like, const Device& device, const nb::object& framework) const {
    void* stream = nullptr;
    if (device.kind == DeviceKind::cpu) return stream;
    if (!is_torch(like) || torch_->functions == nullptr || torch_->functions->current_stream == nullptr) {
      return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(framework.attr("stream")(like)));
    }
    if (torch_->functions->current_stream(dlpack_kind(device), device.index, &stream) != 0) throw nb::python_error();
    return stream;
  }

  /// Memory on the device of `like`, for work on the current stream. Null: the framework has none to give.
  void* workspace(std::size_t bytes, const nb::object& like, const Device& device, const nb::object& framework) {
    auto count = static_cast<std::int64_t>((bytes + 3) / 4);
    if (device.kind == DeviceKind::cpu || !can_allocate(like)) {
      made_ = framework.attr("workspace")(like, count);
      return made_.is_none() ? nullptr : read("the workspace", made_, true).data;
    }
    memory_ = allocate("a workspace", device, nb::dtype<std::int32_t>(), 1, &count);
    return static_cast<std::byte*>(memory_->tensor.data) + memory_->tensor.byte_offset;
  }

  /// A new array on the device of `like`. @param dtype a name or the framework's own; None: as `like`.
  nb::object make(const char* name, const nb::object& like, const Tensor& its, const nb::object& dtype,
                  std::array<std::int64_t, 4> shape, const nb::object& framework) {
    const NamedDType* const known = can_allocate(like) ? known_dtype(dtype, its.dtype) : nullptr;
    if (known == nullptr || its.rank != 4) {
      return dtype.is_none()
                 ? framework.attr("empty_like")(like)
                 : framework.attr("empty")(nb::make_tuple(shape[0], shape[1], shape[2], shape[3]), dtype, like);
    }
    const nb::dlpack::dtype type{static_cast<std::uint8_t>(known->code), static_cast<std::uint8_t>(known->bits), 1};
    Memory memory = allocate(name, its.device, type, 4, shape.data());
    void* object = nullptr;
    if (torch_->functions->to_object(memory.get(), &object) != 0) throw nb::python_error();
    (void)memory.release();  // the object's now
    return nb::steal(static_cast<PyObject*>(object));
  }

 private:
  struct Release {
    void operator()(ManagedTensor* managed) const {
      if (managed->release != nullptr) managed->release(managed);
    }
  };
  using Memory = std::unique_ptr<ManagedTensor, Release>;

  static int dlpack_kind(const Device& device) {
    switch (device.kind) {
      case DeviceKind::hip:
        return nb::device::rocm::value;
      case DeviceKind::cuda:
        return nb::device::cuda::value;
      default:
        return nb::device::cpu::value;
    }
  }
  [[nodiscard]] bool can_allocate(const nb::object& like) const {
    return is_torch(like) && torch_->functions != nullptr && torch_->functions->allocate != nullptr &&
           torch_->functions->to_object != nullptr;
  }
  [[nodiscard]] Memory allocate(const char* name, const Device& device, nb::dlpack::dtype dtype, int rank,
                                std::int64_t* shape) const {
    const nb::dlpack::dltensor wanted{nullptr, {dlpack_kind(device), device.index}, rank, dtype, shape, nullptr, 0};
    std::string why;
    const auto say_why = [](void* context, const char*, const char* message) {
      *static_cast<std::string*>(context) = message;
    };
    ManagedTensor* made = nullptr;
    if (torch_->functions->allocate(&wanted, &made, &why, say_why) != 0) {
      PyErr_Clear();
      std::uint64_t bytes = dtype.bits / 8;
      bool fits = true;
      for (int d = 0; d < rank; ++d)
        fits = !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(shape[d]), &bytes) && fits;
      const std::string size = fits ? std::to_string(bytes) : "more than 2^64";
      throw Error(ErrorCode::out_of_memory, std::string(name) + " of " + size + " bytes: " + why);
    }
    return Memory(made);
  }
  /// Null: a stranger. @param same what None stands for
  [[nodiscard]] const NamedDType* known_dtype(const nb::object& dtype, DType same) const {
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      const bool is_it = dtype.is_none()
                             ? dtypes[i].dtype == same
                             : dtype.is(torch_->dtype_of[i]) ||
                                   (nb::isinstance<nb::str>(dtype) && nb::cast<std::string>(dtype) == dtypes[i].name);
      if (is_it) return &dtypes[i];
    }
    return nullptr;
  }
  [[nodiscard]] bool is_torch(const nb::object& object) const {
    return torch_ != nullptr &&
           PyType_IsSubtype(Py_TYPE(object.ptr()), reinterpret_cast<PyTypeObject*>(torch_->tensor.ptr())) != 0;
  }

  /// A tensor's __dlpack__ is Python code that costs more than a whole call may.
  MutableTensor read_torch(const char* name, const nb::object& object) const {
    const Torch& torch = *torch_;
    MutableTensor tensor;
    nb::dlpack::dltensor borrowed{};
    if (torch.functions != nullptr) {
      if (torch.functions->borrow(object.ptr(), &borrowed) == 0) return described(name, object, borrowed);
      PyErr_Clear();  // what follows finds out what is wrong with it
    }
    const nb::object dtype = object.attr(torch.dtype);
    const auto* known = std::find_if(torch.dtype_of.begin(), torch.dtype_of.end(),
                                     [&](const nb::object& candidate) { return candidate.is(dtype); });
    if (known == torch.dtype_of.end()) refuse_dtype(name, text(dtype));
    tensor.dtype = dtypes[static_cast<std::size_t>(known - torch.dtype_of.begin())].dtype;
    if (nb::cast<bool>(object.attr(torch.is_cuda))) {
      tensor.device = {torch.gpu, nb::cast<int>(object.attr(torch.get_device)())};
    } else if (!nb::cast<bool>(object.attr(torch.is_cpu))) {
      refuse_device(name, text(object.attr("device")));
    }
    const nb::tuple shape = nb::borrow<nb::tuple>(object.attr(torch.shape));
    const nb::tuple strides = nb::borrow<nb::tuple>(object.attr(torch.stride)());
    set_extents(tensor, shape.size(), [&](std::size_t d) {
      return std::pair(nb::cast<std::int64_t>(shape[d]), nb::cast<std::int64_t>(strides[d]));
    });
    tensor.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr(torch.data_ptr)()));
    return tensor;
  }

  MutableTensor read_dlpack(const char* name, const nb::object& object, bool is_output, bool bits_of_bf16 = false) {
    nb::ndarray<nb::ro> array;
    if (nb::ndarray<> writable; is_output && nb::try_cast(object, writable)) {
      array = nb::ndarray<nb::ro>(writable);
    } else if (!nb::try_cast(object, array)) {
      const nb::object dtype = nb::getattr(object, "dtype", nb::none());
      const std::string dtype_name = dtype.is_none() ? "" : text(dtype);
      // NumPy does not export the dtype that ml_dtypes adds to it, but its bits.
      if (dtype_name == "bfloat16" && nb::hasattr(object, "view"))
        return read_dlpack(name, object.attr("view")("uint16"), is_output, true);
      type_error(std::string(name) + " is a " + text(object.type().attr("__name__")) +
                 (dtype_name.empty() ? "" : " of dtype " + dtype_name) +
                 "; it must be an array that DLPack can hand over, of float32, float16, bfloat16 or int32");
    } else if (is_output) {
      throw nb::value_error((std::string(name) + " cannot be written to; it is an output").c_str());
    }
    keep_.push_back(array);

    return described(name, object,
                     {array.data_handle(),
                      {array.device_type(), array.device_id()},
                      static_cast<std::int32_t>(array.ndim()),
                      array.dtype(),
                      const_cast<std::int64_t*>(array.shape_ptr()),
                      const_cast<std::int64_t*>(array.stride_ptr()),
                      array.byte_offset()},
                     bits_of_bf16);
  }

  static MutableTensor described(const char* name, const nb::object& object, const nb::dlpack::dltensor& array,
                                 bool bits_of_bf16 = false) {
    MutableTensor tensor;
    const auto* known = std::find_if(dtypes.begin(), dtypes.end(), [&](const NamedDType& d) {
      return static_cast<std::uint8_t>(d.code) == array.dtype.code && d.bits == array.dtype.bits &&
             array.dtype.lanes == 1;
    });
    if (known == dtypes.end() && !bits_of_bf16) refuse_dtype(name, text(object.attr("dtype")));
    tensor.dtype = bits_of_bf16 ? DType::bf16 : known->dtype;
    switch (array.device.device_type) {
      case nb::device::cpu::value:
      case nb::device::cuda_host::value:
      case nb::device::rocm_host::value:
        break;
      case nb::device::cuda::value:
      case nb::device::cuda_managed::value:
        tensor.device = {DeviceKind::cuda, array.device.device_id};
        break;
      case nb::device::rocm::value:
        tensor.device = {DeviceKind::hip, array.device.device_id};
        break;
      default:
        refuse_device(name, "a device of DLPack's kind " + std::to_string(array.device.device_type));
    }
    set_extents(tensor, static_cast<std::size_t>(array.ndim),
                [&](std::size_t d) { return std::pair(array.shape[d], array.strides[d]); });
    tensor.data = static_cast<std::byte*>(array.data) + array.byte_offset;
    return tensor;
  }

  const Torch* const torch_ = torch();
  std::vector<nb::ndarray<nb::ro>> keep_;
  Memory memory_;
  nb::object made_;
};

// ------------------------------------------------------------------------------------------------------------- calls

/// @param y None: a new array as x.
/// @param final_states None or False: not asked for; True: a new array of `state_dtype`.
/// @param stream None: the current one.
/// @param framework of x, one of python/tilemamba/_frameworks.py.
/// @param check_values also those of cu_seqlens in a device's memory.
/// @returns y and the final states, or None.
nb::tuple call(const nb::object& x, const nb::object& dt, const nb::object& A, const nb::object& B, const nb::object& C,
               const nb::object& D, const nb::object& z, const nb::object& dt_bias, const nb::object& initial_states,
               const nb::object& seq_idx, const nb::object& cu_seqlens, nb::object y, nb::object final_states,
               const nb::object& state_dtype, const nb::object& chunk_states, bool dt_softplus, float dt_min,
               float dt_max, std::int64_t chunk_size, std::int64_t chunk_states_every, bool batch_invariant,
               bool allow_tf32, const std::string& backend, const std::string& schedule, const std::string& policy,
               const nb::object& stream, const nb::object& framework, bool check_values) {
  Arrays arrays;
  Arguments a;
  const auto optional = [&](const char* name, const nb::object& object, auto& to, bool is_output = false) {
    if (!object.is_none()) to = arrays.read(name, object, is_output);
  };
  a.x = arrays.read("x", x);
  a.dt = arrays.read("dt", dt);
  a.A = arrays.read("A", A);
  a.B = arrays.read("B", B);
  a.C = arrays.read("C", C);
  optional("D", D, a.D);
  optional("z", z, a.z);
  optional("dt_bias", dt_bias, a.dt_bias);
  optional("initial_states", initial_states, a.initial_states);
  optional("seq_idx", seq_idx, a.seq_idx);
  optional("cu_seqlens", cu_seqlens, a.cu_seqlens);
  if (y.is_none()) {
    const auto& shape = a.x.shape;
    y = arrays.make("y", x, a.x, nb::none(), {shape[0], shape[1], shape[2], shape[3]}, framework);
  }
  if (final_states.ptr() == Py_False) final_states = nb::none();
  if (final_states.ptr() == Py_True) {
    const std::int64_t sequences = a.cu_seqlens ? std::max<std::int64_t>(a.cu_seqlens->shape[0] - 1, 0) : a.x.shape[0];
    final_states = arrays.make("final_states", x, a.x, state_dtype,
                               {sequences, a.x.shape[2], a.x.shape[3], a.B.shape[3]}, framework);
  }
  a.y = arrays.read("y", y, true);
  optional("final_states", final_states, a.final_states, true);
  optional("chunk_states", chunk_states, a.chunk_states, true);
  const Options options{.dt_softplus = dt_softplus,
                        .dt_min = dt_min,
                        .dt_max = dt_max,
                        .chunk_size = chunk_size,
                        .chunk_states_every = chunk_states_every,
                        .batch_invariant = batch_invariant,
                        .allow_tf32 = allow_tf32};
  const Choice choice{backend, schedule_named(schedule), policy};
  void* const on_stream = stream.is_none() ? arrays.stream(x, a.x.device, framework)
                                           : reinterpret_cast<void*>(nb::cast<std::uintptr_t>(stream));

  std::optional<Plan> plan = Plan::cached(Problem::of(a, options), choice);
  void* workspace = nullptr;
  if (plan->workspace_bytes() > 0) {
    workspace = arrays.workspace(plan->workspace_bytes(), x, a.x.device, framework);
    if (workspace == nullptr) plan.reset();  // the library finds it
  }
  {
    const nb::gil_scoped_release others_may_run;
    if (check_values) validate(a, options);
    if (plan) {
      plan->execute(a, workspace, plan->workspace_bytes(), on_stream);
    } else {
      scan(a, options, choice, on_stream);
    }
  }
  return nb::make_tuple(std::move(y), std::move(final_states));
}

/// (name, family, can_run, reason, devices) of each.
nb::list list_backends() {
  nb::list result;
  for (const BackendInfo& b : backends())
    result.append(nb::make_tuple(b.name, b.family, b.can_run, b.reason, nb::cast(b.devices)));
  return result;
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyObject* type = PyExc_RuntimeError;
    switch (error.code()) {
      case ErrorCode::invalid_argument:
      case ErrorCode::unsupported:
      case ErrorCode::no_backend:
        type = PyExc_ValueError;
        break;
      case ErrorCode::out_of_memory:
        type = PyExc_MemoryError;
        break;
      default:
        break;
    }
    PyErr_SetString(type, error.what());
  }
}

}  // namespace
}  // namespace tilemamba

NB_MODULE(_core, module) {
  using namespace tilemamba;
  nb::register_exception_translator(translate);
  module.def("version", [] { return std::string(version()); });
  module.def("backends", list_backends);
  module.def("call", call, "x"_a, "dt"_a, "A"_a, "B"_a, "C"_a, "D"_a.none(), "z"_a.none(), "dt_bias"_a.none(),
             "initial_states"_a.none(), "seq_idx"_a.none(), "cu_seqlens"_a.none(), "y"_a.none(),
             "final_states"_a.none(), "state_dtype"_a.none(), "chunk_states"_a.none(), "dt_softplus"_a, "dt_min"_a,
             "dt_max"_a, "chunk_size"_a, "chunk_states_every"_a, "batch_invariant"_a, "allow_tf32"_a, "backend"_a,
             "schedule"_a, "policy"_a, "stream"_a.none(), "framework"_a, "check_values"_a);
}
