// SPDX-License-Identifier: Apache-2.0
/// @file
/// The HIP backend without a device: where elements lie, what tiles become, whole calls, devices that are not there,
/// and faults that are put in on purpose, each of which a test must see.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "backends/hip/capability.hpp"
#include "tests/backend_test.hpp"
#include "tests/hip/calls.hpp"

namespace tilemamba::test {
namespace {

using hip::Cdna;
using hip::Rdna;
using hip::Tiling;

// ------------------------------------------------------------------------------------------------ where elements lie

/// "" or the first element of an instruction's operands and sum that the target believes to be elsewhere than AMD's
/// tables have it; also where elements are left over on either side.
template <class Target>
std::string misplaced(const Instruction& its) {
  const auto at = [&](const char* matrix, int i, int j) {
    return its.name + ": " + matrix + "(" + std::to_string(i) + ", " + std::to_string(j) + ") is elsewhere";
  };
  const bool halves = its.depth == 16;  // 16-bit operands; else fp32, an element of each lane at a time
  std::set<std::pair<int, int>> of_a, of_b, of_d;
  for (int step = 0; step < 16 / its.depth; ++step) {
    for (int k = 0; k < its.depth; ++k) {
      int inner_of_a = -1;
      for (int i = 0; i < 16; ++i) {
        for (const bool is_a : {true, false}) {
          for (const Place& place : is_a ? its.a[i][k] : its.b[k][i]) {
            const int element = halves ? place.word * 2 + place.half : step;
            const int inner = Target::inner(place.lane, element);
            if (Target::line(place.lane) != i) return at(is_a ? "a" : "b", is_a ? i : k, is_a ? k : i);
            if (halves && inner != k) return at(is_a ? "a" : "b", is_a ? i : k, is_a ? k : i);
            // In fp32 the order along the inner dimension is free, but it must be the same for a and b.
            if (inner_of_a < 0) inner_of_a = inner;
            if (inner != inner_of_a) return at(is_a ? "a" : "b", is_a ? i : k, is_a ? k : i);
            (is_a ? of_a : of_b).insert({place.lane, element});
          }
        }
      }
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      for (const Place& place : its.d[i][j]) {
        if (Target::row(place.lane, place.word) != i || Target::line(place.lane) != j) return at("d", i, j);
        of_d.insert({place.lane, place.word});
      }
    }
  }
  const auto all = static_cast<std::size_t>(Target::wave);
  if (of_a.size() != all * Target::operand || of_b.size() != all * Target::operand || of_d.size() != all * Target::sum)
    return its.name + ": registers are left over";
  return "";
}

TEST(HipLayouts, AreThoseOfAmdsTables) {
  EXPECT_EQ(misplaced<Cdna>(instruction("mfma_16x16x16.csv")), "");
  EXPECT_EQ(misplaced<Cdna>(instruction("mfma_16x16x4.csv")), "");
  EXPECT_EQ(misplaced<Rdna>(instruction("wmma_16x16x16.csv")), "");
}

/// What each_element of tile.hpp counts on: from register to register all lanes take the same step.
template <class Target>
void expect_even_rows() {
  for (int lane = 0; lane < Target::wave; ++lane) {
    for (int r = 0; r < Target::sum; ++r)
      EXPECT_EQ(Target::row(lane, r) - Target::row(lane, 0), Target::row(0, r) - Target::row(0, 0));
  }
}
TEST(HipLayouts, RowsAreEven) {
  expect_even_rows<Cdna>();
  expect_even_rows<Rdna>();
}

/// Local memory has 32 banks of 4 bytes and serves 128 bytes at a time: so many lanes, side by side, must meet in no
/// bank unless they want the same word.
template <class Target, int size, int width>
void expect_no_conflicts() {
  using Layout = hip::Padded<Target, size, width>;
  const int together = 128 / Layout::at_once;
  for (int row = 0; row + 1 < 64; ++row)
    EXPECT_GE(Layout::offset(row + 1, 0), Layout::offset(row, width - 1) + size) << "rows overlap";
  for (int first = 0; first < std::min(16, Target::wave); first += together) {
    std::set<unsigned> words, banks;
    for (int lane = first; lane < first + together; ++lane) {
      const unsigned at = Layout::offset(Target::line(lane), Target::inner(lane, 0));
      EXPECT_EQ(at % Layout::at_once, 0u);
      for (unsigned k = 0; k < Layout::at_once / 4; ++k) words.insert(at / 4 + k), banks.insert((at / 4 + k) % 32);
    }
    EXPECT_EQ(banks.size(), words.size()) << "width " << width << ", lanes from " << first;
    EXPECT_EQ(banks.size(), 32u);
  }
}
template <class Target>
void expect_no_conflicts_anywhere() {
  expect_no_conflicts<Target, 2, 16>();
  expect_no_conflicts<Target, 2, 32>();
  expect_no_conflicts<Target, 2, 64>();
  expect_no_conflicts<Target, 2, 128>();
  expect_no_conflicts<Target, 2, 256>();
  expect_no_conflicts<Target, 2, 512>();
  expect_no_conflicts<Target, 4, 16>();
  expect_no_conflicts<Target, 4, 64>();
  expect_no_conflicts<Target, 4, 128>();
  expect_no_conflicts<Target, 4, 256>();
}
TEST(HipLocalMemory, RowsMeetInNoBank) {
  expect_no_conflicts_anywhere<Cdna>();
  expect_no_conflicts_anywhere<Rdna>();
}

/// The kernels of every policy fit into the 64 KiB that a block may have, outputs in fp32 and a gate included.
template <class Target>
void expect_room() {
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    const auto look = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) {
      constexpr hip::Policy policy = hip::policies_of<Target>[i];
      hip::each_step<policy.schedule>([&]<hip::Step step>(std::integral_constant<hip::Step, step>) {
        using W = hip::Worker<StandIn<Target>, policy.x, hip::tiling_of(hip::policies_of<Target>[i], step)>;
        constexpr hip::Shape shape = hip::shape_of<W, step>();
        EXPECT_LE(shape.wide_bytes + shape.gate_bytes, 65536u) << policy.name << ' ' << size_of(policy.x);
        EXPECT_LE(shape.threads, 1024);
        EXPECT_EQ(shape.threads, hip::tiling_of(policy, step).waves() * Target::wave);
      });
    };
    (look(std::integral_constant<std::size_t, index>{}), ...);
  }
  (std::make_index_sequence<hip::policies_of<Target>.size()>{});
}
TEST(HipLocalMemory, EveryPolicyHasRoom) {
  expect_room<Cdna>();
  expect_room<Rdna>();
}

// ---------------------------------------------------------------------------------------------- what tiles become

/// Small integers, which every type holds exactly, in no pattern.
float value(int i, int j) { return static_cast<float>((i * 7 + j * 3 + i * j) % 11 - 5); }

/// "" or what is wrong with products and their operands on a machine: of local memory to operands along rows and along
/// columns, of a sum to an operand and back.
template <class M, DType type>
std::string wrong_tiles() {
  using Target = typename M::Target;
  using F = hip::Fragments<M, type>;
  using Layout = hip::Padded<Target, F::size, 32>;
  constexpr unsigned plane = 32 * Layout::pitch;
  std::string wrong;
  const auto expect = [&](bool right, const char* what) {
    if (!right && wrong.empty()) wrong = what;
  };
  const std::string fault = lanes::run({1, Target::wave, Target::wave, 3 * plane}, [&] {
    const int lane = M::lane();
    const auto put = [&](unsigned base, int i, int j, float v) {
      if constexpr (F::size == 4) {
        M::template store<float>(base + Layout::offset(i, j), v);
      } else {
        M::template store<std::uint16_t>(base + Layout::offset(i, j), M::template narrow<type>(v));
      }
    };
    const auto get = [&](unsigned base, int i, int j) {
      if constexpr (F::size == 4) return M::template load<float>(base + Layout::offset(i, j));
      return M::template widen<type>(M::template load<std::uint16_t>(base + Layout::offset(i, j)));
    };
    for (int k = lane; k < 32 * 32; k += Target::wave) {
      put(0, k / 32, k % 32, value(k / 32, k % 32));
      put(plane, k / 32, k % 32, value(k % 32 + 1, k / 32));
    }
    M::meet_wave();
    const auto a = F::template load_rows<Layout>(0, 16, 16, lane);        // a_ik = value(16 + i, 16 + k)
    const auto b = F::template load_columns<Layout>(plane, 16, 0, lane);  // b_kj = value(j + 1, 16 + k)
    typename F::Sum sum = {};
    F::multiply(sum, a, b);
    for (int r = 0; r < Target::sum; ++r) {
      float right = 0.0f;
      for (int k = 0; k < 16; ++k)
        right += value(16 + Target::row(lane, r), 16 + k) * value(Target::line(lane) + 1, 16 + k);
      expect(sum.r[r] == right, "a product");
    }
    // A sum, narrowed, as the operand of the next product and as rows in local memory.
    typename F::Sum small;
    for (int r = 0; r < Target::sum; ++r) small.r[r] = value(Target::row(lane, r), Target::line(lane));
    const auto operand = F::arrange(small, lane);
    for (int e = 0; e < Target::operand; ++e)
      expect(F::element(operand, e) == value(Target::inner(lane, e), Target::line(lane)), "an operand made of a sum");
    const auto back = F::spread(operand, lane);
    for (int r = 0; r < Target::sum; ++r) expect(back.r[r] == small.r[r], "a sum made of an operand");
    F::template store_rows<Layout>(2 * plane, 16, 0, lane, operand);
    M::meet_wave();
    for (int k = lane; k < 16 * 16; k += Target::wave)
      expect(get(2 * plane, 16 + k / 16, k % 16) == value(k % 16, k / 16), "an operand's lines as rows");
    // Infinities and what is no number go, and nothing else.
    hip::Words<1> odd = {F::size == 4 ? 0x7fc00000u : type == DType::bf16 ? 0x7f803f80u : 0xfc003c00u};
    odd = F::finite_or_zero(odd);
    expect(odd.r[0] == (F::size == 4 ? 0u : type == DType::bf16 ? 0x3f80u : 0x3c00u), "what is finite");
  });
  return wrong.empty() ? fault : wrong;
}

TEST(HipTiles, AreRightOnEveryTargetAndType) {
  EXPECT_EQ((wrong_tiles<StandIn<Cdna>, DType::bf16>()), "");
  EXPECT_EQ((wrong_tiles<StandIn<Cdna>, DType::f16>()), "");
  EXPECT_EQ((wrong_tiles<StandIn<Cdna>, DType::f32>()), "");
  EXPECT_EQ((wrong_tiles<StandIn<Rdna>, DType::bf16>()), "");
  EXPECT_EQ((wrong_tiles<StandIn<Rdna>, DType::f16>()), "");
  EXPECT_EQ((wrong_tiles<StandIn<Rdna>, DType::f32>()), "");
}

/// Takes subnormal halves as zeros, as gfx90a does; `knows`: and says so.
template <bool knows>
struct FlushesHalves : StandIn<Cdna> {
  static constexpr bool multiplies_subnormal_halves = !knows;
  template <DType type>
  static void multiply(hip::Sum<Cdna>& d, hip::Operand<Cdna, type> a, hip::Operand<Cdna, type> b) {
    if constexpr (type == DType::f16) {
      for (auto* operand : {&a, &b}) {
        for (std::uint32_t& word : operand->r) {
          if ((word & 0x7c00u) == 0) word &= 0xffff0000u;
          if ((word & 0x7c000000u) == 0) word &= 0xffffu;
        }
      }
    }
    StandIn<Cdna>::multiply<type>(d, a, b);
  }
};
/// A product of halves of all sizes, the subnormal ones included: exact, since there are so few bits.
template <class M>
bool multiplies_all_halves() {
  using F = hip::Fragments<M, DType::f16>;
  bool right = true;
  const std::string fault = lanes::run({1, 64, 64, 0}, [&] {
    const int lane = M::lane();
    // a_ik = k == 3 ? (8 i + 5) 2^-24 : 0 and b_kj = 1 + j / 1024
    const auto a = F::template made_of<typename F::Operand>([&](int e) {
      return Cdna::inner(lane, e) == 3 ? std::ldexp(static_cast<float>(8 * Cdna::line(lane) + 5), -24) : 0.0f;
    });
    const auto b = F::template made_of<typename F::Operand>(
        [&](int) { return 1.0f + static_cast<float>(Cdna::line(lane)) / 1024; });
    typename F::Sum sum = {};
    F::multiply(sum, a, b);
    for (int r = 0; r < Cdna::sum; ++r) {
      const float small = std::ldexp(static_cast<float>(8 * Cdna::row(lane, r) + 5), -24);
      right = right && sum.r[r] == small * (1.0f + static_cast<float>(Cdna::line(lane)) / 1024);
    }
  });
  return right && fault.empty();
}
TEST(HipTiles, SubnormalHalves) {
  EXPECT_TRUE(multiplies_all_halves<StandIn<Cdna>>());
  EXPECT_TRUE(multiplies_all_halves<FlushesHalves<true>>());
  EXPECT_FALSE(multiplies_all_halves<FlushesHalves<false>>());
}

// ------------------------------------------------------------------------------------------------------ whole calls

/// "" or what was wrong with a call of several chunks, segments and heads.
template <class M, DType type, Tiling tiling, Schedule schedule = Schedule::fused>
std::string wrong_call() {
  Spec spec;
  spec.type(type);
  spec.tokens = 150, spec.heads = 2, spec.head_dim = 40, spec.state = 32, spec.initial_states = DType::f32;
  spec.skip = SkipForm::per_channel, spec.z = true, spec.decay = Decay::slow;
  Call call(spec);
  call.prepare();
  const Problem problem = call.problem();
  const kernels::Arrangement arrangement{schedule, tiling.chunk, schedule == Schedule::staged ? 1 : 2};
  std::vector<std::byte> workspace(kernels::WorkspaceLayout(problem, arrangement).bytes);
  const std::string fault = play<M, schedule, type, tiling, Tiling{tiling.chunk, 64, 64, 1, 1}>(
      kernels::lower(call.arguments, problem, arrangement, workspace.data()), problem);
  if (!fault.empty()) return fault;
  if (const std::string damage = call.damage(); !damage.empty()) return damage;
  golden::Shares shares =
      golden::compare(problem, golden::gather(call.arguments), expected_of(spec).right, expected_of(spec).bars);
  return shares.pass() ? "" : "out of its bars: " + std::to_string(shares.worst());
}
constexpr Tiling for_cdna{32, 64, 64, 1, 2}, for_rdna{32, 64, 64, 2, 1};

TEST(HipCalls, AreRight) {
  EXPECT_EQ((wrong_call<StandIn<Cdna>, DType::bf16, for_cdna>()), "");
  EXPECT_EQ((wrong_call<StandIn<Rdna>, DType::bf16, for_rdna>()), "");
  EXPECT_EQ((wrong_call<StandIn<Cdna>, DType::bf16, for_cdna, Schedule::staged>()), "");
  EXPECT_EQ((wrong_call<StandIn<Rdna>, DType::bf16, for_rdna, Schedule::staged>()), "");
}

// ---------------------------------------------------------------------------------------------- faults put in on
// purpose

/// Rows of a sum dealt out to lanes in turn.
struct RowsInTurn : Cdna {
  static constexpr int row(int lane, int r) { return lane / 16 + 4 * r; }
};
/// The inner dimension of an operand dealt out to lanes in turn.
struct InnerInTurn : Cdna {
  static constexpr int inner(int lane, int e) { return lane / 16 + 4 * e; }
};
/// Lines of an operand in fours.
struct LinesInFours : Cdna {
  static constexpr int line(int lane) { return lane % 4 * 4 + lane / 4 % 4; }
};
/// The rows of a sum as the next generation (gfx12) has them.
struct RowsOfTheNext : Rdna {
  static constexpr int row(int lane, int r) { return lane / 16 * 8 + r; }
};
TEST(HipFaults, WrongMapsAreSeenByTheTables) {
  EXPECT_NE(misplaced<RowsInTurn>(instruction("mfma_16x16x16.csv")), "");
  EXPECT_NE(misplaced<InnerInTurn>(instruction("mfma_16x16x16.csv")), "");
  EXPECT_NE(misplaced<LinesInFours>(instruction("mfma_16x16x16.csv")), "");
  EXPECT_NE(misplaced<RowsOfTheNext>(instruction("wmma_16x16x16.csv")), "");
  EXPECT_NE(misplaced<Cdna>(instruction("wmma_16x16x16.csv")), "");
}
TEST(HipFaults, WrongMapsAreSeenByTilesAndCalls) {
  EXPECT_NE((wrong_tiles<StandIn<RowsInTurn>, DType::bf16>()), "");
  EXPECT_NE((wrong_tiles<StandIn<InnerInTurn>, DType::bf16>()), "");
  EXPECT_NE((wrong_tiles<StandIn<LinesInFours>, DType::bf16>()), "");
  EXPECT_NE((wrong_tiles<StandIn<RowsOfTheNext>, DType::bf16>()), "");
  EXPECT_NE((wrong_call<StandIn<RowsInTurn>, DType::bf16, for_cdna>()), "");
  EXPECT_NE((wrong_call<StandIn<InnerInTurn>, DType::bf16, for_cdna>()), "");
  EXPECT_NE((wrong_call<StandIn<RowsOfTheNext>, DType::bf16, for_rdna>()), "");
}

/// The registers of an operand in the wrong order.
template <class Target>
struct RegistersSwapped : StandIn<Target> {
  template <DType type>
  static void multiply(hip::Sum<Target>& d, hip::Operand<Target, type> a, const hip::Operand<Target, type>& b) {
    std::swap(a.r[0], a.r[1]);
    StandIn<Target>::template multiply<type>(d, a, b);
  }
};
/// Halves of a wave that keep what they should exchange.
struct HalvesKept : StandIn<Rdna> {
  static std::uint32_t of_other_half(std::uint32_t value) { return value; }
};
TEST(HipFaults, RegistersAndHalves) {
  EXPECT_EQ((wrong_tiles<RegistersSwapped<Cdna>, DType::bf16>()), "a product");
  EXPECT_EQ((wrong_tiles<RegistersSwapped<Rdna>, DType::f16>()), "a product");
  EXPECT_EQ((wrong_tiles<HalvesKept, DType::bf16>()), "an operand made of a sum");
  EXPECT_NE((wrong_call<HalvesKept, DType::bf16, for_rdna>()), "");
}

/// Rounds towards zero.
struct Truncates : StandIn<Cdna> {
  template <DType type>
  static std::uint16_t narrow(float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
};
TEST(HipFaults, Rounding) {
  EXPECT_NE((wrong_call<Truncates, DType::bf16, for_cdna>()).find("out of its bars"), std::string::npos);
}

/// Does not come to one of so many meetings.
template <class Target, int left_out, int of = 3>
struct MeetingLeftOut : StandIn<Target> {
  static void meet() {
    static thread_local std::vector<int> times;
    const auto index = static_cast<std::size_t>(lanes::wave() * Target::wave + lanes::lane());
    if (index >= times.size()) times.resize(index + 1);
    if (times[index]++ % of != left_out) lanes::meet();
  }
};
/// A wave whose lanes do not wait for each other's writes.
struct WaveDoesNotMeet : StandIn<Cdna> {
  static void meet_wave() {}
};
TEST(HipFaults, MeetingsLeftOut) {
  const auto seen = [](const std::string& fault) { return fault.find("have not met in between") != std::string::npos; };
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 0>, DType::bf16, for_cdna>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 1>, DType::bf16, for_cdna>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 2>, DType::bf16, for_cdna>()));
  EXPECT_TRUE(seen(wrong_call<WaveDoesNotMeet, DType::bf16, for_cdna>()));
  constexpr auto staged =
      Schedule::staged;  // two meetings a chunk where states are passed, three where outputs are made
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 0, 2>, DType::bf16, for_cdna, staged>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 1, 2>, DType::bf16, for_cdna, staged>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 0>, DType::bf16, for_cdna, staged>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 1>, DType::bf16, for_cdna, staged>()));
  EXPECT_TRUE(seen(wrong_call<MeetingLeftOut<Cdna, 2>, DType::bf16, for_cdna, staged>()));
}

/// Rows that are shorter than they are wide.
struct ShortRows : Cdna {};

}  // namespace
}  // namespace tilemamba::test

template <int size, int width>
struct tilemamba::hip::Padded<tilemamba::test::ShortRows, size, width>
    : tilemamba::hip::Padded<tilemamba::hip::Cdna, size, width> {
  static constexpr int pitch = width * size - 8;
  static constexpr unsigned offset(int row, int column) { return static_cast<unsigned>(row * pitch + column * size); }
};

namespace tilemamba::test {
namespace {

TEST(HipFaults, RowsThatOverlap) {
  EXPECT_NE((wrong_tiles<StandIn<ShortRows>, DType::bf16>()), "");
  EXPECT_NE((wrong_call<StandIn<ShortRows>, DType::bf16, for_cdna>()), "");
}

TEST(HipFaults, LocalMemoryOutOfBounds) {
  const std::string fault = lanes::run({1, 64, 64, 256}, [] { StandIn<Cdna>::store<float>(256, 0.0f); });
  EXPECT_NE(fault.find("beyond the block's 256"), std::string::npos) << fault;
}
TEST(HipFaults, LanesThatWaitForEver) {
  const std::string fault = lanes::run({1, 128, 64, 0}, [] {
    if (lanes::wave() == 0) lanes::meet();
  });
  EXPECT_NE(fault.find("never come"), std::string::npos) << fault;
}

// ------------------------------------------------------------------------------------------- devices that are not
// there

TEST(HipCapability, ArchitectureDecides) {
  const std::vector<std::string> all = {"gfx90a", "gfx942", "gfx1100"};
  EXPECT_EQ(hip::why_not<Cdna>(all, "gfx90a:sramecc+:xnack-", 64), "");
  EXPECT_EQ(hip::why_not<Cdna>(all, "gfx942", 64), "");
  EXPECT_EQ(hip::why_not<Rdna>(all, "gfx1100", 32), "");
  // Of the other kind, older, and newer than anything that was compiled: each by name.
  for (const char* other : {"gfx1100", "gfx908", "gfx950", "gfx1250", "gfx9999"}) {
    const std::string why = hip::why_not<Cdna>(all, other, 64);
    EXPECT_NE(why.find(other), std::string::npos) << why;
    EXPECT_NE(why.find("gfx90a gfx942"), std::string::npos) << why;
  }
  for (const char* other : {"gfx90a", "gfx1030", "gfx1201", "gfx1300"})
    EXPECT_NE(hip::why_not<Rdna>(all, other, 32).find(other), std::string::npos);
  EXPECT_EQ(hip::why_not<Cdna>({"gfx90a"}, "gfx942", 64), "this build has no code for gfx942, only for gfx90a");
  EXPECT_NE(hip::why_not<Rdna>(all, "gfx1100", 64).find("waves of 64"), std::string::npos);
}

TEST(HipCapability, PoliciesByTypeAndState) {
  Problem problem = Call(Spec{}).problem();
  const auto first = [&](const auto& policies) {
    for (const hip::Policy& policy : policies) {
      if (hip::suits(policy, problem)) return std::string(policy.name);
    }
    return std::string();
  };
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    problem.x = type;
    for (const auto& [state, name] :
         {std::pair{16, "n128"}, {128, "n128"}, {129, "n256"}, {256, "n256"}, {512, "n512"}}) {
      problem.state = state;
      const std::string right = type == DType::f32 && state == 512 ? "" : name;
      EXPECT_EQ(first(hip::policies_of<Cdna>), right) << state;
      EXPECT_EQ(first(hip::policies_of<Rdna>), right) << state;
    }
  }
}

}  // namespace
}  // namespace tilemamba::test
