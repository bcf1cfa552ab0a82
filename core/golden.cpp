// SPDX-License-Identifier: Apache-2.0
#include "core/golden.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/tile/scalar.hpp"

namespace tilemamba::golden {
namespace {

using safetensors::in_quotes;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t block_tokens = 64;

[[noreturn]] void damaged(std::string_view source, const std::string& what) {
  throw Error(ErrorCode::damaged_file, fmt::format("{}: {}", source, what));
}

// ----------------------------------------------------------------------------------------------------------- comparing

double widened(DType dtype, const std::byte* bytes) {
  if (dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  if (dtype == DType::i32) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return dtype == DType::bf16 ? tile::from_bf16(bits) : tile::from_f16(bits);
}

/// Every element in row-major order, whatever the strides.
std::vector<double> values(const Tensor& tensor) {
  std::size_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) count *= static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(i)]);
  std::vector<double> result;
  result.reserve(count);
  Extents index{};
  while (result.size() < count) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.strides[i];
    const auto* bytes = static_cast<const std::byte*>(tensor.data);
    result.push_back(widened(tensor.dtype, bytes + offset * static_cast<std::int64_t>(size_of(tensor.dtype))));
    for (auto i = static_cast<std::size_t>(tensor.rank); i-- > 0;) {
      if (++index[i] < tensor.shape[i]) break;
      index[i] = 0;
    }
  }
  return result;
}

/// Squares summed over a part of a tensor: of the differences, and of the right values.
struct Squares {
  double error = 0;
  double right = 0;

  Squares& operator+=(const Squares& other) {
    error += other.error;
    right += other.right;
    return *this;
  }
  /// ||answer - right|| / ||right||. Where right is zero, the answer must be zero.
  [[nodiscard]] double relative() const {
    if (error == 0) return 0;
    return std::isfinite(error) && std::isfinite(right) && right > 0 ? std::sqrt(error / right) : infinity;
  }
};

Squares squares(const double* answer, const double* right, std::int64_t count) {
  Squares sum;
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = answer[i] - right[i];
    sum.error += difference * difference;
    sum.right += right[i] * right[i];
  }
  // A NaN would pass every comparison from here on.
  if (!std::isfinite(sum.error) || !std::isfinite(sum.right)) sum.error = infinity;
  return sum;
}

void keep_worst(Worst& worst, double value, auto&& place) {
  if (value > worst.value) worst = {value, place()};
}

/// The rows (token, head) of y, each with its squares, in the order of y.
class Rows {
 public:
  Rows(const Problem& problem, const Answers& answers, const Answers& right) : problem_(problem) {
    const std::int64_t width = problem.head_dim;
    rows_.resize(static_cast<std::size_t>(problem.batch * problem.tokens * problem.heads));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(i) * width;
      rows_[i] = squares(answers.y.data() + begin, right.y.data() + begin, width);
    }
  }

  [[nodiscard]] const Squares& at(std::int64_t batch, std::int64_t token, std::int64_t head) const {
    return rows_[static_cast<std::size_t>((batch * problem_.tokens + token) * problem_.heads + head)];
  }
  [[nodiscard]] Squares all() const {
    Squares sum;
    for (const Squares& row : rows_) sum += row;
    return sum;
  }
  [[nodiscard]] Squares block(std::int64_t batch, std::int64_t begin, std::int64_t end, std::int64_t head) const {
    Squares sum;
    for (std::int64_t token = begin; token < end; ++token) sum += at(batch, token, head);
    return sum;
  }
  /// Calls body(batch, head, begin, end) for each block of tokens.
  void for_each_block(auto&& body) const {
    for (std::int64_t batch = 0; batch < problem_.batch; ++batch) {
      for (std::int64_t begin = 0; begin < problem_.tokens; begin += block_tokens) {
        const std::int64_t end = std::min(begin + block_tokens, problem_.tokens);
        for (std::int64_t head = 0; head < problem_.heads; ++head) body(batch, head, begin, end);
      }
    }
  }

 private:
  const Problem& problem_;
  std::vector<Squares> rows_;
};

Worst worst_block(const Rows& rows) {
  Worst worst;
  rows.for_each_block([&](std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end) {
    keep_worst(worst, rows.block(batch, begin, end, head).relative(),
               [&] { return fmt::format("batch {}, head {}, tokens {}-{}", batch, head, begin, end - 1); });
  });
  return worst;
}

/// @param what "sequence" or "chunk": what the first dimension counts.
Worst worst_state(std::string_view what, const Problem& problem, const std::vector<double>& answer,
                  const std::vector<double>& right) {
  Worst worst;
  const std::int64_t size = problem.head_dim * problem.state;
  const std::int64_t count = size == 0 ? 0 : static_cast<std::int64_t>(right.size()) / size;
  for (std::int64_t i = 0; i < count; ++i) {
    keep_worst(worst, squares(answer.data() + i * size, right.data() + i * size, size).relative(),
               [&] { return fmt::format("{} {}, head {}", what, i / problem.heads, i % problem.heads); });
  }
  return worst;
}

[[noreturn]] void ill_sized(std::string_view what) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: the two sets of answers are not of the problem's size", what));
}

void check_states(std::string_view what, std::int64_t count, const std::optional<std::vector<double>>& answer,
                  const std::optional<std::vector<double>>& right) {
  if (answer.has_value() != right.has_value()) ill_sized(what);
  if (answer && (answer->size() != right->size() || std::cmp_not_equal(answer->size(), count))) ill_sized(what);
}

void check_sizes(const Problem& problem, const Answers& answers, const Answers& right) {
  const std::int64_t count = problem.batch * problem.tokens * problem.heads * problem.head_dim;
  if (std::cmp_not_equal(answers.y.size(), count) || std::cmp_not_equal(right.y.size(), count)) ill_sized("y");
  const std::int64_t state = problem.heads * problem.head_dim * problem.state;
  check_states("final_states", problem.sequences() * state, answers.final_states, right.final_states);
  const std::size_t chunk_states = right.chunk_states ? right.chunk_states->size() : 0;
  if (state != 0 && std::cmp_not_equal(chunk_states % static_cast<std::size_t>(state), 0)) ill_sized("chunk_states");
  check_states("chunk_states", static_cast<std::int64_t>(chunk_states), answers.chunk_states, right.chunk_states);
}

Errors errors_of(const Problem& problem, const Rows& rows, const Answers& answers, const Answers& right) {
  Errors errors{{rows.all().relative(), "everything"}, worst_block(rows), {}, {}};
  if (right.final_states) errors.state = worst_state("sequence", problem, *answers.final_states, *right.final_states);
  if (right.chunk_states) {
    errors.chunk_state = worst_state("chunk", problem, *answers.chunk_states, *right.chunk_states);
  }
  return errors;
}

/// The row rule's share: a row fails when its error exceeds both limits, so it is measured by the wider one.
Worst worst_row(const Rows& rows, double bar_out) {
  Worst worst;
  rows.for_each_block([&](std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end) {
    const double rms = std::sqrt(rows.block(batch, begin, end, head).error / static_cast<double>(end - begin));
    for (std::int64_t token = begin; token < end; ++token) {
      const Squares& row = rows.at(batch, token, head);
      if (row.error == 0) continue;
      const double limit = std::max(6 * rms, 2 * bar_out * std::sqrt(row.right));
      keep_worst(worst, std::isfinite(row.error) ? std::sqrt(row.error) / limit : infinity,
                 [&] { return fmt::format("batch {}, head {}, token {}", batch, head, token); });
    }
  });
  return worst;
}

Worst share_of(const Worst& error, double bar) {
  if (error.value == 0) return error;
  return {bar > 0 ? error.value / bar : infinity, error.place};
}

std::optional<Worst> share_of(const std::optional<Worst>& error, double bar) {
  if (!error) return std::nullopt;
  return share_of(*error, bar);
}

// -------------------------------------------------------------------------------------------------------------- memory

constexpr std::size_t alignment = 256;
constexpr std::size_t guard_bytes =
    4096;                          // a multiple of the alignment; wider than any row that a kernel stores at once
constexpr int poison_byte = 0xff;  // NaN in f32, f16 and bf16

/// Bytes of 0x7ffb, another NaN in every type: what reads a guard zone shows it, and what writes poison there shows
/// too.
constexpr std::byte guard_at(std::size_t i) { return std::byte{i % 2 == 0 ? std::uint8_t{0xfb} : std::uint8_t{0x7f}}; }

std::size_t bytes_of(const Layout& layout) {
  std::size_t bytes = size_of(layout.dtype);
  for (int i = 0; i < layout.rank; ++i) bytes *= static_cast<std::size_t>(layout.shape[static_cast<std::size_t>(i)]);
  return bytes;
}

// ------------------------------------------------------------------------------------------------------------- loading

constexpr std::array<std::string_view, 3> answer_names = {"out", "final_states", "chunk_states"};
constexpr std::array<std::string_view, 6> metadata_names = {"name",        "chunk_size",  "dt_softplus",
                                                            "dt_limit_lo", "dt_limit_hi", "chunk_states_every"};

/// An input's name in the file and its place in the arguments.
struct Input {
  std::string_view name;
  Tensor Arguments::*required = nullptr;
  std::optional<Tensor> Arguments::*optional = nullptr;
};
const std::array call_inputs = {
    Input{"x", &Arguments::x},
    Input{"dt", &Arguments::dt},
    Input{"A", &Arguments::A},
    Input{"B", &Arguments::B},
    Input{"C", &Arguments::C},
    Input{"D", nullptr, &Arguments::D},
    Input{"z", nullptr, &Arguments::z},
    Input{"dt_bias", nullptr, &Arguments::dt_bias},
    Input{"initial_states", nullptr, &Arguments::initial_states},
    Input{"seq_idx", nullptr, &Arguments::seq_idx},
    Input{"cu_seqlens", nullptr, &Arguments::cu_seqlens},
};

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Input* input_named(std::string_view name) {
  const auto* found =
      std::find_if(call_inputs.begin(), call_inputs.end(), [&](const Input& input) { return input.name == name; });
  return found == call_inputs.end() ? nullptr : found;
}

/// The metadata's values, each read whole or refused.
class Values {
 public:
  explicit Values(const safetensors::Contents& contents) : contents_(contents) {}

  /// A number of type T in [low, ...); `absent` if there is no such key.
  template <class T>
  [[nodiscard]] T number(const std::string& key, T low, std::optional<T> absent) const {
    const std::optional<std::string_view> text = find(key, absent.has_value());
    if (!text) return *absent;
    T value{};
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    // Written so that NaN is refused.
    if (error != std::errc{} || end != text->data() + text->size() || !(value >= low)) {
      damaged(contents_.source,
              fmt::format("metadata {} is {}; it must be a number from {}", key, in_quotes(*text), low));
    }
    return value;
  }
  [[nodiscard]] bool boolean(const std::string& key, bool absent) const {
    const std::optional<std::string_view> text = find(key, true);
    if (!text) return absent;
    if (*text != "true" && *text != "false") {
      damaged(contents_.source, fmt::format("metadata {} is {}; it must be true or false", key, in_quotes(*text)));
    }
    return *text == "true";
  }

 private:
  [[nodiscard]] std::optional<std::string_view> find(const std::string& key, bool optional) const {
    const auto found = contents_.metadata.find(key);
    if (found != contents_.metadata.end()) return found->second;
    if (!optional) damaged(contents_.source, fmt::format("the metadata have no {}", key));
    return std::nullopt;
  }

  const safetensors::Contents& contents_;
};

Options options_from(const safetensors::Contents& contents) {
  const Values metadata(contents);
  Options options;
  options.dt_softplus = metadata.boolean("dt_softplus", options.dt_softplus);
  options.dt_min = metadata.number<float>("dt_limit_lo", -std::numeric_limits<float>::infinity(), options.dt_min);
  options.dt_max = metadata.number<float>("dt_limit_hi", -std::numeric_limits<float>::infinity(), options.dt_max);
  options.chunk_size = metadata.number<std::int64_t>("chunk_size", 0, options.chunk_size);
  options.chunk_states_every = metadata.number<std::int64_t>("chunk_states_every", 0, options.chunk_states_every);
  return options;
}

/// `text`, which comes from a file and goes to a terminal.
std::string printable(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  return plain ? text : in_quotes(text);
}

void refuse_unknown_tensors(const safetensors::Contents& contents) {
  std::vector<std::string> unknown;
  for (const safetensors::Entry& entry : contents.tensors) {
    const bool known = input_named(entry.name) != nullptr || contains(answer_names, entry.name);
    if (!known) unknown.push_back(in_quotes(entry.name));
  }
  if (unknown.empty()) return;
  constexpr std::size_t most = 8;
  const std::string more = unknown.size() > most ? fmt::format(" and {} more", unknown.size() - most) : "";
  unknown.resize(std::min(unknown.size(), most));
  std::vector<std::string_view> known(call_inputs.size());
  std::transform(call_inputs.begin(), call_inputs.end(), known.begin(), [](const Input& input) { return input.name; });
  damaged(contents.source,
          fmt::format("unknown tensor {}{}; inputs are {}, stored answers {}", fmt::join(unknown, ", "), more,
                      fmt::join(known, ", "), fmt::join(answer_names, ", ")));
}

/// The sizes that the shapes of outputs are made of.
struct Sizes {
  std::int64_t batch, tokens, heads, head_dim, state;
  std::int64_t sequences;                     ///< that have a state of their own
  std::optional<std::int64_t> packed_chunks;  ///< chunk states of all packed sequences together
};

/// Chunk states of packed sequences. What is out of order counts as empty: the call itself will name the entry.
std::int64_t packed_chunks(const Tensor& cu_seqlens, std::int64_t tokens, std::int64_t every) {
  std::int64_t chunks = 0;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < cu_seqlens.shape[0]; ++i) {
    std::int32_t entry = 0;
    std::memcpy(&entry, static_cast<const std::int32_t*>(cu_seqlens.data) + i, sizeof entry);
    const std::int64_t end = std::clamp<std::int64_t>(entry, begin, tokens);
    if (i > 0) chunks += (end - begin) / every;
    begin = end;
  }
  return chunks;
}

Sizes sizes_of(const Arguments& arguments, const Options& options) {
  const Extents& x = arguments.x.shape;
  Sizes sizes{x[0], x[1], x[2], x[3], arguments.B.shape[3], x[0], {}};
  if (!arguments.cu_seqlens) return sizes;
  sizes.sequences = arguments.cu_seqlens->shape[0] - 1;
  const std::int64_t every = options.chunk_states_every;
  if (every != 0) sizes.packed_chunks = packed_chunks(*arguments.cu_seqlens, sizes.tokens, every);
  return sizes;
}

Layout out_layout(const Sizes& sizes, DType dtype) {
  return dense(dtype, {sizes.batch, sizes.tokens, sizes.heads, sizes.head_dim});
}

Layout final_states_layout(const Sizes& sizes) {
  return dense(DType::f32, {sizes.sequences, sizes.heads, sizes.head_dim, sizes.state});
}

/// @param every tokens between the states, not 0.
Layout chunk_states_layout(const Sizes& sizes, std::int64_t every) {
  if (sizes.packed_chunks) return dense(DType::f32, {*sizes.packed_chunks, sizes.heads, sizes.head_dim, sizes.state});
  return dense(DType::f32, {sizes.batch, sizes.tokens / every, sizes.heads, sizes.head_dim, sizes.state});
}

Tensor copy_of(const safetensors::Entry& entry, std::string_view source, std::vector<GuardedMemory>& memory) {
  const Layout layout = safetensors::layout_of(entry, source);
  GuardedMemory& copy = memory.emplace_back(entry.bytes.size());
  if (!entry.bytes.empty()) std::memcpy(copy.data(), entry.bytes.data(), entry.bytes.size());
  return {layout, copy.data()};
}

void take_inputs(const safetensors::Contents& contents, Case& result) {
  for (const Input& input : call_inputs) {
    const safetensors::Entry* entry = contents.find(input.name);
    if (entry == nullptr) {
      if (input.required != nullptr) damaged(contents.source, fmt::format("no tensor {}", input.name));
      continue;
    }
    const Tensor tensor = copy_of(*entry, contents.source, result.memory);
    if (input.required != nullptr) {
      result.arguments.*input.required = tensor;
    } else {
      result.arguments.*input.optional = tensor;
    }
  }
}

std::string shape_text(const Layout& layout) {
  return fmt::format("({})", fmt::join(layout.shape.begin(), layout.shape.begin() + layout.rank, ","));
}

/// Checks the inputs among themselves, before any memory for outputs is made of their sizes. There are no outputs yet:
/// x stands in for y, which has its shape, and nothing is written.
void check_inputs(const Case& result, std::string_view source) {
  Arguments arguments = result.arguments;
  const Tensor& x = arguments.x;
  arguments.y = {static_cast<const Layout&>(x), const_cast<void*>(x.data)};
  Options options = result.options;
  options.chunk_states_every = 0;
  try {
    validate(arguments, options);
  } catch (const Error& error) {
    damaged(source, error.what());
  }
}

std::vector<double> stored_answer(const safetensors::Entry& entry, const Layout& expected, std::string_view source) {
  const Layout layout = safetensors::layout_of(entry, source);
  if (layout.dtype != DType::f32 || layout.rank != expected.rank || layout.shape != expected.shape) {
    damaged(source, fmt::format("the stored answer {} is {} of shape {}; it must be F32 of shape {}", entry.name,
                                entry.dtype, shape_text(layout), shape_text(expected)));
  }
  return values({layout, entry.bytes.data()});
}

Answers answers_from(const safetensors::Contents& contents, const Case& problem) {
  const std::string_view source = contents.source;
  const Sizes sizes = sizes_of(problem.arguments, problem.options);
  Answers right;
  const safetensors::Entry* out = contents.find("out");
  if (out == nullptr) damaged(source, "no stored answer out: there is nothing to compare with");
  right.y = stored_answer(*out, out_layout(sizes, DType::f32), source);
  if (const safetensors::Entry* states = contents.find("final_states")) {
    right.final_states = stored_answer(*states, final_states_layout(sizes), source);
  }
  const safetensors::Entry* chunk_states = contents.find("chunk_states");
  if ((chunk_states != nullptr) != (problem.options.chunk_states_every != 0)) {
    damaged(source, "the stored answer chunk_states and the metadata chunk_states_every come together or not at all");
  }
  if (chunk_states != nullptr) {
    right.chunk_states =
        stored_answer(*chunk_states, chunk_states_layout(sizes, problem.options.chunk_states_every), source);
  }
  return right;
}

}  // namespace

Answers gather(const Arguments& arguments) {
  Answers answers{values(arguments.y), {}, {}};
  if (arguments.final_states) answers.final_states = values(*arguments.final_states);
  if (arguments.chunk_states) answers.chunk_states = values(*arguments.chunk_states);
  return answers;
}

Errors measure(const Problem& problem, const Answers& answers, const Answers& right) {
  check_sizes(problem, answers, right);
  return errors_of(problem, Rows(problem, answers, right), answers, right);
}

Bars bars_from(const Errors& same_precision, DType x) {
  // Rounding takes another course in every implementation of the same precision; half as much again is what the project
  // allows for that. In f32 the errors of a small problem may happen to vanish, hence the floor.
  const double least = x == DType::f32 ? 2e-6 : 0;
  const auto bar = [&](double error) { return std::max(1.5 * error, least); };
  const double state = same_precision.state ? same_precision.state->value : 0;
  const double chunk_state = same_precision.chunk_state ? same_precision.chunk_state->value : 0;
  return {bar(same_precision.out.value), bar(same_precision.block.value), bar(std::max(state, chunk_state))};
}

double Shares::worst() const noexcept {
  double worst = std::max({out.value, block.value, row.value});
  if (state) worst = std::max(worst, state->value);
  if (chunk_state) worst = std::max(worst, chunk_state->value);
  return worst;
}

Shares compare(const Problem& problem, const Answers& answers, const Answers& right, const Bars& bars) {
  check_sizes(problem, answers, right);
  const Rows rows(problem, answers, right);
  const Errors errors = errors_of(problem, rows, answers, right);
  return {share_of(errors.out, bars.out), share_of(errors.block, bars.block), worst_row(rows, bars.out),
          share_of(errors.state, bars.state), share_of(errors.chunk_state, bars.state)};
}

GuardedMemory::GuardedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{} bytes are more than any memory holds", bytes));
  }
  void* memory = ::operator new (bytes + 2 * guard_bytes, std::align_val_t{alignment}, std::nothrow);
  if (memory == nullptr) throw Error(ErrorCode::out_of_memory, fmt::format("not enough memory for {} bytes", bytes));
  memory_.reset(static_cast<std::byte*>(memory));
  for (std::size_t i = 0; i < guard_bytes; ++i) {
    memory_[i] = guard_at(i);
    memory_[guard_bytes + bytes_ + i] = guard_at(i);
  }
  poison();
}

void GuardedMemory::Deleter::operator()(std::byte* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{alignment});
}

std::byte* GuardedMemory::data() const noexcept { return memory_.get() + guard_bytes; }

void GuardedMemory::poison() noexcept { std::memset(data(), poison_byte, bytes_); }

bool GuardedMemory::intact() const noexcept {
  for (std::size_t i = 0; i < guard_bytes; ++i) {
    if (memory_[i] != guard_at(i) || memory_[guard_bytes + bytes_ + i] != guard_at(i)) return false;
  }
  return true;
}

GuardedOutputs::GuardedOutputs(const Arguments& inputs, const Options& options, bool want_final_states)
    : arguments_(inputs) {
  const Sizes sizes = sizes_of(inputs, options);
  arguments_.y = add("y", out_layout(sizes, inputs.x.dtype));
  arguments_.final_states.reset();
  arguments_.chunk_states.reset();
  if (want_final_states) arguments_.final_states = add("final_states", final_states_layout(sizes));
  if (options.chunk_states_every != 0) {
    arguments_.chunk_states = add("chunk_states", chunk_states_layout(sizes, options.chunk_states_every));
  }
}

MutableTensor GuardedOutputs::add(std::string name, const Layout& layout) {
  names_.push_back(std::move(name));
  return {layout, memory_.emplace_back(bytes_of(layout)).data()};
}

void GuardedOutputs::poison() noexcept {
  for (GuardedMemory& memory : memory_) memory.poison();
}

std::string GuardedOutputs::damage() const {
  std::string damage;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!memory_[i].intact()) damage += (damage.empty() ? "" : ", ") + names_[i];
  }
  return damage;
}

Case case_from(const safetensors::Contents& contents) {
  refuse_unknown_tensors(contents);
  Case result;
  result.options = options_from(contents);
  take_inputs(contents, result);
  check_inputs(result, contents.source);
  result.name = contents.source;
  for (const auto& [key, value] : contents.metadata) {
    if (key == "name") result.name = printable(value);
    if (!contains(metadata_names, key) && !key.starts_with("bar_")) result.unknown_metadata.push_back(key);
  }
  return result;
}

GoldenCase golden_case_from(const safetensors::Contents& contents) {
  GoldenCase result{case_from(contents), {}, {}};
  result.right = answers_from(contents, result);
  const Values metadata(contents);
  const bool states = result.right.final_states || result.right.chunk_states;
  result.bars.out = metadata.number<double>("bar_out", 0, {});
  result.bars.block = metadata.number<double>("bar_block", 0, {});
  result.bars.state = metadata.number<double>("bar_state", 0, states ? std::nullopt : std::optional(0.0));
  return result;
}

Case load_case(const std::filesystem::path& path) { return case_from(safetensors::File::read(path).contents()); }

GoldenCase load_golden_case(const std::filesystem::path& path) {
  return golden_case_from(safetensors::File::read(path).contents());
}

}  // namespace tilemamba::golden
