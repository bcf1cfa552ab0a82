// SPDX-License-Identifier: Apache-2.0
/// @file
/// libFuzzer target: bytes from anywhere as a tuning cache and as a file of proofs. Whatever they are, the outcome is a
/// list of records or an `Error`; and what is merged into a file that was taken is found there afterwards, with all
/// that was there before.
///
///     tuning_fuzz -max_len=4096 -dict=tests/fuzz/tuning.dict NEW_CORPUS tests/fuzz/tuning_corpus
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/proof.hpp"
#include "core/tuning.hpp"

namespace {

using namespace tilemamba;

void require(bool condition) {
  if (!condition) std::abort();
}

/// @param mine a record of a device that no other has.
template <class Record, class Parse, class Merged>
void read(std::string_view text, const Record& mine, const Parse& parse, const Merged& merged) {
  try {
    const std::vector<Record> records = parse(text);
    const std::string with_mine = merged(std::string(text), mine);
    std::vector<Record> expected = records;
    std::erase_if(expected, [&](const Record& record) { return record.device == mine.device; });
    std::vector<Record> found = parse(with_mine);
    require(!found.empty() && found.back() == mine);
    std::erase_if(found, [&](const Record& record) { return record.device == mine.device; });
    require(found == expected);
    // What was written once is written so again.
    require(merged(with_mine, mine) == with_mine);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::damaged_file);
    for (const char* at = error.what(); *at != '\0'; ++at) require(*at >= ' ' && *at < 0x7f);
  }
}

void read(const std::string& text) {
  TuningRecord tuned;
  tuned.device = "of no other entry", tuned.policy = "q64";
  read(text, tuned, tuning::parse, tuning::merged);
  proof::Record proved;
  proved.device = "of no other entry";
  read(text, proved, proof::parse, proof::merged);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // The same bytes as a list of entries: mutations get further in.
  read(R"({"format": "tilemamba tuning", "version": 1, "entries": [)" + bytes + "]}");
  read(R"({"format": "tilemamba proofs", "version": 1, "entries": [)" + bytes + "]}");
  return 0;
}
