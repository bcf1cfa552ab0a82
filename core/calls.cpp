// SPDX-License-Identifier: Apache-2.0
#include "core/calls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "core/reference.hpp"

namespace tilemamba::calls {
namespace {

// Elements of poison before and after each block: more than the widest tile row that a backend could overrun by.
constexpr std::int64_t guard = 1024;

/// A NaN that no computation makes, as bytes of one element.
std::array<std::byte, 4> poison_of(DType dtype) {
  const std::uint32_t pattern = dtype == DType::f16 ? 0x7e5au : dtype == DType::bf16 ? 0x7fdau : 0x7fc5a5a5u;
  std::array<std::byte, 4> bytes{};
  std::memcpy(bytes.data(), &pattern, sizeof pattern);  // little endian: a 16-bit pattern comes first
  return bytes;
}

/// Calls visit(offset in elements) for every element in dense order.
template <typename Visit>
void for_each_element(const Layout& layout, const Visit& visit) {
  const std::int64_t count = size(layout);
  Extents index{};
  std::int64_t offset = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    visit(offset);
    for (int d = layout.rank - 1; d >= 0; --d) {
      offset += layout.strides[d];
      if (++index[d] < layout.shape[d]) break;
      offset -= index[d] * layout.strides[d];
      index[d] = 0;
    }
  }
}

Extents extents(const std::vector<std::int64_t>& values) {
  Extents all{};
  std::copy(values.begin(), values.end(), all.begin());
  return all;
}

double silu(double value) { return value / (1.0 + std::exp(-value)); }
double softplus(double value) { return std::log1p(std::exp(value)); }

void fill(const MutableTensor& tensor, const std::function<double()>& value) {
  for_each_element(tensor, [&](std::int64_t offset) { reference::store(tensor.dtype, tensor.data, offset, value()); });
}

}  // namespace

std::uint64_t Random::bits() {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
double Random::uniform(double low, double high) {
  return low + (high - low) * std::ldexp(static_cast<double>(bits() >> 11), -53);
}
double Random::normal() {  // Box and Muller; one of the pair is enough
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}
std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

Spec& Spec::pack(std::vector<std::int64_t> sequence_lengths) {
  batch = 1;
  tokens = std::accumulate(sequence_lengths.begin(), sequence_lengths.end(), std::int64_t{0});
  lengths = std::move(sequence_lengths);
  return *this;
}

Spec& Spec::type(DType dtype) {
  x = dt = y = dtype;
  return *this;
}

std::ostream& operator<<(std::ostream& out, const Spec& s) {
  const auto type = [](const std::optional<DType>& dtype) {
    return dtype ? std::string(name(*dtype)) : std::string("none");
  };
  out << "B " << s.batch << ", T " << s.tokens << ", H " << s.heads << ", P " << s.head_dim << ", G " << s.groups
      << ", N " << s.state << ", x " << name(s.x) << ", dt " << name(s.dt) << ", y " << name(s.y) << ", D "
      << (s.skip == SkipForm::none       ? "none"
          : s.skip == SkipForm::per_head ? "(H) "
                                         : "(H,P) ")
      << (s.skip == SkipForm::none ? "" : name(s.D)) << ", dt_bias " << type(s.dt_bias) << ", initial_states "
      << type(s.initial_states) << ", final_states " << type(s.final_states) << ", chunk_states "
      << type(s.chunk_states) << " every " << s.options.chunk_states_every << (s.z ? ", z" : "")
      << (s.options.dt_softplus ? ", softplus" : "") << ", dt_limit [" << s.options.dt_min << ", " << s.options.dt_max
      << "], chunk_size " << s.options.chunk_size << (s.options.batch_invariant ? ", batch_invariant" : "")
      << ", new document " << s.new_document << ", decay "
      << (s.decay == Decay::published ? "published"
          : s.decay == Decay::slow    ? "slow"
                                      : "strong")
      << ", memory "
      << (s.memory == Memory::dense        ? "dense"
          : s.memory == Memory::one_buffer ? "one buffer"
                                           : "scattered");
  if (s.lengths) {
    out << ", packed";
    for (const std::int64_t length : *s.lengths) out << ' ' << length;
  }
  return out << ", seed " << s.seed;
}

std::string to_string(const Spec& spec) {
  std::ostringstream out;
  out << spec;
  return out.str();
}

// ------------------------------------------------------------------------------------------------------------- memory

struct Arena::Block {
  DType dtype{};
  std::int64_t elements = 0;  // guard zones not counted
  std::vector<std::byte> storage;
  std::byte* begin = nullptr;     // of the first guard zone, aligned
  std::vector<std::byte> frozen;  // the block as it was when `freeze` was called
  std::vector<bool> written_to;   // elements that belong to an output

  [[nodiscard]] std::int64_t bytes() const {
    return (elements + 2 * guard) * static_cast<std::int64_t>(size_of(dtype));
  }
  [[nodiscard]] std::byte* first() const { return begin + guard * static_cast<std::int64_t>(size_of(dtype)); }
  [[nodiscard]] bool holds(const void* data) const { return data >= begin && data < begin + bytes(); }
};

Arena::Block& Arena::allocate(DType dtype, std::int64_t elements) {
  auto block = std::make_shared<Block>();
  block->dtype = dtype;
  block->elements = elements;
  constexpr std::size_t alignment = 256;  // what an allocator of a framework gives
  block->storage.resize(static_cast<std::size_t>(block->bytes()) + alignment);
  void* start = block->storage.data();
  std::size_t space = block->storage.size();
  block->begin = static_cast<std::byte*>(std::align(alignment, block->bytes(), start, space));
  const auto poison = poison_of(dtype);
  for (std::int64_t k = 0; k < block->bytes(); k += static_cast<std::int64_t>(size_of(dtype))) {
    std::memcpy(block->begin + k, poison.data(), size_of(dtype));
  }
  blocks_.push_back(block);
  return *block;
}

MutableTensor Arena::tensor(DType dtype, const std::vector<std::int64_t>& shape, Random* scatter, bool repeatable) {
  MutableTensor tensor;
  tensor.dtype = dtype;
  tensor.rank = static_cast<int>(shape.size());
  tensor.shape = extents(shape);
  // The dimensions from the innermost out; the last dimension stays innermost and contiguous.
  std::vector<int> order(shape.size());
  for (int d = 0; d < tensor.rank; ++d) order[d] = tensor.rank - 1 - d;
  if (scatter != nullptr) {
    for (int d = tensor.rank - 1; d > 1; --d) std::swap(order[d], order[scatter->integer(1, d)]);
  }
  std::int64_t extent = 1;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const int d = order[k];
    if (k > 0 && scatter != nullptr) extent += scatter->one_of<std::int64_t>({0, 0, 1, 7, 64});
    const bool repeat = k > 0 && scatter != nullptr && repeatable && scatter->chance(0.15);
    tensor.strides[d] = repeat ? 0 : extent;
    if (!repeat) extent *= std::max<std::int64_t>(shape[d], 1);
  }
  const std::int64_t offset = scatter == nullptr ? 0 : scatter->one_of<std::int64_t>({0, 1, 5});
  const Block& block = allocate(dtype, offset + extent);
  tensor.data = block.first() + offset * static_cast<std::int64_t>(size_of(dtype));
  return tensor;
}

std::vector<MutableTensor> Arena::columns(DType dtype, std::vector<std::int64_t> shape,
                                          const std::vector<std::int64_t>& widths, std::int64_t gap) {
  shape.push_back(std::accumulate(widths.begin(), widths.end(), gap));
  const MutableTensor whole = tensor(dtype, shape);
  std::vector<MutableTensor> all;
  std::int64_t begin = 0;
  for (const std::int64_t width : widths) {
    all.push_back(slice(whole, whole.rank - 1, begin, width));
    begin += width;
  }
  return all;
}

void Arena::poison(const MutableTensor& tensor) {
  const auto pattern = poison_of(tensor.dtype);
  const std::size_t width = size_of(tensor.dtype);
  auto* const data = static_cast<std::byte*>(tensor.data);
  for_each_element(tensor, [&](std::int64_t offset) {
    std::memcpy(data + offset * static_cast<std::int64_t>(width), pattern.data(), width);
  });
}

void Arena::freeze(const std::vector<MutableTensor>& outputs) {
  for (const auto& block : blocks_) {
    block->frozen.assign(block->begin, block->begin + block->bytes());
    block->written_to.assign(static_cast<std::size_t>(block->elements + 2 * guard), false);
    for (const MutableTensor& output : outputs) {
      if (!block->holds(output.data)) continue;
      const std::int64_t first =
          (static_cast<std::byte*>(output.data) - block->begin) / static_cast<std::int64_t>(size_of(block->dtype));
      for_each_element(output, [&](std::int64_t offset) { block->written_to[first + offset] = true; });
    }
  }
}

std::string Arena::damage() const {
  for (const auto& block : blocks_) {
    const auto width = static_cast<std::int64_t>(size_of(block->dtype));
    if (block->frozen.empty()) continue;
    for (std::int64_t k = 0; k < block->elements + 2 * guard; ++k) {
      if (block->written_to[k] || std::memcmp(block->begin + k * width, block->frozen.data() + k * width, width) == 0)
        continue;
      std::ostringstream out;
      out << "element " << k - guard << " of a block of " << block->elements << ' ' << name(block->dtype)
          << " that is no element of an output was written to";
      return out.str();
    }
  }
  return {};
}

// ------------------------------------------------------------------------------------------------------------- a call

Call::Call(const Spec& s) : spec(s), options(s.options) {
  Random random(s.seed ^ 0x5bd1e995u), scatter(s.seed + 17);
  Random* const how = s.memory == Memory::scattered ? &scatter : nullptr;
  const std::int64_t B = s.batch, T = s.tokens, H = s.heads, P = s.head_dim, G = s.groups, N = s.state;
  const std::int64_t sequences = s.lengths ? static_cast<std::int64_t>(s.lengths->size()) : B;
  const auto normal = [&] { return random.normal(); };
  const auto activated = [&] { return silu(random.normal()); };

  MutableTensor x, b, c;
  if (s.memory == Memory::one_buffer) {
    const auto views = arena_.columns(s.x, {B, T}, {H * P, G * N, G * N}, 3);
    const auto split = [](const MutableTensor& view, std::int64_t outer, std::int64_t inner) {
      MutableTensor tensor = view;
      tensor.rank = 4;
      tensor.shape = {view.shape[0], view.shape[1], outer, inner};
      tensor.strides = {view.strides[0], view.strides[1], inner, 1};
      return tensor;
    };
    x = split(views[0], H, P), b = split(views[1], G, N), c = split(views[2], G, N);
  } else {
    x = arena_.tensor(s.x, {B, T, H, P}, how, true);
    b = arena_.tensor(s.x, {B, T, G, N}, how, true);
    c = arena_.tensor(s.x, {B, T, G, N}, how, true);
  }
  const MutableTensor dt = arena_.tensor(s.dt, {B, T, H}, how, true), A = arena_.tensor(DType::f32, {H});
  for (const MutableTensor& tensor : {x, b, c}) fill(tensor, activated);

  // The published distribution has softplus behind it; where the call applies softplus itself, dt comes before it.
  const auto delta = [&] { return s.options.dt_softplus ? random.normal() : softplus(random.normal()); };
  for (std::int64_t h = 0; h < H; ++h) {
    // softplus(randn) is about 0.8 and below 5: A dt is at most 1e-4, or about 0.02, or as published.
    const double slow = h % 2 == 0 ? random.uniform(0.1e-4, 0.2e-4) : random.uniform(0.01, 0.04);
    const double rate = s.decay == Decay::published ? random.uniform(1, 16) : s.decay == Decay::slow ? slow : 16.0;
    reference::store(DType::f32, A.data, h, -rate);
  }
  fill(dt, [&] { return s.decay == Decay::strong ? random.uniform(0, 10) : delta(); });
  arguments.x = x, arguments.dt = dt, arguments.A = A, arguments.B = b, arguments.C = c;

  if (s.skip != SkipForm::none) {
    const bool per_head = s.skip == SkipForm::per_head;
    const MutableTensor D = per_head ? arena_.tensor(s.D, {H}) : arena_.tensor(s.D, {H, P}, how, true);
    fill(D, normal);
    arguments.D = D;
  }
  if (s.z) {
    const MutableTensor z = arena_.tensor(s.x, {B, T, H, P}, how, true);
    fill(z, normal);
    arguments.z = z;
  }
  if (s.dt_bias) {
    const MutableTensor bias = arena_.tensor(*s.dt_bias, {H});
    fill(bias, [&] { return random.uniform(0, 0.5); });
    arguments.dt_bias = bias;
  }
  if (s.initial_states) {
    const MutableTensor states = arena_.tensor(*s.initial_states, {sequences, H, P, N}, how, true);
    fill(states, normal);
    arguments.initial_states = states;
  }
  if (s.new_document > 0) {
    const MutableTensor seq_idx = arena_.tensor(DType::i32, {B, T}, how, true);
    // Ids need not start at 0, nor rise: only a change counts.
    double id = static_cast<double>(random.integer(-3, 3));
    fill(seq_idx, [&] { return id += random.chance(s.new_document) ? random.one_of({1.0, 2.0, -1.0}) : 0.0; });
    arguments.seq_idx = seq_idx;
  }
  std::int64_t chunk_states = 0;
  if (s.lengths) {
    const MutableTensor cu_seqlens = arena_.tensor(DType::i32, {sequences + 1});
    std::int64_t end = 0;
    for (std::int64_t k = 0; k <= sequences; ++k) {
      reference::store(DType::i32, cu_seqlens.data, k, static_cast<double>(end));
      if (k == sequences) break;
      end += (*s.lengths)[k];
      if (options.chunk_states_every > 0) chunk_states += (*s.lengths)[k] / options.chunk_states_every;
    }
    arguments.cu_seqlens = cu_seqlens;
  }

  arguments.y = arena_.tensor(s.y, {B, T, H, P}, how);
  if (s.final_states) arguments.final_states = arena_.tensor(*s.final_states, {sequences, H, P, N}, how);
  if (s.chunk_states) {
    const auto shape = s.lengths ? std::vector<std::int64_t>{chunk_states, H, P, N}
                                 : std::vector<std::int64_t>{B, T / options.chunk_states_every, H, P, N};
    arguments.chunk_states = arena_.tensor(*s.chunk_states, shape, how);
  }
  prepare();
}

void Call::prepare() {
  std::vector<MutableTensor> outputs{arguments.y};
  if (arguments.final_states) outputs.push_back(*arguments.final_states);
  if (arguments.chunk_states) outputs.push_back(*arguments.chunk_states);
  for (const MutableTensor& output : outputs) arena_.poison(output);
  arena_.freeze(outputs);
}

bool Call::outputs_untouched() const {
  std::vector<MutableTensor> outputs{arguments.y};
  if (arguments.final_states) outputs.push_back(*arguments.final_states);
  if (arguments.chunk_states) outputs.push_back(*arguments.chunk_states);
  return std::all_of(outputs.begin(), outputs.end(), [](const MutableTensor& output) {
    const auto pattern = poison_of(output.dtype);
    const std::vector<std::byte> all = bits(output);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k] != pattern[k % size_of(output.dtype)]) return false;
    }
    return true;
  });
}

// ----------------------------------------------------------------------------------------------------- what is right

golden::Answers answers_of(const reference::Answer& answer, const Arguments& arguments) {
  golden::Answers answers;
  answers.y = answer.y;
  if (arguments.final_states) answers.final_states = answer.final_states;
  if (arguments.chunk_states) answers.chunk_states = answer.chunk_states;
  return answers;
}

Expected expected_of(const Arguments& arguments, const Options& options) {
  Expected expected;
  expected.right = answers_of(reference::recurrence(arguments, options), arguments);
  // 64 is the chunk length of the rule. A backend's may be as short as 16: then the state is narrowed more often, which
  // shows where nothing else is (y in float, or a call that is one chunk of 64).
  const Problem problem = Problem::of(arguments, options);
  for (const std::int64_t chunk : {64, 16}) {
    const golden::Answers narrow = answers_of(reference::chunked(arguments, options, chunk), arguments);
    const golden::Bars bars = golden::bars_from(golden::measure(problem, narrow, expected.right), arguments.x.dtype);
    expected.bars.out = std::max(expected.bars.out, bars.out);
    expected.bars.block = std::max(expected.bars.block, bars.block);
    expected.bars.state = std::max(expected.bars.state, bars.state);
    expected.row = std::max(expected.row, 1.5 * golden::compare(problem, narrow, expected.right, bars).row.value);
  }
  return expected;
}

golden::Shares shares_of(const Arguments& arguments, const Options& options, const Expected& expected) {
  golden::Shares shares =
      golden::compare(Problem::of(arguments, options), golden::gather(arguments), expected.right, expected.bars);
  shares.row.value /= expected.row;
  return shares;
}

// ------------------------------------------------------------------------------------------------------------ tensors

MutableTensor slice(const MutableTensor& tensor, int dimension, std::int64_t begin, std::int64_t count) {
  if (begin < 0 || count < 0 || begin + count > tensor.shape[dimension]) throw std::logic_error("slice: out of range");
  MutableTensor part = tensor;
  part.shape[dimension] = count;
  part.data = static_cast<std::byte*>(tensor.data) +
              begin * tensor.strides[dimension] * static_cast<std::int64_t>(size_of(tensor.dtype));
  return part;
}
Tensor slice(const Tensor& tensor, int dimension, std::int64_t begin, std::int64_t count) {
  return slice(writable(tensor), dimension, begin, count);
}

Arguments tokens_of(const Arguments& arguments, std::int64_t row, std::int64_t begin, std::int64_t count) {
  const auto cut = [&](const Tensor& tensor) { return slice(slice(tensor, 0, row, 1), 1, begin, count); };
  Arguments part;
  part.x = cut(arguments.x), part.dt = cut(arguments.dt), part.A = arguments.A;
  part.B = cut(arguments.B), part.C = cut(arguments.C), part.D = arguments.D, part.dt_bias = arguments.dt_bias;
  if (arguments.z) part.z = cut(*arguments.z);
  if (arguments.seq_idx) part.seq_idx = cut(*arguments.seq_idx);
  return part;
}

std::int64_t size(const Layout& layout) {
  std::int64_t count = 1;
  for (int d = 0; d < layout.rank; ++d) count *= layout.shape[d];
  return count;
}

std::vector<std::byte> bits(const Tensor& tensor) {
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::vector<std::byte> all(static_cast<std::size_t>(size(tensor) * width));
  std::byte* to = all.data();
  const auto* const data = static_cast<const std::byte*>(tensor.data);
  for_each_element(tensor, [&](std::int64_t offset) {
    std::memcpy(to, data + offset * width, static_cast<std::size_t>(width));
    to += width;
  });
  return all;
}

void copy(const Tensor& from, const MutableTensor& to) {
  const std::vector<double> all = reference::values(from);
  auto value = all.begin();
  for_each_element(to, [&](std::int64_t offset) { reference::store(to.dtype, to.data, offset, *value++); });
}

MutableTensor writable(const Tensor& tensor) {
  return MutableTensor{static_cast<const Layout&>(tensor), const_cast<void*>(tensor.data)};  // tests own what they pass
}

void set_at(const Tensor& tensor, double value, std::initializer_list<std::int64_t> coordinates) {
  std::int64_t offset = 0;
  int dimension = 0;
  for (const std::int64_t coordinate : coordinates) offset += coordinate * tensor.strides[dimension++];
  reference::store(tensor.dtype, writable(tensor).data, offset, value);
}

}  // namespace tilemamba::calls
