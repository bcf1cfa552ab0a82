// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tilemamba::safetensors {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr std::string_view metadata_key = "__metadata__";

struct Element {
  std::string_view name;
  unsigned bits;
};

/// Every dtype of the format; four- and six-bit elements are packed, so sizes are counted in bits.
constexpr std::array elements = {
    Element{"BOOL", 8}, Element{"F4", 4},      Element{"F6_E2M3", 6}, Element{"F6_E3M2", 6}, Element{"U8", 8},
    Element{"I8", 8},   Element{"F8_E5M2", 8}, Element{"F8_E4M3", 8}, Element{"F8_E8M0", 8}, Element{"I16", 16},
    Element{"U16", 16}, Element{"F16", 16},    Element{"BF16", 16},   Element{"I32", 32},    Element{"U32", 32},
    Element{"F32", 32}, Element{"C64", 64},    Element{"F64", 64},    Element{"I64", 64},    Element{"U64", 64},
};

[[noreturn]] void damaged(std::string_view source, const std::string& what) {
  throw Error(ErrorCode::damaged_file, fmt::format("{}: {}", source, what));
}

[[noreturn]] void io_error(const std::filesystem::path& path, std::string_view doing, std::string_view reason) {
  throw Error(ErrorCode::io, fmt::format("{}: {}: {}", path.string(), doing, reason));
}

std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

const Element* element_named(std::string_view name) {
  const auto found = std::find_if(elements.begin(), elements.end(), [&](const Element& e) { return e.name == name; });
  return found == elements.end() ? nullptr : &*found;
}

// ----------------------------------------------------------------------------------------------------- the JSON header

/// A tensor's line in the header, as it was written.
struct Described {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// Takes the header's JSON event by event and accepts the three levels that the format has; anything else ends the
/// parse at once, so neither nesting nor a wrong type can cost memory.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  std::vector<Described> tensors;
  Metadata metadata;

  bool start_object(std::size_t /*elements*/) override {
    switch (level_) {
      case Level::outside:
        level_ = Level::root;
        return true;
      case Level::root:
        return enter_entry();
      default:
        wrong("an object");
    }
  }
  bool key(string_t& text) override {
    switch (level_) {
      case Level::root:
        return entry_key(text);
      case Level::metadata:
        return metadata_entry_key(text);
      default:
        return field_key(text);
    }
  }
  bool end_object() override {
    if (level_ == Level::tensor) finish_tensor();
    level_ = level_ == Level::root ? Level::outside : Level::root;
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (level_ != Level::tensor || field_ == Field::dtype) wrong("an array");
    level_ = field_ == Field::shape ? Level::shape : Level::offsets;
    return true;
  }
  bool end_array() override {
    level_ = Level::tensor;
    return true;
  }
  bool string(string_t& text) override {
    if (level_ == Level::metadata) {
      metadata[key_] = std::move(text);
    } else if (level_ == Level::tensor && field_ == Field::dtype) {
      current_.dtype = std::move(text);
    } else {
      wrong("a string");
    }
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ == Level::shape) {
      current_.shape.push_back(value);
    } else if (level_ == Level::offsets && current_.offsets.size() < 2) {
      current_.offsets.push_back(value);
    } else {
      wrong(fmt::format("the number {}", value));
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { wrong(fmt::format("the number {}", value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { wrong("the number " + in_quotes(text)); }
  bool null() override { wrong("null"); }
  bool boolean(bool value) override { wrong(value ? "true" : "false"); }
  bool binary(binary_t& /*value*/) override { wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    damaged(source_, fmt::format("the header is not JSON at its byte {}: {}", position, in_quotes(error.what())));
  }

 private:
  enum class Level : std::uint8_t { outside, root, metadata, tensor, shape, offsets };
  enum class Field : std::uint8_t { dtype, shape, offsets, count };
  static constexpr std::array<std::string_view, 3> field_names = {"dtype", "shape", "data_offsets"};

  bool entry_key(string_t& text) {
    if (!names_.insert(text).second) damaged(source_, fmt::format("the header has {} twice", in_quotes(text)));
    key_ = std::move(text);
    return true;
  }
  bool metadata_entry_key(string_t& text) {
    if (!metadata.emplace(text, "").second) {
      damaged(source_, fmt::format("the metadata have {} twice", in_quotes(text)));
    }
    key_ = std::move(text);
    return true;
  }
  bool field_key(const string_t& text) {
    const auto found = std::find(field_names.begin(), field_names.end(), text);
    if (found == field_names.end()) {
      damaged(source_, fmt::format("tensor {}: unknown field {}; a tensor has dtype, shape and data_offsets",
                                   in_quotes(key_), in_quotes(text)));
    }
    const auto index = static_cast<std::size_t>(found - field_names.begin());
    if (std::exchange(has_field_[index], true)) {
      damaged(source_, fmt::format("tensor {}: field {} comes twice", in_quotes(key_), *found));
    }
    field_ = static_cast<Field>(index);
    return true;
  }
  bool enter_entry() {
    if (key_ == metadata_key) {
      level_ = Level::metadata;
      return true;
    }
    level_ = Level::tensor;
    has_field_ = {};
    current_ = {};
    current_.name = key_;
    return true;
  }
  void finish_tensor() {
    for (std::size_t i = 0; i < field_names.size(); ++i) {
      if (!has_field_[i]) damaged(source_, fmt::format("tensor {}: no {}", in_quotes(key_), field_names[i]));
    }
    if (current_.offsets.size() != 2) {
      damaged(source_, fmt::format("tensor {}: data_offsets has {} numbers; it must have two, begin and end",
                                   in_quotes(key_), current_.offsets.size()));
    }
    tensors.push_back(std::move(current_));
  }

  [[noreturn]] void wrong(const std::string& found) const {
    switch (level_) {
      case Level::outside:
        damaged(source_, fmt::format("the header is {}; it must be an object", found));
      case Level::root:
        damaged(source_, fmt::format("{} is {}; it must be an object", in_quotes(key_), found));
      case Level::metadata:
        damaged(source_, fmt::format("metadata {} is {}; it must be a string", in_quotes(key_), found));
      case Level::shape:
        damaged(source_, fmt::format("tensor {}: shape holds {}; extents are integers from 0", in_quotes(key_), found));
      case Level::offsets:
        damaged(source_, fmt::format("tensor {}: data_offsets holds {}; it must be two integers, begin and end",
                                     in_quotes(key_), found));
      case Level::tensor:
        break;
    }
    const auto field = static_cast<std::size_t>(field_);
    damaged(source_, fmt::format("tensor {}: {} is {}; it must be {}", in_quotes(key_), field_names[field], found,
                                 field_ == Field::dtype ? "a string" : "an array of integers"));
  }

  std::string source_;
  Level level_ = Level::outside;
  Field field_ = Field::count;
  std::array<bool, 3> has_field_{};
  std::string key_;
  std::set<std::string, std::less<>> names_;
  Described current_;
};

// ---------------------------------------------------------------------------------------------------------- the checks

std::uint64_t header_length(std::span<const std::byte> bytes, std::string_view source) {
  if (bytes.size() < length_bytes) {
    damaged(source,
            fmt::format("{} bytes are too few; a safetensors file begins with the 8 bytes of its header's length",
                        bytes.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > max_header_bytes) {
    damaged(source,
            fmt::format("the header's length is given as {} bytes; the format allows {} (is this a safetensors file?)",
                        length, max_header_bytes));
  }
  if (length > bytes.size() - length_bytes) {
    damaged(source, fmt::format("the header's length is given as {} bytes, but only {} follow; the file is cut short",
                                length, bytes.size() - length_bytes));
  }
  return length;
}

void read_header(std::string_view header, HeaderReader& reader, std::string_view source) {
  if (header.empty() || header.front() != '{') damaged(source, "the header does not begin with '{'");
  // The JSON reader takes a zero byte for the end and would not look at what follows it.
  if (const auto zero = header.find('\0'); zero != std::string_view::npos) {
    damaged(source, fmt::format("the header has a zero byte at its byte {}; pad it with spaces", zero));
  }
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
}

std::uint64_t byte_count(const Described& tensor, std::string_view source) {
  const Element* element = element_named(tensor.dtype);
  if (element == nullptr) {
    std::vector<std::string_view> known(elements.size());
    std::transform(elements.begin(), elements.end(), known.begin(), [](const Element& e) { return e.name; });
    damaged(source, fmt::format("tensor {}: unknown dtype {}; the format has {}", in_quotes(tensor.name),
                                in_quotes(tensor.dtype), fmt::join(known, ", ")));
  }
  std::optional<std::uint64_t> bits = element->bits;
  // An extent of zero makes the tensor empty whatever the others are, those whose product overflows included.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end()) return 0;
  for (const std::uint64_t extent : tensor.shape) {
    bits = product(*bits, extent);
    if (!bits) {
      damaged(source, fmt::format("tensor {}: the size of its shape overflows 64 bits", in_quotes(tensor.name)));
    }
  }
  if (*bits % 8 != 0) {
    damaged(source, fmt::format("tensor {}: its {} bits are not whole bytes", in_quotes(tensor.name), *bits));
  }
  return *bits / 8;
}

/// Every byte of the data must belong to one tensor: what nobody claims could hide something, what two claim is an
/// error somewhere.
void check_coverage(const std::vector<Described>& sorted, std::uint64_t data_bytes, std::string_view source) {
  std::uint64_t covered = 0;
  for (const Described& tensor : sorted) {
    const std::uint64_t begin = tensor.offsets[0];
    const std::uint64_t end = tensor.offsets[1];
    if (begin > end) {
      damaged(source, fmt::format("tensor {}: its data begin at {} and end at {}", in_quotes(tensor.name), begin, end));
    }
    if (end > data_bytes) {
      damaged(source,
              fmt::format("tensor {}: its data end at byte {}, but the file holds {} bytes of data (cut short?)",
                          in_quotes(tensor.name), end, data_bytes));
    }
    if (begin != covered) {
      damaged(
          source,
          fmt::format("tensor {}: its data begin at byte {}; they must begin at {}, where the tensor before ends ({})",
                      in_quotes(tensor.name), begin, covered, begin < covered ? "two overlap" : "a hole"));
    }
    if (const std::uint64_t needed = byte_count(tensor, source); needed != end - begin) {
      damaged(source,
              fmt::format("tensor {}: {} of shape ({}) takes {} bytes, but data_offsets give it {}",
                          in_quotes(tensor.name), tensor.dtype, fmt::join(tensor.shape, ","), needed, end - begin));
    }
    covered = end;
  }
  if (covered != data_bytes) {
    damaged(source,
            fmt::format("{} bytes follow the last tensor; every byte must belong to one", data_bytes - covered));
  }
}

Contents parse_checked(std::span<const std::byte> bytes, std::string_view source) {
  const std::uint64_t length = header_length(bytes, source);
  const auto header = bytes.subspan(length_bytes, length);
  const auto data = bytes.subspan(length_bytes + length);

  HeaderReader reader(source);
  read_header({reinterpret_cast<const char*>(header.data()), header.size()}, reader, source);
  std::vector<Described>& tensors = reader.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const Described& a, const Described& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  check_coverage(tensors, data.size(), source);

  Contents contents{std::string(source), {}, std::move(reader.metadata)};
  contents.tensors.reserve(tensors.size());
  for (Described& tensor : tensors) {
    contents.tensors.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape),
                                data.subspan(tensor.offsets[0], tensor.offsets[1] - tensor.offsets[0])});
  }
  return contents;
}

// --------------------------------------------------------------------------------------------------------------- files

struct Closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }  // NOLINT(cppcoreguidelines-owning-memory)
};
using Handle = std::unique_ptr<std::FILE, Closer>;

std::string last_error() { return std::generic_category().message(errno); }

std::uintmax_t regular_file_size(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) {
    io_error(path, "cannot be read", error ? error.message() : "no such file");
  }
  if (std::filesystem::is_directory(status)) io_error(path, "cannot be read", "it is a folder");
  // A pipe or a device has no size to check the header against.
  if (!std::filesystem::is_regular_file(status)) io_error(path, "cannot be read", "it is no regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) io_error(path, "cannot be read", error.message());
  return size;
}

/// A file that is written beside its final place, and removed again unless it is kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(target) {
    constexpr int most = 1000;  // others may be writing here too, or have left a part behind when they were killed
    for (int i = 0; i < most && !handle_; ++i) {
      path_ = target;
      path_ += fmt::format(".{}.part", i);
      handle_.reset(std::fopen(path_.string().c_str(), "wbx"));
      if (!handle_ && errno != EEXIST) break;
    }
    if (!handle_) io_error(target, "cannot be written", last_error());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (path_.empty()) return;
    handle_.reset();
    std::error_code ignored;  // the write has failed already, and that is what the caller hears of
    std::filesystem::remove(path_, ignored);
  }

  void append(const void* data, std::size_t bytes) {
    if (bytes != 0 && std::fwrite(data, 1, bytes, handle_.get()) != bytes) {
      io_error(target_, "cannot be written", last_error());
    }
  }
  void keep() {
    if (std::fclose(handle_.release()) != 0) io_error(target_, "cannot be written", last_error());
    std::error_code error;
    std::filesystem::rename(path_, target_, error);
    if (error) io_error(target_, "cannot be written", error.message());
    path_.clear();
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  Handle handle_;
};

/// Where the bytes go: a link is followed, since a rename would replace the link; a device or a pipe cannot be renamed
/// over.
std::filesystem::path write_target(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return path;
  if (!std::filesystem::is_regular_file(status)) {
    io_error(path, "cannot be written", "it exists and is no regular file");
  }
  std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) io_error(path, "cannot be written", error.message());
  return target;
}

std::string_view format_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::i32:
      return "I32";
  }
  return "";
}

std::uint64_t dense_bytes(const Named& named) {
  const Tensor& tensor = named.tensor;
  std::int64_t count = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    const auto dimension = static_cast<std::size_t>(i);
    if (tensor.shape[dimension] > 1 && tensor.strides[dimension] != count) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("tensor {}: only dense tensors are written", in_quotes(named.name)));
    }
    count *= tensor.shape[dimension];
  }
  return static_cast<std::uint64_t>(count) * size_of(tensor.dtype);
}

std::string header_of(std::span<const Named* const> order, const Metadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::uint64_t begin = 0;
  for (const Named* named : order) {
    const Tensor& tensor = named->tensor;
    const std::uint64_t end = begin + dense_bytes(*named);
    const std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    json line = {{"dtype", format_name(tensor.dtype)}, {"shape", shape}, {"data_offsets", {begin, end}}};
    if (header.contains(named->name)) {
      throw Error(ErrorCode::invalid_argument, fmt::format("tensor {} comes twice", in_quotes(named->name)));
    }
    header[named->name] = std::move(line);
    begin = end;
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
  return text;
}

}  // namespace

std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 120;
  const std::string text(name.substr(0, longest));
  const std::string ascii = nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return name.size() > longest ? ascii + "..." : ascii;
}

const Entry* Contents::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Contents parse(std::span<const std::byte> bytes, std::string_view source) {
  try {
    return parse_checked(bytes, source);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{}: not enough memory for its header", source));
  }
}

File File::read(const std::filesystem::path& path) {
  const std::uintmax_t size = regular_file_size(path);
  const Handle handle(std::fopen(path.string().c_str(), "rb"));
  if (!handle) io_error(path, "cannot be read", last_error());
  File file;
  try {
    file.bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{}: not enough memory for its {} bytes", path.string(), size));
  }
  const std::size_t got = std::fread(file.bytes_.get(), 1, size, handle.get());
  if (got != size) {
    io_error(path, "cannot be read", std::ferror(handle.get()) != 0 ? last_error() : "it became shorter");
  }
  file.contents_ = parse({file.bytes_.get(), size}, path.string());
  return file;
}

Layout layout_of(const Entry& entry, std::string_view source) {
  Layout layout;
  const std::array held = {DType::f32, DType::f16, DType::bf16, DType::i32};
  const auto* dtype = std::find_if(held.begin(), held.end(), [&](DType d) { return format_name(d) == entry.dtype; });
  if (dtype == held.end()) {
    damaged(source, fmt::format("tensor {} is {}; only F32, F16, BF16 and I32 can be used", in_quotes(entry.name),
                                entry.dtype));
  }
  if (entry.shape.size() > static_cast<std::size_t>(max_rank)) {
    damaged(source, fmt::format("tensor {} has {} dimensions; at most {} can be used", in_quotes(entry.name),
                                entry.shape.size(), max_rank));
  }
  layout.dtype = *dtype;
  layout.rank = static_cast<int>(entry.shape.size());
  // An empty tensor may have any other extents: its strides are the only numbers here that the file's size does not
  // bound.
  std::uint64_t stride = 1;
  for (std::size_t i = entry.shape.size(); i-- > 0;) {
    const auto next = product(stride, std::max<std::uint64_t>(entry.shape[i], 1));
    if (!next || *next > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      damaged(source, fmt::format("tensor {}: the size of its shape ({}) overflows 63 bits", in_quotes(entry.name),
                                  fmt::join(entry.shape, ",")));
    }
    layout.shape[i] = static_cast<std::int64_t>(entry.shape[i]);
    layout.strides[i] = static_cast<std::int64_t>(stride);
    stride = *next;
  }
  return layout;
}

void write(const std::filesystem::path& path, std::span<const Named> tensors, const Metadata& metadata) {
  std::vector<const Named*> order;
  order.reserve(tensors.size());
  for (const Named& named : tensors) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    const std::size_t size_a = size_of(a->tensor.dtype);
    const std::size_t size_b = size_of(b->tensor.dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  const std::string header = header_of(order, metadata);

  TemporaryFile file(write_target(path));
  std::array<unsigned char, length_bytes> length{};
  for (std::size_t i = 0; i < length_bytes; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  file.append(length.data(), length.size());
  file.append(header.data(), header.size());
  for (const Named* named : order) file.append(named->tensor.data, dense_bytes(*named));
  file.keep();
}

}  // namespace tilemamba::safetensors
