// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading and writing safetensors files: 8 bytes with the header's length (little endian), a JSON header that gives
/// each tensor's dtype, shape and place, then the tensors' bytes without holes.
/// https://github.com/huggingface/safetensors gives the format.
///
/// A file may come from anywhere: nothing in it is believed before it is checked, and what is allocated is bounded by
/// the file's size. Everything here fails with `Error` and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba::safetensors {

using Metadata = std::map<std::string, std::string>;

/// A tensor as the file has it. `bytes` points into the memory that was parsed and need not be aligned.
struct Entry {
  std::string name;
  std::string dtype;  ///< the format's own name, e.g. "F32" or "I64"; known, but maybe none that tilemamba can hold
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

/// What a file holds, in the order of the bytes.
struct Contents {
  std::string source;  ///< what messages call the file
  std::vector<Entry> tensors;
  Metadata metadata;

  /// The tensor of that name, or null.
  [[nodiscard]] const Entry* find(std::string_view name) const noexcept;
};

/// Parses a whole file that is already in memory; the result points into `bytes`.
/// @param source what messages call the file.
/// @throws Error damaged_file naming the tensor, what was found and what would be right; out_of_memory.
[[nodiscard]] Contents parse(std::span<const std::byte> bytes, std::string_view source);

/// A file that was read into memory, and what it holds. Movable: `contents()` keeps pointing at the same bytes.
class File {
 public:
  /// @throws Error io if `path` cannot be read or is no regular file; as `parse`.
  [[nodiscard]] static File read(const std::filesystem::path& path);

  [[nodiscard]] const Contents& contents() const noexcept { return contents_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  Contents contents_;
};

/// The layout of `entry` as a dense host tensor. Its bytes may be unaligned: copy them before you read them as numbers.
/// @throws Error damaged_file if tilemamba has no such dtype, the rank is above max_rank or an extent is above 2^63
/// - 1.
[[nodiscard]] Layout layout_of(const Entry& entry, std::string_view source);

/// `name` in quotes, control characters escaped and shortened to what fits a message.
[[nodiscard]] std::string in_quotes(std::string_view name);

/// A tensor to be written: dense, row-major, in host memory.
struct Named {
  std::string name;
  Tensor tensor;
};

/// Writes a file, whole or not at all: into a new file in the same folder, which then takes the name. The same input
/// gives the same bytes: tensors in the order of falling element size (so that all are aligned), then by name.
/// @throws Error invalid_argument if a tensor is not dense or a name comes twice; io if the file cannot be written.
void write(const std::filesystem::path& path, std::span<const Named> tensors, const Metadata& metadata);

}  // namespace tilemamba::safetensors
