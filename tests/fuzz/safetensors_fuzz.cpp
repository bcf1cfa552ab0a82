// SPDX-License-Identifier: Apache-2.0
/// @file
/// libFuzzer target: bytes from anywhere into the reader of safetensors files and the loader of calls. Whatever they
/// are, the outcome is a result or an `Error`; and what is allocated is bounded by their number, hence the limit on a
/// single allocation:
///
///     clang++ -fsanitize=fuzzer,address,undefined ...   (CMake: TILEMAMBA_FUZZ=ON with clang)
///     safetensors_fuzz -max_len=4096 -malloc_limit_mb=8 -dict=tests/fuzz/safetensors.dict NEW_CORPUS tests/fuzz/corpus
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "core/golden.hpp"
#include "core/safetensors.hpp"

namespace {

using namespace tilemamba;

void require(bool condition) {
  if (!condition) std::abort();
}

/// What the reader promises of a file that it took.
void check_promises(const safetensors::Contents& contents, std::span<const std::byte> file) {
  const std::byte* next = contents.tensors.empty() ? nullptr : contents.tensors.front().bytes.data();
  for (const safetensors::Entry& entry : contents.tensors) {
    require(entry.bytes.data() == next);  // no holes, no overlaps
    next += entry.bytes.size();
    require(contents.find(entry.name) == &entry);
  }
  require(contents.tensors.empty() || next == file.data() + file.size());
}

void read(std::span<const std::byte> file) {
  try {
    const safetensors::Contents contents = safetensors::parse(file, "fuzz");
    check_promises(contents, file);
    const golden::GoldenCase golden_case = golden::golden_case_from(contents);
    // Every input can be read to its end.
    for (const golden::GuardedMemory& memory : golden_case.memory) require(memory.intact());
    Problem problem;
    problem.batch = golden_case.arguments.x.shape[0];
    problem.tokens = golden_case.arguments.x.shape[1];
    problem.heads = golden_case.arguments.x.shape[2];
    problem.head_dim = golden_case.arguments.x.shape[3];
    problem.state = golden_case.arguments.B.shape[3];
    if (golden_case.arguments.cu_seqlens) problem.packed_sequences = golden_case.arguments.cu_seqlens->shape[0] - 1;
    static_cast<void>(golden::compare(problem, golden_case.right, golden_case.right, golden_case.bars));
  } catch (const Error&) {
    // The only exception that may come out.
  }
}

/// The same bytes as a header, to its first zero byte, and data: without the length in front, mutations get further in.
void read_behind_length(std::span<const std::byte> bytes) {
  const void* zero = std::memchr(bytes.data(), 0, bytes.size());
  const std::size_t length =
      zero == nullptr ? bytes.size() : static_cast<std::size_t>(static_cast<const std::byte*>(zero) - bytes.data());
  std::vector<std::byte> file(8 + bytes.size() - (zero == nullptr ? 0 : 1));
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(length >> (8 * i));
  std::memcpy(file.data() + 8, bytes.data(), length);
  if (zero != nullptr) std::memcpy(file.data() + 8 + length, bytes.data() + length + 1, bytes.size() - length - 1);
  read(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  read(bytes);
  read_behind_length(bytes);
  return 0;
}
