// SPDX-License-Identifier: Apache-2.0
/// @file
/// An NVIDIA GPU from Hopper on, played by the host: it runs the text of a kernel thread by thread. Threads are fibers
/// that take turns in a random order; what the device does in the background (the copy engine, the tensor cores) is
/// done at a random time between its issue and the moment somebody has waited for it.
///
/// Who may touch what is known from vector clocks: every thread, and every engine that works for it, counts what it has
/// done, and learns what others had done when it meets them, at whatever kind of barrier. Shared memory that is touched
/// by two of whom neither knows of the other is a fault, and so is what an engine reads and no fence has published, a
/// register of a product that is under way, a barrier that gets too many arrivals, a wait that nobody ends.
///
/// The accesses of the kernel's own C++ are seen because its text is compiled with -fsanitize=thread, whose calls go to
/// this machine instead of that sanitizer's run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <tilemamba/dtype.hpp>

namespace tilemamba::test::cuda {

struct Index {
  unsigned x, y, z;
};
struct Launch {
  unsigned blocks = 1, cluster = 1, threads = 128;
  std::size_t shared_bytes = 0;
  bool early = false;  ///< it may begin before the launch before has ended
};
/// Runs `body` in every thread of every block, cluster after cluster. Shared memory is full of NaN at first. @returns
/// the first fault that was seen, or "".
[[nodiscard]] std::string run(const Launch& launch, const std::function<void()>& body, std::uint64_t seed = 1);
/// A sequence of launches begins. What came before it may still use all memory, until the first launch has waited.
void forget_launches();

// ----------------------------------------------------------------------------------------- mistakes put in on purpose

enum class Mistake {
  none,
  wait_left_out,           ///< warps from 8 on wait at no mbarrier
  wait_for_room_left_out,  ///< nor does warp 0, which fills stages
  parity_swapped,          ///< of the waits of warps from 8 on
  arrival_left_out,        ///< of warp 8
  arrival_too_many,        ///< of warp 8
  bytes_miscounted,        ///< a barrier expects 16 less
  fence_left_out,          ///< fence.proxy.async
  warp_does_not_meet,      ///< __syncwarp
  cluster_does_not_meet,   ///< barrier.cluster
  // Of what blocks of a cluster give each other: scores, warps 4 to 7, and outputs, warps from 8 on.
  scores_not_waited_for,
  scores_parity_swapped,
  scores_bytes_miscounted,
  outputs_not_waited_for,
  outputs_parity_swapped,
  outputs_bytes_miscounted,
  stores_not_waited_for,        ///< cp.async.bulk.wait_group
  launch_not_waited_for,        ///< griddepcontrol.wait, not in a sequence's first launch
  others_not_waited_for,        ///< the same, there
  second_launch_does_not_wait,  ///< and so may end before the first
  product_not_fenced,           ///< wgmma.fence
  product_not_waited_for,       ///< wgmma.wait_group
  product_waited_for_too_late,  ///< one group more is left under way
  swizzle_of_64_bytes,          ///< the copy engine's
  wrong_stride,                 ///< of descriptors
  matrices_swapped,             ///< two of those that stmatrix stores
  rows_swapped,                 ///< of accumulators
  not_transposed,               ///< ldmatrix
  halves_swapped,               ///< of the a of mma.sync
  edges_not_filled,             ///< with zeros, by the copy engine
  // Of tcgen05.
  tensor_loads_not_waited_for,   ///< wait::ld
  tensor_stores_not_waited_for,  ///< wait::st
  before_left_out,               ///< fence::before_thread_sync
  after_left_out,                ///< fence::after_thread_sync
  commit_left_out,               ///< of warp 8
  commit_too_early,              ///< before the last product
  lanes_of_others,               ///< of tensor memory: those of the next warp
  other_half_of_lanes,           ///< of the results of products
  few_columns,                   ///< half of those that are used are allocated
  columns_overlap,               ///< results lie 32 columns further
  instruction_of_other_type,     ///< its descriptor's
  not_released,                  ///< dealloc
};
/// Made by all launches of this thread of the host until it is something else.
void make(Mistake mistake);
[[nodiscard]] bool makes(Mistake mistake);

// ------------------------------------------------------------------------------------------------ what a thread may
// ask

[[nodiscard]] Index thread_index();
[[nodiscard]] Index block_index();
[[nodiscard]] Index block_size();
[[nodiscard]] Index grid_size();
[[nodiscard]] int warp();
[[nodiscard]] int lane();
[[noreturn]] void complain(const std::string& fault);

// Shared memory: as C++ sees it, and by addresses of its own, which say which block of the cluster they are in.
inline constexpr unsigned first_address = 1024;  ///< of a block's own memory; what is before is the system's
inline constexpr int rank_bits = 24;             ///< above the address in a block
[[nodiscard]] unsigned char* shared_memory();
[[nodiscard]] unsigned shared_address();
void read_shared(unsigned address, void* to, unsigned size);
void write_shared(unsigned address, const void* from, unsigned size);

// Meetings.
void meet_warp();
[[nodiscard]] int meet_block(int vote);  ///< @returns whether any vote is not 0
void meet_some(int id, int threads);
void arrive_at_cluster();
void wait_for_cluster();
/// All lanes of the warp come here, each with an object of its own; `perform` is called once with all of them. No
/// memory is ordered by it.
void together(void* mine, void (*perform)(void* const* all));
/// What that lane of the warp has; where there is no such lane, what this one has.
[[nodiscard]] std::uint32_t of_lane(std::uint32_t bits, int from);

// mbarriers
void barrier_init(unsigned barrier, int arrivals);
void publish_barriers();
void arrive(unsigned barrier, unsigned bytes = 0);  ///< the bytes are expected
void wait_phase(unsigned barrier, unsigned parity);
[[nodiscard]] bool phase_done(unsigned barrier, unsigned parity);
void publish_to_engines();

// The copy engine.
struct TensorMap {
  unsigned char* data;
  std::uint64_t counts[4], strides[4];  ///< of elements; of bytes
  std::uint32_t box[4];
  std::uint32_t encoded;  ///< `mark`
  static constexpr std::uint32_t mark = 0x7e45a9;
};
void load_box(unsigned to, const TensorMap& map, const int (&at)[4], unsigned barrier);
void store_box(const TensorMap& map, unsigned from, const int (&at)[4]);
void commit_stores();
void wait_stores();  ///< of this thread
void store_there(unsigned to, const float* v, unsigned barrier);

void wait_for_last_launch();

// wgmma
struct Product {
  float* d;
  int columns;
  const std::uint32_t* a;  ///< registers; null: `a_descriptor`
  std::uint64_t a_descriptor, b_descriptor;
  DType type;
  bool accumulate, b_transposed;  ///< transposed: rows along the inner dimension
};
void begin_products();
void multiply(const Product& product);
void commit_products();
void wait_products(int pending);

// tcgen05: tensor memory, and products by one thread.
void tensor_allocate(unsigned to, unsigned columns);
void tensor_relinquish();
void tensor_release(unsigned address, unsigned columns);
/// 16 lanes of columns, in the shape .16x256b (`wide`) or .16x128b.
void tensor_load(std::uint32_t* r, int count, unsigned from);
void tensor_store(const std::uint32_t* r, int count, unsigned to, bool wide);
void wait_tensor_loads();
void wait_tensor_stores();
void fence_before_sync();
void fence_after_sync();
[[nodiscard]] bool elect();
struct TensorProduct {
  unsigned d, a;
  bool a_in_tensor;  ///< else `a_descriptor`
  std::uint64_t a_descriptor, b_descriptor;
  std::uint32_t instruction;
  bool accumulate;
};
void tensor_multiply(const TensorProduct& product);
void commit_tensor_products(unsigned barrier);

// mma.sync: d += a b of a warp. fp32: of tf32, four words of a and two of b; else 16 bits, as many words.
void multiply_here(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], DType type);

// ldmatrix and stmatrix of four matrices.
void load_matrices(std::uint32_t (&r)[4], unsigned address, bool transposed);
void store_matrices(unsigned address, const std::uint32_t (&r)[4], bool transposed);

// --------------------------------------------------------------- what lies where, as NVIDIA's documents have it

/// Row and column.
struct At {
  int row, column;
  friend bool operator==(const At&, const At&) = default;
};
/// PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": element `i` of a thread's A (eight of 16 bits) and D.
[[nodiscard]] At of_a(int thread, int i);
[[nodiscard]] At of_d(int thread, int i);
/// PTX ISA, "Matrix Fragments for mma.m16n8k16" of 16-bit elements: (inner, column) of element `i` of a lane's B. A and
/// D are those of a warp of wgmma.
[[nodiscard]] At of_b(int lane, int i);
/// PTX ISA, "Matrix Fragments for mma.m16n8k8" of .tf32.
[[nodiscard]] At of_a_tf32(int lane, int i);
[[nodiscard]] At of_b_tf32(int lane, int i);
/// PTX ISA, "ldmatrix": half `half` of the word that a lane gets of an 8x8 matrix.
[[nodiscard]] At of_matrix(int lane, int half, bool transposed);
/// PTX ISA, "Swizzling modes" of 128 bytes: where a byte lies of what would lie at `address`.
[[nodiscard]] unsigned swizzled(unsigned address);
/// PTX ISA, "Matrix Descriptor Format" of wgmma: where element (row, inner) of a 16-bit operand lies. `transposed`:
/// rows follow each other ("MN-major").
[[nodiscard]] unsigned in_shared(std::uint64_t descriptor, bool transposed, int row, int inner);
/// PTX ISA, "Matrix fragments for shape .16x256b" and ".16x128b": lane of tensor memory, from the first of sixteen, and
/// column of register `i` of a thread.
[[nodiscard]] At in_tensor(int thread, int i, bool wide);
/// PTX ISA, "Data Path Layout Organization", layout F (M = 64): the lane of a row.
[[nodiscard]] int lane_of_row(int row);
/// PTX ISA, "Instruction descriptor" of .kind::f16.
struct Instruction {
  bool right;  ///< nothing that this machine does not play
  DType type;
  bool b_transposed;
  int rows, columns;
};
[[nodiscard]] Instruction decoded(std::uint32_t descriptor);

}  // namespace tilemamba::test::cuda
