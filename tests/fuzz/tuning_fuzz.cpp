// SPDX-License-Identifier: Apache-2.0
/// @file
/// libFuzzer target: bytes from anywhere as a tuning cache. Whatever they are, the outcome is a list of records or an
/// `Error`; and what is merged into a file that was taken is found there afterwards, with all that was there before.
///
///     tuning_fuzz -max_len=4096 -dict=tests/fuzz/tuning.dict NEW_CORPUS tests/fuzz/tuning_corpus
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/tuning.hpp"

namespace {

using namespace tilemamba;

void require(bool condition) {
  if (!condition) std::abort();
}

void read(std::string_view text) {
  try {
    const std::vector<TuningRecord> records = tuning::parse(text);
    TuningRecord mine;
    mine.device = "of no other entry", mine.policy = "q64";
    const std::string with_mine = tuning::merged(std::string(text), mine);
    std::vector<TuningRecord> expected = records;
    std::erase_if(expected, [&](const TuningRecord& record) { return record.device == mine.device; });
    std::vector<TuningRecord> found = tuning::parse(with_mine);
    require(!found.empty() && found.back() == mine);
    std::erase_if(found, [&](const TuningRecord& record) { return record.device == mine.device; });
    require(found == expected);
    // What was written once is written so again.
    require(tuning::merged(with_mine, mine) == with_mine);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::damaged_file);
    for (const char* at = error.what(); *at != '\0'; ++at) require(*at >= ' ' && *at < 0x7f);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // The same bytes as a list of entries: mutations get further in.
  read(R"({"format": "tilemamba tuning", "version": 1, "entries": [)" + bytes + "]}");
  return 0;
}
