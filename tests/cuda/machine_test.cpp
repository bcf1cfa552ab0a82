// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA backends without a device: where elements lie, what descriptors say, whole calls on a machine that the host
/// plays, and mistakes that are put in on purpose, each of which must be seen, and for what it is.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

// First: words of the kernels, which follow, are macros.
#include "backends/cuda/tma/maps.hpp"

#include "backends/cuda/sm100/backend.hpp"
#include "backends/cuda/sm100/descriptor.hpp"
#include "backends/cuda/sm90/backend.hpp"
#include "backends/cuda/sm90/descriptor.cuh"
#include "backends/cuda/sm90/policy.hpp"
#include "backends/cuda/tma/tile.cuh"
#include "core/backend.hpp"
#include "tests/backend_test.hpp"
#include "tests/cuda/machine.hpp"
#include "tests/cuda/runtime.hpp"

namespace tilemamba::test {
namespace {

using cuda::At;
using cuda::Mistake;

// ------------------------------------------------------------------------------------------------ where elements lie

// The machine has its places from the text of the PTX ISA. A second source of NVIDIA's must say the same: the layouts
// of CUTLASS 4.2, cute/atom/mma_traits_sm90_gmma.hpp and copy_traits_sm75.hpp, written out.

/// CLayout_64xN: ((4,8,4),(2,2,N/8)):((128,1,16),(64,8,512)), of which ALayout_64x16 is the one of N = 16; a matrix of
/// 64 rows, column by column.
At in_cute(int thread, int i) {
  const int at = thread % 4 * 128 + thread / 4 % 8 + thread / 32 * 16 + i % 2 * 64 + i / 2 % 2 * 8 + i / 4 * 512;
  return {at % 64, at / 64};
}
TEST(CudaLayouts, FragmentsOfProducts) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(cuda::of_a(thread, i), in_cute(thread, i)) << thread << ' ' << i;
    for (int i = 0; i < 128; ++i) {
      const At its = cuda::of_d(thread, i);
      EXPECT_EQ(its, in_cute(thread, i)) << thread << ' ' << i;
      // What the backend is built on: packed accumulators are the next product's operand.
      const At operand = cuda::of_a(thread, i % 8);
      EXPECT_EQ(its, (At{operand.row, operand.column + i / 8 * 16}));
    }
  }
}
/// cute/atom/mma_traits_sm80.hpp. SM80_16x8x16_F32BF16BF16F32_TN: A ((4,8),(2,2,2)):((32,1),(16,8,128)), B
/// ((4,8),(2,2)):((16,1),(8,64)), C ((4,8),(2,2)):((32,1),(16,8)). SM80_16x8x8_F32TF32TF32F32_TN: A
/// ((4,8),(2,2)):((16,1),(8,64)), B ((4,8),2):((8,1),32). Matrices of 16 or, for B, of 8 rows, column by column.
TEST(CudaLayouts, FragmentsOfAWarpsProducts) {
  for (int lane = 0; lane < 32; ++lane) {
    const auto place = [&](int in_group, int group, int rows, int more) {
      const int at = lane % 4 * in_group + lane / 4 * group + more;
      return At{at % rows, at / rows};
    };
    const auto turned = [](At at) { return At{at.column, at.row}; };  // CUTLASS has B by its columns
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(cuda::of_a(lane, i), place(32, 1, 16, i % 2 * 16 + i / 2 % 2 * 8 + i / 4 * 128));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(cuda::of_b(lane, i), turned(place(16, 1, 8, i % 2 * 8 + i / 2 * 64)));
      EXPECT_EQ(cuda::of_d(lane, i), place(32, 1, 16, i % 2 * 16 + i / 2 * 8));
      EXPECT_EQ(cuda::of_a_tf32(lane, i), place(16, 1, 16, i % 2 * 8 + i / 2 * 64));
      // What the backend says of its fragments: pairs of a as it stands, and two of them the b of eight columns.
      const int group = lane / 4, in_group = lane % 4;
      for (int s = 0, h = i % 2; s < 2; ++s)
        EXPECT_EQ(cuda::of_a(lane, 2 * (2 * s + h)), (At{group + 8 * h, 8 * s + 2 * in_group}));
      EXPECT_EQ(cuda::of_b(lane, i), (At{8 * (i / 2) + 2 * in_group + i % 2, group}));
    }
    for (int i = 0; i < 2; ++i) EXPECT_EQ(cuda::of_b_tf32(lane, i), turned(place(8, 1, 8, i * 32)));
  }
}
/// SM75_U32x4_LDSM_N: (32,(32,4)):(32,(1,1024)), and _T: ((4,8),(16,2,4)):((256,16),(1,128,1024)), in bits of matrices
/// of eight rows of 128.
TEST(CudaLayouts, Matrices) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      const int plain = 32 * lane + 16 * half, transposed = 256 * (lane % 4) + 16 * (lane / 4) + 128 * half;
      EXPECT_EQ(cuda::of_matrix(lane, half, false), (At{plain / 128, plain % 128 / 16}));
      EXPECT_EQ(cuda::of_matrix(lane, half, true), (At{transposed / 128, transposed % 128 / 16}));
    }
  }
}
/// Swizzle<3,4,3> of bytes: three bits from the fourth on, with those three above them.
unsigned cute_swizzle(unsigned address) {
  const unsigned mask = 0x7u << 7;
  return address ^ (address & mask) >> 3;
}
TEST(CudaLayouts, Swizzle) {
  for (unsigned row = 0; row < 64; ++row) {
    for (unsigned byte = 0; byte < 128; ++byte) {
      const unsigned address = 8192 + row * 128 + byte;
      EXPECT_EQ(cuda::swizzled(address), cute_swizzle(address));
      // What the backend believes.
      EXPECT_EQ(cuda::swizzled(address), 8192 + ::tilemamba::cuda::tma::swizzled(row, byte / 16) + byte % 16);
    }
  }
}
/// Descriptors that the backend makes, read field by field as the PTX ISA has them: every element of every step of
/// every product lies where the backend's own swizzle has it.
TEST(CudaLayouts, DescriptorsOfHopper) {
  namespace sm90 = ::tilemamba::cuda::sm90;
  namespace tma = ::tilemamba::cuda::tma;
  const unsigned start = 3 * 8192 + 1024;
  const auto place = [&](unsigned plane, unsigned row, unsigned column) {
    return start + plane * tma::plane_bytes + tma::swizzled(row, column / 8) + column % 8 * 2;
  };
  for (unsigned step = 0; step < 8; ++step) {  // of 16 columns, over two planes
    const auto descriptor =
        sm90::descriptor(sm90::inner_columns(start / 16) + (step / 4 * tma::plane_bytes + step % 4 * 32) / 16);
    for (unsigned row = 0; row < 64; ++row) {
      for (unsigned k = 0; k < 16; ++k)
        EXPECT_EQ(cuda::in_shared(descriptor, false, static_cast<int>(row), static_cast<int>(k)),
                  place(step / 4, row, step % 4 * 16 + k));
    }
  }
  for (unsigned step = 0; step < 4; ++step) {  // of 16 rows, the product's columns over two planes
    const auto descriptor = sm90::descriptor(sm90::inner_rows(start / 16) + step * 2048 / 16);
    for (unsigned column = 0; column < 128; ++column) {
      for (unsigned k = 0; k < 16; ++k)
        EXPECT_EQ(cuda::in_shared(descriptor, true, static_cast<int>(column), static_cast<int>(k)),
                  place(column / 64, step * 16 + k, column % 64));
    }
  }
}

/// CUTLASS, cute/atom/copy_traits_sm100.hpp: SM100_TMEM_LOAD_16dp256b1x, ((4,8),(64,2)):((64,256),(1,2048)), and
/// SM100_TMEM_LOAD_16dp128b1x, ((4,8),(32,2)):((32,128),(1,1024)): bits of what a thread has, row by row of 256 and of
/// 128 bits.
TEST(CudaLayouts, FragmentsOfTensorMemory) {
  for (int thread = 0; thread < 32; ++thread) {
    for (int i = 0; i < 4; ++i) {
      const int bit = thread % 4 * 64 + thread / 4 * 256 + i % 2 * 32 + i / 2 * 2048;
      EXPECT_EQ(cuda::in_tensor(thread, i, true), (At{bit / 256, bit % 256 / 32}));
      // Accumulators as wgmma has them.
      EXPECT_EQ(cuda::in_tensor(thread, i, true), cuda::of_d(thread, i));
    }
    for (int i = 0; i < 2; ++i) {
      const int bit = thread % 4 * 32 + thread / 4 * 128 + i * 1024;
      EXPECT_EQ(cuda::in_tensor(thread, i, false), (At{bit / 128, bit % 128 / 32}));
    }
    // An operand's registers: a column has a pair of the inner dimension.
    for (int word = 0; word < 4; ++word) {
      const At at = cuda::in_tensor(thread, word, false), pair = cuda::of_a(thread, 2 * word);
      EXPECT_EQ((At{at.row, 2 * at.column}), pair);
    }
  }
}
/// Layout F of CUTLASS, cute/atom/mma_traits_sm100.hpp, tmem_frg: for M = 64 ((16,4),N) lies at ((lane, 32 lanes),
/// column).
TEST(CudaLayouts, LanesOfRows) {
  for (int row = 0; row < 64; ++row) {
    EXPECT_EQ(cuda::lane_of_row(row), row % 16 + row / 16 * 32);
    EXPECT_EQ(::tilemamba::cuda::sm100::lane_of_row(static_cast<unsigned>(row)),
              static_cast<unsigned>(cuda::lane_of_row(row)));
  }
}
TEST(CudaLayouts, DescriptorsOfBlackwell) {
  namespace sm100 = ::tilemamba::cuda::sm100;
  namespace tma = ::tilemamba::cuda::tma;
  const unsigned start = 3 * 8192 + 1024;
  const auto place = [&](unsigned plane, unsigned row, unsigned column) {
    return start + plane * tma::plane_bytes + tma::swizzled(row, column / 8) + column % 8 * 2;
  };
  for (unsigned step = 0; step < 8; ++step) {
    const auto descriptor = sm100::further(sm100::inner_columns(start), step / 4 * tma::plane_bytes + step % 4 * 32);
    for (unsigned row = 0; row < 64; ++row) {
      for (unsigned k = 0; k < 16; ++k)
        EXPECT_EQ(cuda::in_shared(descriptor, false, static_cast<int>(row), static_cast<int>(k)),
                  place(step / 4, row, step % 4 * 16 + k));
    }
  }
  for (unsigned step = 0; step < 4; ++step) {
    const auto descriptor = sm100::further(sm100::inner_rows(start), step * 2048);
    for (unsigned column = 0; column < 128; ++column) {
      for (unsigned k = 0; k < 16; ++k)
        EXPECT_EQ(cuda::in_shared(descriptor, true, static_cast<int>(column), static_cast<int>(k)),
                  place(column / 64, step * 16 + k, column % 64));
    }
  }
}
TEST(CudaLayouts, InstructionsOfBlackwell) {
  for (const bool bf16 : {false, true}) {
    for (const bool inner_rows : {false, true}) {
      for (unsigned columns = 8; columns <= 256; columns += 8) {
        const cuda::Instruction its =
            cuda::decoded(::tilemamba::cuda::sm100::InstructionDescriptor{bf16, inner_rows, columns}.bits());
        EXPECT_TRUE(its.right);
        EXPECT_EQ(its.type, bf16 ? DType::bf16 : DType::f16);
        EXPECT_EQ(its.b_transposed, inner_rows);
        EXPECT_EQ(its.rows, 64);
        EXPECT_EQ(its.columns, static_cast<int>(columns));
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------- maps of tensors

int maps_encoded = 0;
extern "C" CUresult count_and_encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                     const cuuint64_t* counts, const cuuint64_t* strides, const cuuint32_t* box,
                                     const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
  ++maps_encoded;
  return cuTensorMapEncodeTiled(map, type, rank, data, counts, strides, box, steps, interleave, swizzle, promotion,
                                fill);
}

TEST(CudaMaps, AreEncodedAnewWhereSomethingChanged) {
  alignas(256) static std::uint16_t memory[4096];
  tile::TokenView view;
  view.data = memory, view.dtype = DType::bf16, view.given = true;
  view.width = 64, view.head_stride = 64, view.token_stride = 128, view.batch_stride = 1024;
  Problem problem;
  problem.batch = 2, problem.tokens = 8;
  const auto encoded = [&](int tokens, std::int64_t heads) {
    const int before = maps_encoded;
    EXPECT_FALSE(tilemamba::cuda::tma::make_map(&count_and_encode, view, heads, 64, tokens, problem).by_hand);
    return maps_encoded - before;
  };
  EXPECT_EQ(encoded(64, 2), 1);
  EXPECT_EQ(encoded(64, 2), 0);
  EXPECT_EQ(encoded(32, 2), 1);
  EXPECT_EQ(encoded(32, 1), 1);
  view.dtype = DType::f16;
  EXPECT_EQ(encoded(32, 1), 1);
  view.token_stride = 256, view.batch_stride = 2048;
  EXPECT_EQ(encoded(32, 1), 1);
  problem.tokens = 7;
  EXPECT_EQ(encoded(32, 1), 1);
  EXPECT_EQ(encoded(32, 1), 0);
  view.data = memory + 8;  // 16 bytes on: the place where the last map was kept
  EXPECT_EQ(encoded(32, 1), 1);
  view.data = memory;
  EXPECT_EQ(encoded(32, 1), 1);
}

// ------------------------------------------------------------------------------------------------------ small programs

/// "" or the fault of a block of one warp group that does this.
std::string fault_of(const std::function<void()>& body, unsigned threads = 128, std::uint64_t seed = 1) {
  cuda::forget_launches();
  return cuda::run({1, 1, threads, 4096}, body, seed);
}
void expect_fault(const std::string& fault, const std::string& words) {
  EXPECT_NE(fault.find(words), std::string::npos) << (fault.empty() ? "no fault" : fault);
}
constexpr unsigned here = cuda::first_address;
void put(unsigned offset, std::uint32_t value) { cuda::write_shared(here + offset, &value, 4); }
std::uint32_t get(unsigned offset) {
  std::uint32_t value;
  cuda::read_shared(here + offset, &value, 4);
  return value;
}
unsigned thread() { return cuda::thread_index().x; }

TEST(CudaMachine, SharedMemory) {
  expect_fault(fault_of([] { put(4096 + 4 * thread(), 0); }), "beyond the block's 4096");
  expect_fault(fault_of([] { put(4 * thread() + 2, 0); }), "not aligned");
  EXPECT_EQ(fault_of([] { put(4 * thread(), 0); }), "");
}
TEST(CudaMachine, LanesThatDoNotMeet) {
  const auto program = [](bool meets) {
    return fault_of([=] {
      put(4 * thread(), thread());
      if (meets) cuda::meet_warp();
      if (get(4 * (thread() ^ 1)) != (thread() ^ 1) && meets) cuda::complain("the wrong value");
    });
  };
  EXPECT_EQ(program(true), "");
  expect_fault(program(false), "has not waited for that");
}
TEST(CudaMachine, AMeetingOfAWarpIsNoneOfOthers) {
  const auto program = [](bool block) {
    return fault_of([=] {
      put(4 * thread(), thread());
      block ? void(cuda::meet_block(0)) : cuda::meet_warp();
      (void)get(4 * ((thread() + 32) % 128));
    });
  };
  EXPECT_EQ(program(true), "");
  expect_fault(program(false), "has not waited for that");
}
/// Readers are waited for too.
TEST(CudaMachine, WritesOverWhatOthersRead) {
  expect_fault(fault_of([] {
                 if (thread() == 0) put(0, 1);
                 (void)cuda::meet_block(0);
                 thread() == 0 ? put(0, 2) : void(get(0));
               }),
               "has not waited for that");
}
/// One lane may arrive for its warp once that has met.
TEST(CudaMachine, OneLaneArrivesForItsWarp) {
  const auto program = [](bool meets, std::uint64_t seed) {
    return fault_of(
        [=] {
          if (thread() == 0) cuda::barrier_init(here + 2048, 4);
          (void)cuda::meet_block(0);
          put(4 * thread(), thread());
          if (meets) cuda::meet_warp();
          if (cuda::lane() == 0) cuda::arrive(here + 2048);
          cuda::wait_phase(here + 2048, 0);
          (void)get(4 * (thread() ^ 127));
        },
        128, seed);
  };
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    EXPECT_EQ(program(true, seed), "");
    expect_fault(program(false, seed), "has not waited for that");
  }
}
TEST(CudaMachine, Barriers) {
  const auto program = [](int expected, int arrivals, unsigned parity) {
    return fault_of([=] {
      if (thread() == 0) cuda::barrier_init(here, expected);
      (void)cuda::meet_block(0);
      if (thread() == 0) {
        for (int k = 0; k < arrivals; ++k) cuda::arrive(here);
      }
      cuda::wait_phase(here, parity);
    });
  };
  EXPECT_EQ(program(2, 2, 0), "");
  EXPECT_EQ(program(2, 0, 1), "");  // the phase before the first counts as done
  expect_fault(program(2, 1, 0), "nobody can go on; waiting for the barrier at 0, parity 0, 1 arrivals and 0 bytes");
  expect_fault(program(1, 2, 0), "nobody can go on");  // two phases: their parity is the first one's again
  expect_fault(fault_of([] { cuda::arrive(here); }), "there is no barrier at 0");
  expect_fault(fault_of(
                   [] {
                     if (thread() == 0) cuda::barrier_init(here, 1);
                     if (thread() == 64) cuda::arrive(here);
                   },
                   128, 3),
               "barrier");
}

// ------------------------------------------------------------------------------------------------------ whole calls

/// Several chunks and heads, the last chunk and the last slice not full.
Spec usual() {
  Spec spec;
  spec.type(DType::bf16);
  spec.tokens = 330, spec.heads = 3, spec.head_dim = 72, spec.state = 64;
  spec.skip = SkipForm::per_channel, spec.initial_states = DType::f32, spec.decay = Decay::slow;
  return spec;
}
Spec with_documents() {
  Spec spec = usual();
  spec.tokens = 200, spec.new_document = 0.05, spec.z = true;
  return spec;
}
Spec with_chunk_states() {
  Spec spec = usual();
  spec.tokens = 200, spec.type(DType::f16), spec.chunk_states = DType::f32, spec.options.chunk_states_every = 48;
  return spec;
}
/// Few heads: segments are summed first (there is a gate: no cluster has them all).
Spec in_segments() {
  Spec spec = usual();
  spec.tokens = 700, spec.heads = 1, spec.head_dim = 64, spec.z = true;
  return spec;
}
/// Few heads: a cluster has all segments of a sequence. The last is shorter, and its last chunk not full.
Spec in_a_chain() {
  Spec spec = usual();
  spec.tokens = 680, spec.heads = 1, spec.head_dim = 64;
  return spec;
}
/// Of more pieces of a state than there is room for at once.
Spec in_chains() {
  Spec spec = in_a_chain();
  spec.batch = 2, spec.state = 128;
  return spec;
}
/// And of more chunks than there are stages.
Spec in_a_long_chain() {
  Spec spec = in_a_chain();
  spec.tokens = 2000, spec.head_dim = 72, spec.state = 128;
  return spec;
}
/// Segments of several blocks.
Spec in_a_chain_of_parts() {
  Spec spec = in_a_chain();
  spec.tokens = 500, spec.state = 256;
  return spec;
}
/// Of more chunks than there are stages.
Spec in_long_segments() {
  Spec spec = in_segments();
  spec.tokens = 2700;
  return spec;
}
Spec of_a_cluster() {
  Spec spec = usual();
  spec.tokens = 150, spec.heads = 1, spec.head_dim = 64, spec.state = 256;
  return spec;
}
/// Whose workers have one head, and share its decays; in long segments, which are no chain.
Spec of_a_wide_head() {
  Spec spec = of_a_cluster();
  spec.tokens = 700, spec.head_dim = 128, spec.options.batch_invariant = true;
  return spec;
}
/// More pairs of heads than are walked at once: some are cut.
Spec in_dealt_sequences() {
  Spec spec = of_a_cluster();
  spec.tokens = 700, spec.heads = 8;
  return spec;
}
/// Of two sequences a walk for the end of each, and beside these a walk for the beginning of one: the other's is dealt
/// out. Of clusters, and ragged.
Spec in_dealt_beginnings() {
  Spec spec = of_a_cluster();
  spec.batch = 2, spec.tokens = 2681, spec.final_states = DType::f32;
  return spec;
}
/// Many of a group in clusters: their scores are made before, of two groups.
Spec with_scores_made() {
  Spec spec = of_a_cluster();
  spec.batch = 2, spec.tokens = 330, spec.heads = 16, spec.groups = 2, spec.initial_states = DType::f32;
  return spec;
}
/// Beside the sums of segments.
Spec with_scores_beside_sums() {
  Spec spec = of_a_cluster();
  spec.tokens = 2600, spec.heads = 2, spec.head_dim = 128;
  return spec;
}
/// Of packed sequences, some of which are empty, in four blocks each.
Spec with_scores_of_packed() {
  Spec spec = with_scores_made();
  spec.batch = 1, spec.heads = 6, spec.groups = 1, spec.state = 512;
  spec.pack({0, 65, 190, 0, 0, 64, 1, 0});
  return spec;
}
/// C at strides that the copy engine cannot take.
Spec with_scores_by_hand() {
  Spec spec = with_scores_made();
  spec.tokens = 150, spec.memory = Memory::one_buffer;
  return spec;
}
/// Many: one segment of more chunks than there are stages.
Spec in_one_segment() {
  Spec spec = usual();
  spec.tokens = 550, spec.heads = 12, spec.head_dim = 64;
  return spec;
}
/// x, B and C at strides that the copy engine cannot take; y it can: warps copy the ones, the engine the other.
Spec by_hand() {
  Spec spec = in_one_segment();
  spec.tokens = 330, spec.memory = Memory::one_buffer;
  return spec;
}
/// Chunks that end within others' rows and hold several documents.
Spec packed_with_documents() {
  Spec spec = usual();
  spec.pack({100, 90, 140}), spec.new_document = 0.05;
  return spec;
}
/// Of four blocks, and of more chunks than there are stages.
Spec of_a_large_cluster() {
  Spec spec = usual();
  spec.tokens = 330, spec.heads = 2, spec.head_dim = 64, spec.state = 448, spec.z = true, spec.new_document = 0.01;
  return spec;
}
/// Two tokens in all, so that nothing averages: scores that a cluster's blocks rounded each for itself were 1.48 of the
/// bar.
Spec of_single_tokens() {
  Spec spec;
  spec.type(DType::bf16);
  spec.batch = 2, spec.tokens = 1, spec.head_dim = 48, spec.state = 256;
  spec.skip = SkipForm::per_channel, spec.dt_bias = DType::bf16, spec.final_states = DType::bf16, spec.z = true;
  spec.new_document = 0.01, spec.options.dt_softplus = true, spec.options.batch_invariant = true;
  spec.memory = Memory::one_buffer, spec.seed = 6;
  return spec;
}

/// "" or what was wrong with a call on a backend's first policy that takes it, whatever its outputs are.
std::string fault_of(const Backend& backend, const Call& call, Mistake mistake = Mistake::none,
                     std::uint64_t seed = 1) {
  const Problem problem = call.problem();
  for (const Offer& offer : backend.offers(problem)) {
    if (!offer.refusal.empty()) continue;
    Outcome outcome;
    const auto executable = backend.prepare(problem, offer, outcome);
    if (executable == nullptr) return outcome.message;
    const std::unique_ptr<void, void (*)(void*)> workspace(
        std::aligned_alloc(256, (offer.workspace_bytes + 511) / 256 * 256), &std::free);
    cuda::begin_calls(seed);
    cuda::make(mistake);
    outcome = executable->run(call.arguments, workspace.get(), nullptr);
    cuda::make(Mistake::none);
    return outcome.message;
  }
  return "no policy takes it";
}
/// The same, and outputs are right.
std::string wrong_call(const Backend& backend, const Spec& spec, Mistake mistake = Mistake::none,
                       std::uint64_t seed = 1) {
  Call call(spec);
  call.prepare();
  if (std::string fault = fault_of(backend, call, mistake, seed); !fault.empty()) return fault;
  if (std::string damage = call.damage(); !damage.empty()) return damage;
  const golden::Shares shares =
      golden::compare(call.problem(), golden::gather(call.arguments), expected_of(spec).right, expected_of(spec).bars);
  return shares.pass() ? "" : "out of its bars: " + std::to_string(shares.worst());
}
const Backend& blackwell() { return ::tilemamba::cuda::sm100::backend(); }
const Backend& hopper() { return ::tilemamba::cuda::sm90::backend(); }

void expect_right(const Backend& backend, const std::vector<Spec>& specs, std::uint64_t orders) {
  for (const Spec& spec : specs) {
    for (std::uint64_t seed = 1; seed <= orders; ++seed)
      EXPECT_EQ(wrong_call(backend, spec, Mistake::none, 100 * seed), "") << backend.name() << ' ' << spec;
  }
}
const std::vector<Spec>
    short_ones = {usual(), with_documents(), with_chunk_states(), in_a_chain(), of_a_wide_head(), with_scores_made()},
    others = {in_segments(),           in_long_segments(),      in_one_segment(),      by_hand(),
              packed_with_documents(), of_a_cluster(),          of_a_large_cluster(),  of_single_tokens(),
              in_dealt_sequences(),    in_dealt_beginnings(),   in_chains(),           in_a_long_chain(),
              in_a_chain_of_parts(),   with_scores_of_packed(), with_scores_by_hand(), with_scores_beside_sums()};
TEST(CudaCalls, OnHopperInWhateverOrder) { expect_right(hopper(), short_ones, 5); }
TEST(CudaCalls, OnHopperEveryWay) { expect_right(hopper(), others, 1); }
TEST(CudaCalls, OnBlackwellInWhateverOrder) { expect_right(blackwell(), short_ones, 5); }
TEST(CudaCalls, OnBlackwellEveryWay) { expect_right(blackwell(), others, 1); }
/// Not even walks that are dealt out.
TEST(CudaCalls, NothingIsLaunchedForNoSequence) {
  Spec spec = in_dealt_sequences();
  spec.batch = 0;
  for (const Backend* const backend : {&hopper(), &blackwell()}) {
    Call call(spec);
    call.prepare();
    EXPECT_EQ(fault_of(*backend, call), "") << backend->name();
    EXPECT_EQ(call.damage(), "") << backend->name();
  }
}
/// Nor does anybody reach beyond what there is, or wait for ever, where sequences overlap or end before they begin.
TEST(CudaCalls, OfBadSequences) {
  for (const Backend* const backend : {&hopper(), &blackwell()}) {
    Call call(with_scores_of_packed());
    const auto bounds = {0, 300, -5, 190, 190, 1000, 7, 320, 254};
    std::ranges::copy(bounds, static_cast<std::int32_t*>(const_cast<void*>(call.arguments.cu_seqlens->data)));
    call.prepare();
    EXPECT_EQ(fault_of(*backend, call), "") << backend->name();
    EXPECT_EQ(call.damage(), "") << backend->name();
  }
}
/// What is not finite stays in its document, of which a segment's sum has whole chunks before the next one's.
TEST(CudaCalls, SumsEndWhereADocumentBegins) {
  Spec spec = in_long_segments();
  spec.new_document = 1e-9;
  for (const Backend* const backend : {&hopper(), &blackwell()}) {
    for (std::int64_t border = 1216; border <= 1472; border += 64) {
      const auto call = [&](bool spoiled) {
        Call made(spec);
        for (std::int64_t t = 0; t < spec.tokens; ++t) set(*made.arguments.seq_idx, t < border ? 7 : 8, 0, t);
        for (const std::int64_t before : {6, 70, 134}) {
          if (spoiled) set(made.arguments.B, std::numeric_limits<double>::quiet_NaN(), 0, border - before, 0, 0);
        }
        made.prepare();
        EXPECT_EQ(fault_of(*backend, made), "");
        return made;
      };
      const Call clean = call(false), spoiled = call(true);
      const auto after = [&](const Call& of) { return slice(of.arguments.y, 1, border, spec.tokens - border); };
      expect_same_bits(after(clean), after(spoiled), "y from token " + std::to_string(border));
      expect_same_bits(*clean.arguments.final_states, *spoiled.arguments.final_states, "final state");
    }
  }
}

// ------------------------------------------------------------------------------------------------- how sequences are
// cut

/// Whatever the cut, every unit is walked once, what takes longest begins first, and what a walk begins after, and
/// nothing else, is summed once.
TEST(CudaWalks, GoOverEveryUnitOnce) {
  using tilemamba::cuda::tma::Walks;
  const auto expect = [](int length, int sequences, int units, int dealt) {
    SCOPED_TRACE(testing::Message() << length << ' ' << sequences << ' ' << units << ' ' << dealt);
    const Walks walks(length, sequences, units, dealt);
    using Counts = std::vector<int>;
    const auto all = static_cast<std::size_t>(sequences * units);
    Counts walked(all), needed(all), summed(all);
    const auto count = [&](Counts& counts, int sequence, int unit) -> int& {
      return counts.at(static_cast<std::size_t>(sequence * units + unit));
    };
    int longest = length;
    for (int index = 0; index < walks.count(); ++index) {
      const Walks::Walk walk = walks[index];
      ASSERT_TRUE(walk.sequence >= 0 && walk.sequence < sequences && walk.begin >= 0 && walk.units > 0);
      ASSERT_LE(walk.begin + walk.units, units);
      EXPECT_LE(walk.units, longest);
      longest = walk.units;
      for (int unit = 0; unit < walk.begin; ++unit) count(needed, walk.sequence, unit) = 1;
      for (int unit = walk.begin; unit < walk.begin + walk.units; ++unit) ++count(walked, walk.sequence, unit);
    }
    EXPECT_EQ(walked, Counts(all, 1));
    for (int index = 0; index < walks.sums(); ++index) {
      const Walks::Walk unit = walks.sum(index);
      ASSERT_TRUE(unit.sequence >= 0 && unit.sequence < sequences && unit.begin >= 0 && unit.begin < units);
      EXPECT_EQ(unit.units, 1);
      ++count(summed, unit.sequence, unit.begin);
    }
    EXPECT_EQ(summed, needed);
  };
  for (const int sequences : {1, 2, 5}) {
    for (const int units : {1, 2, 3, 7, 15}) {
      for (int length = 1; length <= units; ++length) {
        for (int dealt = 0; dealt < sequences; ++dealt) expect(length, sequences, units, dealt);
      }
    }
  }
}
/// Of an H200: clusters of 1, 2, ... blocks.
constexpr ::tilemamba::cuda::tma::AtOnce at_once = {0, 132, 66, 39, 30, 22, 17, 15, 15};

/// Of the one that the host plays (runtime.cpp).
constexpr ::tilemamba::cuda::tma::AtOnce of_the_played_machine = {0, 6, 3, 2, 1, 1, 1, 1, 1};

/// The calls that are to be cut so, on the machine that is played, are.
TEST(CudaWalks, AreDealtOut) {
  using namespace tilemamba::cuda;
  for (const Spec& spec : {in_dealt_sequences(), in_dealt_beginnings()}) {
    Call call(spec);
    const Problem problem = call.problem();
    const auto policy =
        std::ranges::find_if(sm90::policies, [&](const tma::Policy& its) { return its.state == problem.state; });
    EXPECT_GT(tma::cutting_of(problem, *policy, of_the_played_machine).dealt, 0) << spec;
  }
}
/// 16 sequences on 30 clusters: 30 walks at once, and what two of these leave; uncut or cut evenly they would take two
/// rounds.
TEST(CudaWalks, FillTheDevice) {
  using namespace tilemamba::cuda;
  const tma::Policy& policy = sm90::policies.back();
  for (const std::int64_t chunks : {64, 256, 1024}) {
    const tma::Cutting cutting = tma::best_cutting({16, chunks, 4}, policy, at_once, true, true);
    EXPECT_EQ(cutting.dealt, 2) << chunks;
    // The last walks, and the first ones with one that was dealt out.
    const std::int64_t units = kernels::divide_up(chunks, cutting.unit_chunks),
                       begin = (units - cutting.units) * cutting.unit_chunks;
    for (const std::int64_t longest : {chunks - begin, begin + cutting.unit_chunks})
      EXPECT_LT(static_cast<double>(longest), 0.63 * static_cast<double>(chunks)) << chunks;
  }
}

/// What takes longest, in chunks: of 16 sequences of 24 chunks, four blocks each.
TEST(CudaWalks, TakeAsLongAsTheLongest) {
  using namespace tilemamba::cuda;
  tma::Policy policy = sm90::policies.back();
  const auto time_of = [&](const tma::Cutting& cutting) { return tma::time_of(cutting, {16, 24, 4}, policy, at_once); };
  policy.costs = {}, policy.costs.walk_chunk = 1;
  EXPECT_EQ(time_of({24, 1}), 25);        // its final state counts as a chunk
  EXPECT_EQ(time_of({12, 1}), 12 + 13);   // two turns of 30 walks
  EXPECT_EQ(time_of({4, 3, 2}), 12 + 4);  // the first walks of 14 sequences, then what two more were dealt out to
  EXPECT_EQ(time_of({13, 1, 0, 2}), 0);   // is no walk
  policy.costs = {}, policy.costs.again = 1;
  EXPECT_EQ(time_of({24, 1}), 0);
  EXPECT_EQ(time_of({12, 1}), 1);
  EXPECT_EQ(time_of({4, 1}), 3 + 1);  // four turns of walks, two of sums
  policy.costs = {}, policy.costs.sum_chunk = 1;
  EXPECT_EQ(time_of({24, 1}), 0);
  EXPECT_EQ(time_of({4, 1}), 4 * 2);  // 80 units, two blocks each: two turns of 132
  policy.costs = {}, policy.costs.chain_chunk = 1;
  EXPECT_EQ(time_of({13, 1, 0, 2}), 13);
  EXPECT_EQ(time_of({12, 1, 0, 2}), 13);
  policy.costs = {}, policy.costs.scored_chunk = 1;
  EXPECT_EQ(time_of({24, 1}), 0);
  EXPECT_EQ(time_of({24, 1, 0, 1, true}), 25);
  policy.costs = {}, policy.costs.score_chunk = 1;
  EXPECT_EQ(time_of({24, 1}), 0);
  EXPECT_EQ(time_of({24, 1, 0, 1, true}), 4 * 24);
}

// --------------------------------------------------------------------------------------------------------------- plans

/// How sm90 cuts a problem.
::tilemamba::cuda::tma::Cutting cutting(const Problem& problem, const ::tilemamba::cuda::tma::AtOnce& on = at_once) {
  using namespace ::tilemamba::cuda;
  for (const tma::Policy& policy : sm90::policies) {
    if (problem.state <= policy.state) return tma::cutting_of(problem, policy, on);
  }
  return {};
}
/// Of the published grid.
Problem of_the_grid(std::int64_t tokens, int state) {
  Problem problem;
  problem.x = problem.y = problem.dt = DType::bf16;
  problem.batch = 4, problem.tokens = tokens, problem.heads = 8, problem.groups = 1;
  problem.head_dim = 64, problem.state = state;
  return problem;
}
/// Under batch_invariant nothing but a sequence's own heads may decide.
TEST(CudaPlans, InvariantCutsKnowNoCompany) {
  const auto segment = [](std::int64_t batch, std::int64_t tokens, int packed, const auto& on) {
    Problem problem = of_the_grid(tokens, 128);
    problem.batch = batch, problem.options.batch_invariant = true;
    if (packed > 0) problem.packed_sequences = packed;
    const auto cut = cutting(problem, on);
    EXPECT_EQ(cut.units, 1);
    EXPECT_EQ(cut.dealt, 0);
    EXPECT_EQ(cut.chained, 1);
    return cut.unit_chunks;
  };
  const std::int64_t alone = segment(1, 1024, 0, at_once);
  EXPECT_EQ(segment(8, 1024, 0, at_once), alone);
  EXPECT_EQ(segment(1, 262144, 0, at_once), alone);
  EXPECT_EQ(segment(1, 262144, 300, at_once), alone);
  EXPECT_EQ(segment(1, 1024, 0, of_the_played_machine), alone);
}
TEST(CudaPlans, ShortSequencesAreChains) {
  for (const int state : {64, 128}) {
    const Problem problem = of_the_grid(1024, state);
    const auto cut = cutting(problem);
    EXPECT_EQ(cut.chained, 6) << state;  // 16 clusters, as many as there are pairs of heads
    EXPECT_EQ(cut.unit_chunks, 3) << state;
    EXPECT_EQ(cut.units, 1) << state;
    const kernels::WorkspaceLayout layout(problem, ::tilemamba::cuda::tma::arrangement_of(cut));
    EXPECT_EQ(layout.slots, 0);
    EXPECT_EQ(layout.bytes, 0U);
  }
}
/// Where a group has many heads, so many floats a chunk; not where bits must not depend on others, nor in one block.
TEST(CudaPlans, ScoresOfManyHeadsAreMadeOnce) {
  Problem problem = of_the_grid(65536, 256);
  EXPECT_FALSE(cutting(problem).scored);
  problem.heads = 48;
  const auto cut = cutting(problem);
  EXPECT_TRUE(cut.scored);
  EXPECT_EQ(cut.chained, 1);
  const auto bytes = [&](bool scored) {
    auto its = cut;
    its.scored = scored;
    return kernels::WorkspaceLayout(problem, ::tilemamba::cuda::tma::arrangement_of(its)).bytes;
  };
  EXPECT_EQ(bytes(true) - bytes(false), 4U * 1024 * (64 * 64 + 64 * 16) / 2 * sizeof(float));
  problem.options.batch_invariant = true;
  EXPECT_FALSE(cutting(problem).scored);
  problem.options.batch_invariant = false, problem.z = true;
  EXPECT_FALSE(cutting(problem).scored);
  problem.z = false, problem.state = 128;
  EXPECT_FALSE(cutting(problem).scored);
  // OnCuda.ManyHeadsOfAGroup
  problem.batch = 1, problem.tokens = 1300, problem.head_dim = 8;
  problem.heads = 132, problem.state = 256;
  EXPECT_TRUE(cutting(problem).scored);
  problem.tokens = 500, problem.heads = 64, problem.state = 512;
  EXPECT_TRUE(cutting(problem).scored);
  problem.packed_sequences = 5;
  EXPECT_TRUE(cutting(problem).scored);
}
TEST(CudaPlans, ScoresOfThePlayedMachine) {
  for (const Spec& spec :
       {with_scores_made(), with_scores_of_packed(), with_scores_by_hand(), with_scores_beside_sums()})
    EXPECT_TRUE(cutting(Call(spec).problem(), of_the_played_machine).scored) << spec;
  const Problem problem = Call(with_scores_beside_sums()).problem();
  EXPECT_LT(cutting(problem, of_the_played_machine).unit_chunks, problem.tokens / 64);
}
TEST(CudaPlans, ChainsOfThePlayedMachine) {
  for (const Spec& spec : {in_a_chain(), in_chains(), in_a_long_chain(), in_a_chain_of_parts()})
    EXPECT_GT(cutting(Call(spec).problem(), of_the_played_machine).chained, 1) << spec;
}
TEST(CudaPlans, ChainsFitClusters) {
  for (std::int64_t tokens = 1; tokens < 10000; tokens += 7) {
    for (const int state : {64, 128, 256, 512}) {
      const auto cut = cutting(of_the_grid(tokens, state));
      EXPECT_LE(cut.chained * std::max(1, state / 128), ::tilemamba::cuda::tma::most_blocks_of_cluster);
      if (cut.chained == 1) continue;
      // No segment is empty, and none is left over.
      EXPECT_EQ(kernels::divide_up(kernels::divide_up<std::int64_t>(tokens, 64), cut.unit_chunks), cut.chained);
    }
  }
}
TEST(CudaPlans, ChainsAreForPlainCalls) {
  const auto chained = [](const auto& change) {
    Problem problem = of_the_grid(1024, 128);
    change(problem);
    return cutting(problem).chained;
  };
  EXPECT_EQ(chained([](Problem&) {}), 6);
  EXPECT_EQ(chained([](Problem& problem) { problem.z = true; }), 1);
  EXPECT_EQ(chained([](Problem& problem) { problem.seq_idx = true; }), 1);
  EXPECT_EQ(chained([](Problem& problem) { problem.y = DType::f32; }), 1);
  EXPECT_EQ(chained([](Problem& problem) { problem.options.batch_invariant = true; }), 1);
  EXPECT_EQ(chained([](Problem& problem) { problem.batch = 1, problem.packed_sequences = 2; }), 1);
  EXPECT_EQ(chained([](Problem& problem) { problem.tokens = 65536; }), 1);
}

// ---------------------------------------------------------------------------------------- mistakes put in on purpose

struct Made {
  Mistake mistake;
  Spec spec;
  const char* seen;               ///< part of the fault; empty: it shows in one way or another
  const char* or_seen = nullptr;  ///< the same, where threads come in another order
};
void expect_seen(const Backend& backend, const std::vector<Made>& all) {
  for (const Made& made : all) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const std::string fault = wrong_call(backend, made.spec, made.mistake, seed);
      const auto shows = [&](const char* part) { return part != nullptr && fault.find(part) != std::string::npos; };
      EXPECT_TRUE(!fault.empty() && (shows(made.seen) || shows(made.or_seen)))
          << "mistake " << static_cast<int>(made.mistake) << " is seen as: " << (fault.empty() ? "nothing" : fault);
    }
  }
}
TEST(CudaMistakes, OfWhoWaits) {
  expect_seen(
      hopper(),
      {
          {Mistake::wait_left_out, usual(), "has not waited for that"},
          {Mistake::wait_for_room_left_out, in_one_segment(), "has not waited for that"},
          {Mistake::parity_swapped, usual(), ""},
          {Mistake::arrival_left_out, usual(), "nobody can go on"},
          {Mistake::arrival_too_many, usual(), "has not waited for that"},
          {Mistake::bytes_miscounted, usual(), "more bytes come to a barrier than are expected"},
          {Mistake::fence_left_out, usual(), "not published (fence.proxy.async)"},
          {Mistake::warp_does_not_meet, usual(), "has not waited for that"},
          {Mistake::cluster_does_not_meet, of_a_cluster(), "and it has not waited for that"},
          {Mistake::stores_not_waited_for, in_one_segment(), "the copy engine, storing for warp 3 reads"},
          {Mistake::launch_not_waited_for, in_segments(), "what the launch before has written"},
          {Mistake::launch_not_waited_for, with_scores_made(), "what the launch before has written"},
          {Mistake::second_launch_does_not_wait, with_scores_beside_sums(), "for whose end the next one has not"},
          {Mistake::others_not_waited_for, in_one_segment(), "what belongs to the launch before"},
          {Mistake::others_not_waited_for, in_a_chain(), "what belongs to the launch before"},
      });
}
TEST(CudaMistakes, OfWhatAClusterSums) {
  for (const Backend* const backend : {&hopper(), &blackwell()}) {
    expect_seen(*backend, {
                              {Mistake::scores_not_waited_for, of_a_large_cluster(), "has not waited for that"},
                              {Mistake::scores_parity_swapped, of_a_large_cluster(), ""},
                              {Mistake::scores_bytes_miscounted, of_a_large_cluster(), ""},
                              {Mistake::outputs_not_waited_for, of_a_large_cluster(), "has not waited for that"},
                              {Mistake::outputs_parity_swapped, of_a_large_cluster(), ""},
                              {Mistake::outputs_bytes_miscounted, of_a_large_cluster(), ""},
                          });
  }
}
/// A state that goes along a chain comes as outputs do in a cluster.
TEST(CudaMistakes, OfChains) {
  for (const Backend* const backend : {&hopper(), &blackwell()}) {
    expect_seen(*backend, {
                              {Mistake::cluster_does_not_meet, in_a_long_chain(), "and it has not waited for that"},
                              {Mistake::outputs_not_waited_for, in_a_chain(), "has not waited for that"},
                              {Mistake::outputs_not_waited_for, in_a_long_chain(), "has not waited for that",
                               "a barrier gets an arrival too many"},
                              {Mistake::outputs_parity_swapped, in_a_long_chain(), ""},
                              {Mistake::outputs_bytes_miscounted, in_a_long_chain(), ""},
                              {Mistake::wait_left_out, in_a_long_chain(), "has not waited for that"},
                              {Mistake::arrival_left_out, in_a_long_chain(), "nobody can go on"},
                          });
  }
}
TEST(CudaMistakes, OfWgmma) {
  expect_seen(hopper(),
              {
                  {Mistake::product_not_fenced, usual(), "a product without wgmma.fence"},
                  {Mistake::product_not_waited_for, in_one_segment(), "a register of a product that is under way"},
                  {Mistake::product_waited_for_too_late, in_one_segment(), "a register of a product that is under way"},
                  {Mistake::wrong_stride, usual(), "its product reads shared memory"},
              });
}
TEST(CudaMistakes, OfPlaces) {
  expect_seen(hopper(), {
                            {Mistake::swizzle_of_64_bytes, usual(), "out of its bars"},
                            {Mistake::matrices_swapped, usual(), "out of its bars"},
                            {Mistake::rows_swapped, usual(), "out of its bars"},
                            {Mistake::not_transposed, usual(), "out of its bars"},
                        });
}
TEST(CudaMistakes, OfTcgen05) {
  expect_seen(blackwell(), {
                               {Mistake::tensor_loads_not_waited_for, usual(), "a register"},
                               {Mistake::tensor_stores_not_waited_for, usual(), "tensor memory"},
                               {Mistake::before_left_out, usual(), "and that has not been waited for"},
                               {Mistake::after_left_out, usual(), "and that has not been waited for"},
                               {Mistake::commit_left_out, usual(), "nobody can go on"},
                               {Mistake::commit_too_early, in_one_segment(), "and that has not been waited for"},
                               {Mistake::lanes_of_others, usual(), "is none of its warp's"},
                               {Mistake::other_half_of_lanes, usual(), "are in different lanes"},
                               {Mistake::few_columns, usual(), "are not all allocated"},
                               {Mistake::columns_overlap, usual(), "tensor memory"},
                               {Mistake::instruction_of_other_type, usual(), "out of its bars"},
                               {Mistake::not_released, usual(), "has not released its tensor memory"},
                               {Mistake::wait_left_out, usual(), "has not waited for that"},
                               {Mistake::fence_left_out, usual(), "not published (fence.proxy.async)"},
                           });
}

}  // namespace
}  // namespace tilemamba::test
