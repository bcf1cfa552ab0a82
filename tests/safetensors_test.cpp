// SPDX-License-Identifier: Apache-2.0
/// @file
/// The reader of safetensors files against files that are not what they should be, the writer, and the two together.
#include "core/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/golden.hpp"

namespace tilemamba::safetensors {
namespace {

namespace fs = std::filesystem;

std::string length_prefix(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

Contents parse_text(const std::string& file) { return parse(std::as_bytes(std::span(file)), "test.safetensors"); }

/// A folder of its own for a test, removed at its end.
class Folder {
 public:
  Folder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / (std::string("tilemamba_") + test->test_suite_name() + "_" + test->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Body>
void expect_error(ErrorCode code, const std::vector<std::string>& words, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

// ------------------------------------------------------------------------------------------------------- what is right

TEST(SafetensorsReader, ReadsTensorsAndMetadata) {
  const Contents contents = parse_text(file_of(
      R"({"b":{"dtype":"I64","shape":[2,1],"data_offsets":[4,20]},"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
      20));
  ASSERT_EQ(contents.tensors.size(), 2u);
  EXPECT_EQ(contents.tensors[0].name, "a");  // in the order of the bytes
  EXPECT_TRUE(contents.tensors[0].shape.empty());
  EXPECT_EQ(contents.tensors[0].bytes.size(), 4u);
  ASSERT_NE(contents.find("b"), nullptr);
  EXPECT_EQ(contents.find("b")->shape, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(contents.find("b")->bytes.data(), contents.tensors[0].bytes.data() + 4);
  EXPECT_EQ(contents.find("c"), nullptr);
  EXPECT_EQ(contents.metadata, (Metadata{{"k", "v"}}));
}

TEST(SafetensorsReader, TakesEmptyFilesAndEmptyTensors) {
  EXPECT_TRUE(parse_text(file_of("{}")).tensors.empty());
  EXPECT_EQ(parse_text(file_of(R"({"a":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})")).tensors.size(), 1u);
}

TEST(SafetensorsReader, CountsPackedElementsInBits) {
  EXPECT_NO_THROW(parse_text(file_of(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3)));
  expect_error(ErrorCode::damaged_file, {"\"a\"", "12 bits", "whole bytes"},
               [] { parse_text(file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2)); });
}

TEST(SafetensorsReader, RefusesDtypesOnlyWhenTheyAreUsed) {
  const Contents contents = parse_text(file_of(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8));
  expect_error(ErrorCode::damaged_file, {"a.file", "\"a\"", "F64", "F32, F16, BF16 and I32"},
               [&] { static_cast<void>(layout_of(contents.tensors[0], "a.file")); });
}

TEST(SafetensorsReader, GivesDenseLayouts) {
  const Contents contents = parse_text(file_of(R"({"a":{"dtype":"BF16","shape":[2,3,4],"data_offsets":[0,48]}})", 48));
  const Layout layout = layout_of(contents.tensors[0], "");
  EXPECT_EQ(layout.dtype, DType::bf16);
  EXPECT_EQ(layout.rank, 3);
  EXPECT_EQ(layout.shape, (Extents{2, 3, 4, 0, 0}));
  EXPECT_EQ(layout.strides, (Extents{12, 4, 1, 0, 0}));
}

// ------------------------------------------------------------------------------------------------------- what is wrong

/// A damaged file and what the message must say.
struct Damage {
  const char* name;
  std::string file;
  std::vector<std::string> words;
};

std::string tensor(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

std::vector<Damage> damages() {
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  return {
      {"empty", "", {"0 bytes are too few"}},
      {"seven_bytes", "1234567", {"7 bytes are too few"}},
      {"header_beyond_end", length_prefix(100) + "{}", {"100 bytes", "only 2 follow", "cut short"}},
      {"header_beyond_cap", length_prefix(100'000'001) + "{}", {"100000001 bytes", "100000000"}},
      {"header_of_all_ones", std::string(16, '\xff'), {"18446744073709551615 bytes"}},
      {"header_empty", file_of(""), {"does not begin with '{'"}},
      {"header_is_array", file_of("[]"), {"does not begin with '{'"}},
      {"header_after_space", file_of(" {}"), {"does not begin with '{'"}},
      {"not_json", file_of("{a}"), {"not JSON"}},
      {"json_cut", file_of(R"({"a":{"dtype")"), {"not JSON"}},
      {"json_twice", file_of("{}{}"), {"not JSON"}},
      {"zero_byte", file_of(std::string("{}\0{}", 5)), {"zero byte at its byte 2"}},
      {"not_utf8", file_of("{\"\xff\":{}}"), {"not JSON"}},
      {"number_too_large", file_of(R"({"a":{"shape":[1e999]}})"), {"not JSON"}},
      {"entry_is_null", file_of(R"({"a":null})"), {"\"a\" is null", "an object"}},
      {"entry_is_string", file_of(R"({"a":"F32"})"), {"\"a\" is a string"}},
      {"entry_is_array", file_of(R"({"a":[]})"), {"\"a\" is an array"}},
      {"metadata_is_string", file_of(R"({"__metadata__":"x"})"), {"\"__metadata__\" is a string"}},
      {"metadata_holds_number", file_of(R"({"__metadata__":{"k":1}})"), {"metadata \"k\" is the number 1", "a string"}},
      {"metadata_holds_object", file_of(R"({"__metadata__":{"k":{}}})"), {"metadata \"k\" is an object"}},
      {"metadata_twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), {"\"__metadata__\" twice"}},
      {"metadata_key_twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), {"\"k\" twice"}},
      {"name_twice", file_of(R"({"a":{)" + good + R"(},"a":{)" + good + "}}", 4), {"\"a\" twice"}},
      {"name_twice_by_escape", file_of(R"({"a":{)" + good + R"(},"\u0061":{)" + good + "}}", 4), {"\"a\" twice"}},
      {"field_twice", file_of(tensor(R"("dtype":"F32","dtype":"F32")")), {"\"a\"", "dtype comes twice"}},
      {"field_unknown", file_of(tensor(R"("strides":[1])")), {"\"a\"", "unknown field \"strides\""}},
      {"no_dtype", file_of(tensor(R"("shape":[1],"data_offsets":[0,4])"), 4), {"\"a\"", "no dtype"}},
      {"no_shape", file_of(tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4), {"\"a\"", "no shape"}},
      {"no_offsets", file_of(tensor(R"("dtype":"F32","shape":[1])"), 4), {"\"a\"", "no data_offsets"}},
      {"dtype_unknown", file_of(tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4), {"\"F31\"", "BF16"}},
      {"dtype_is_number", file_of(tensor(R"("dtype":32)")), {"dtype is the number 32", "a string"}},
      {"shape_is_number", file_of(tensor(R"("shape":1)")), {"shape is the number 1", "an array"}},
      {"shape_negative", file_of(tensor(R"("shape":[-1])")), {"shape holds the number -1"}},
      {"shape_fraction", file_of(tensor(R"("shape":[1.5])")), {"shape holds the number \"1.5\""}},
      {"shape_beyond_64_bits", file_of(tensor(R"("shape":[18446744073709551616])")), {"shape holds the number"}},
      {"shape_nested", file_of(tensor(R"("shape":[[1]])")), {"shape holds an array"}},
      {"shape_overflows",
       file_of(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])")),
       {"overflows"}},
      {"shape_overflows_by_size",
       file_of(tensor(R"("dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,0])")),
       {"overflows"}},
      {"offsets_one",
       file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4),
       {"data_offsets has 1 numbers"}},
      {"offsets_three",
       file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4),
       {"data_offsets holds the number 8"}},
      {"offsets_reversed",
       file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4),
       {"begin at 4 and end at 0"}},
      {"offsets_beyond_data", file_of(tensor(good), 3), {"end at byte 4", "3 bytes of data"}},
      {"offsets_huge",
       file_of(tensor(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615])"), 4),
       {"end at byte 18446744073709551615"}},
      {"size_differs",
       file_of(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
       {"takes 8 bytes", "give it 4"}},
      {"hole_at_begin",
       file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8),
       {"begin at byte 4", "a hole"}},
      {"hole_at_end", file_of(tensor(good), 5), {"1 bytes follow the last tensor"}},
      {"overlap",
       file_of(R"({"a":{)" + good + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6),
       {"\"b\"", "begin at byte 2", "overlap"}},
      {"same_bytes", file_of(R"({"a":{)" + good + R"(},"b":{)" + good + "}}", 4), {"\"b\"", "overlap"}},
  };
}

class SafetensorsDamage : public testing::TestWithParam<Damage> {};

TEST_P(SafetensorsDamage, IsNamed) {
  std::vector<std::string> words = GetParam().words;
  words.emplace_back("test.safetensors: ");
  expect_error(ErrorCode::damaged_file, words, [] { parse_text(GetParam().file); });
}

INSTANTIATE_TEST_SUITE_P(Every, SafetensorsDamage, testing::ValuesIn(damages()),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST(SafetensorsReader, DeepNestingEndsAtOnce) {
  expect_error(ErrorCode::damaged_file, {"shape holds an array"},
               [] { parse_text(file_of(R"({"a":{"shape":)" + std::string(1 << 20, '['))); });
}

TEST(SafetensorsReader, EveryPrefixOfAFileIsRefused) {
  const std::string whole = file_of(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})",
      12);
  EXPECT_NO_THROW(parse_text(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    expect_error(ErrorCode::damaged_file, {}, [&] { parse_text(whole.substr(0, length)); });
  }
}

TEST(SafetensorsReader, MessagesEscapeAndShortenNames) {
  EXPECT_EQ(in_quotes("a\x1b[31m"), R"("a\u001b[31m")");
  EXPECT_LT(in_quotes(std::string(100'000, 'x')).size(), 200u);
  EXPECT_NO_THROW(static_cast<void>(in_quotes("\xff\xfe")));
}

TEST(SafetensorsReader, NamesFilesThatCannotBeRead) {
  const Folder folder;
  expect_error(ErrorCode::io, {"absent", "cannot be read"}, [&] { static_cast<void>(File::read(folder / "absent")); });
  expect_error(ErrorCode::io, {"it is a folder"}, [&] { static_cast<void>(File::read(folder / "")); });
#if defined(__unix__)
  expect_error(ErrorCode::io, {"no regular file"}, [] { static_cast<void>(File::read("/dev/null")); });
#endif
}

// ------------------------------------------------------------------------------------------------------------- writing

struct Written {
  std::array<float, 6> floats = {1, 2, 3, 4, 5, 6};
  std::array<std::uint16_t, 3> halves = {7, 8, 9};
  std::array<std::int32_t, 2> integers = {-1, 1};

  std::vector<Named> tensors() {
    return {{"h", {dense(DType::f16, {3}), halves.data()}},
            {"i", {dense(DType::i32, {2}), integers.data()}},
            {"empty", {dense(DType::bf16, {0, 4}), nullptr}},
            {"f", {dense(DType::f32, {2, 3}), floats.data()}}};
  }
};

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  const Folder folder;
  Written written;
  const Metadata metadata = {{"name", "a \"quoted\" näme"}, {"k", ""}};
  write(folder / "a", written.tensors(), metadata);
  const File file = File::read(folder / "a");
  const Contents& contents = file.contents();
  EXPECT_EQ(contents.metadata, metadata);
  ASSERT_EQ(contents.tensors.size(), 4u);
  EXPECT_EQ(contents.tensors[0].name, "f");
  EXPECT_EQ(std::memcmp(contents.find("f")->bytes.data(), written.floats.data(), sizeof written.floats), 0);
  EXPECT_EQ(std::memcmp(contents.find("h")->bytes.data(), written.halves.data(), sizeof written.halves), 0);
  EXPECT_EQ(std::memcmp(contents.find("i")->bytes.data(), written.integers.data(), sizeof written.integers), 0);
  EXPECT_EQ(contents.find("empty")->shape, (std::vector<std::uint64_t>{0, 4}));
}

TEST(SafetensorsWriter, BytesDependOnNothingButTheContent) {
  const Folder folder;
  Written written;
  std::vector<Named> tensors = written.tensors();
  write(folder / "a", tensors, {{"k", "v"}});
  std::swap(tensors.front(), tensors.back());
  write(folder / "b", tensors, {{"k", "v"}});
  EXPECT_EQ(bytes_of(folder / "a"), bytes_of(folder / "b"));
}

TEST(SafetensorsWriter, DataAreAligned) {
  const Folder folder;
  Written written;
  for (int extra = 0; extra < 8; ++extra) {
    write(folder / "a", written.tensors(), {{"k", std::string(static_cast<std::size_t>(extra), 'v')}});
    const std::string bytes = bytes_of(folder / "a");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    EXPECT_EQ(length % 8, 0u);
  }
}

TEST(SafetensorsWriter, ReplacesAWholeFileAndLeavesNothingElse) {
  const Folder folder;
  Written written;
  std::ofstream(folder / "a") << std::string(10'000, 'x');
  write(folder / "a", written.tensors(), {});
  EXPECT_EQ(File::read(folder / "a").contents().tensors.size(), 4u);
  EXPECT_EQ(folder.count(), 1u);
}

TEST(SafetensorsWriter, FollowsALink) {
  const Folder folder;
  Written written;
  std::ofstream(folder / "real") << "x";
  fs::create_symlink("real", folder / "link");
  write(folder / "link", written.tensors(), {});
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(File::read(folder / "real").contents().tensors.size(), 4u);
}

TEST(SafetensorsWriter, LeavesTheOldFileWhenItFails) {
  const Folder folder;
  Written written;
  std::ofstream(folder / "a") << "old";
  const std::vector<Named> twice = {{"f", {dense(DType::f32, {6}), written.floats.data()}},
                                    {"f", {dense(DType::f32, {6}), written.floats.data()}}};
  expect_error(ErrorCode::invalid_argument, {"\"f\"", "twice"}, [&] { write(folder / "a", twice, {}); });
  Tensor transposed{dense(DType::f32, {2, 3}), written.floats.data()};
  transposed.strides = {1, 2};
  const std::vector<Named> strided = {{"f", transposed}};
  expect_error(ErrorCode::invalid_argument, {"\"f\"", "dense"}, [&] { write(folder / "a", strided, {}); });
  EXPECT_EQ(bytes_of(folder / "a"), "old");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(SafetensorsWriter, NamesPlacesThatCannotBeWritten) {
  const Folder folder;
  Written written;
  expect_error(ErrorCode::io, {"absent", "cannot be written"},
               [&] { write(folder / "absent/a", written.tensors(), {}); });
  expect_error(ErrorCode::io, {"no regular file"}, [&] { write(folder / "", written.tensors(), {}); });
}

// -------------------------------------------------------------------------------------------------- calls with answers

/// A small call with its answers, which a test spoils in one place and writes.
class StoredCall {
 public:
  StoredCall() {
    add("x", dense(DType::f32, {1, 2, 1, 4}));
    add("dt", dense(DType::f32, {1, 2, 1}));
    add("A", dense(DType::f32, {1}));
    add("B", dense(DType::f32, {1, 2, 1, 3}));
    add("C", dense(DType::f32, {1, 2, 1, 3}));
    add("out", dense(DType::f32, {1, 2, 1, 4}));
    add("final_states", dense(DType::f32, {1, 1, 4, 3}));
  }
  void add(const std::string& name, const Layout& layout, const void* data = nullptr) {
    remove(name);
    tensors_.push_back({name, {layout, data == nullptr ? zeros_.data() : data}});
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const Named& named) { return named.name == name; });
  }
  golden::GoldenCase load() const {
    const Folder folder;
    write(folder / "case", tensors_, metadata);
    return golden::load_golden_case(folder / "case");
  }

  Metadata metadata = {{"name", "small"},      {"chunk_size", "64"}, {"dt_softplus", "true"}, {"dt_limit_lo", "0.001"},
                       {"dt_limit_hi", "inf"}, {"bar_out", "1e-3"},  {"bar_block", "2e-3"},   {"bar_state", "3e-3"}};

 private:
  std::vector<float> zeros_ = std::vector<float>(1024);
  std::vector<Named> tensors_;
};

TEST(GoldenCaseLoader, ReadsOptionsAnswersAndBars) {
  StoredCall call;
  const std::array<std::int32_t, 2> ends = {0, 2};
  call.add("cu_seqlens", dense(DType::i32, {2}), ends.data());
  call.metadata["remark"] = "";
  const golden::GoldenCase loaded = call.load();
  EXPECT_EQ(loaded.name, "small");
  EXPECT_EQ(loaded.options.chunk_size, 64);
  EXPECT_TRUE(loaded.options.dt_softplus);
  EXPECT_EQ(loaded.options.dt_min, 0.001f);
  EXPECT_EQ(loaded.options.dt_max, std::numeric_limits<float>::infinity());
  EXPECT_EQ(loaded.options.chunk_states_every, 0);
  EXPECT_EQ(loaded.bars.out, 1e-3);
  EXPECT_EQ(loaded.bars.block, 2e-3);
  EXPECT_EQ(loaded.bars.state, 3e-3);
  EXPECT_EQ(loaded.arguments.x.shape, (Extents{1, 2, 1, 4, 0}));
  EXPECT_TRUE(loaded.arguments.cu_seqlens.has_value());
  EXPECT_FALSE(loaded.arguments.D.has_value());
  EXPECT_EQ(loaded.right.y.size(), 8u);
  EXPECT_EQ(loaded.right.final_states->size(), 12u);
  EXPECT_EQ(loaded.unknown_metadata, std::vector<std::string>{"remark"});
}

TEST(GoldenCaseLoader, RefusesTensorsThatItDoesNotKnow) {
  StoredCall call;
  call.add("Z", dense(DType::f32, {1}));
  call.add("bias", dense(DType::f32, {1}));
  expect_error(ErrorCode::damaged_file, {"\"Z\"", "\"bias\"", "dt_bias"}, [&] { call.load(); });
}

TEST(GoldenCaseLoader, NamesWhatIsMissing) {
  for (const char* name : {"x", "dt", "A", "B", "C", "out"}) {
    StoredCall call;
    call.remove(name);
    expect_error(ErrorCode::damaged_file, {name}, [&] { call.load(); });
  }
  for (const char* key : {"bar_out", "bar_block", "bar_state"}) {
    StoredCall call;
    call.metadata.erase(key);
    expect_error(ErrorCode::damaged_file, {key}, [&] { call.load(); });
  }
}

TEST(GoldenCaseLoader, NamesMetadataThatCannotBeUsed) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"chunk_size", "64.0"},  {"chunk_size", "-1"},
      {"chunk_size", ""},      {"dt_softplus", "True"},
      {"dt_limit_hi", "nan"},  {"bar_out", "1e-3 "},
      {"bar_state", "-1e-3"},  {"chunk_states_every", "99999999999999999999"},
      {"dt_limit_lo", "0,001"}};
  for (const auto& [key, value] : wrong) {
    StoredCall call;
    call.metadata[key] = value;
    expect_error(ErrorCode::damaged_file, {key, value}, [&] { call.load(); });
  }
}

TEST(GoldenCaseLoader, NamesShapesThatCannotBeUsed) {
  const std::vector<std::pair<std::string, Layout>> wrong = {
      {"x", dense(DType::f32, {2, 1, 4})},        {"B", dense(DType::f32, {2, 3})},
      {"out", dense(DType::f32, {1, 2, 4, 1})},   {"out", dense(DType::f16, {1, 2, 1, 4})},
      {"cu_seqlens", dense(DType::f32, {2})},     {"cu_seqlens", dense(DType::i32, {0})},
      {"cu_seqlens", dense(DType::i32, {2, 1})},  {"final_states", dense(DType::f32, {1, 1, 3, 4})},
      {"chunk_states", dense(DType::f32, {1, 1})}};
  for (const auto& [name, layout] : wrong) {
    StoredCall call;
    call.add(name, layout);
    expect_error(ErrorCode::damaged_file, {name}, [&] { call.load(); });
  }
}

TEST(GoldenCaseLoader, NamesInputsThatDoNotGoTogether) {
  StoredCall call;
  call.add("dt", dense(DType::f32, {1, 3, 1}));
  expect_error(ErrorCode::damaged_file, {"case: dt has shape (1,3,1)"}, [&] { call.load(); });
  StoredCall packed;
  const std::array<std::int32_t, 3> ends = {0, 3, 2};
  packed.add("cu_seqlens", dense(DType::i32, {3}), ends.data());
  expect_error(ErrorCode::damaged_file, {"cu_seqlens[1] = 3"}, [&] { packed.load(); });
}

/// A final state of 2^60 bytes is refused for what it is, not for want of memory.
TEST(GoldenCaseLoader, SizesAreCheckedBeforeMemoryIsMade) {
  StoredCall call;
  call.add("x", dense(DType::f32, {0, 2, std::int64_t{1} << 30, std::int64_t{1} << 28}));
  expect_error(ErrorCode::damaged_file, {"heads H = 1073741824"}, [&] { call.load(); });
}

TEST(GoldenCaseLoader, ChunkStatesFollowTheirInterval) {
  StoredCall call;
  call.metadata["chunk_states_every"] = "1";
  expect_error(ErrorCode::damaged_file, {"chunk_states", "come together"}, [&] { call.load(); });
  call.add("chunk_states", dense(DType::f32, {1, 2, 1, 4, 3}));
  EXPECT_EQ(call.load().right.chunk_states->size(), 24u);
}

}  // namespace
}  // namespace tilemamba::safetensors
