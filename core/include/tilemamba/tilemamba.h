/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * tilemamba for C, and for every language that can call C: the forward pass of the Mamba-2 chunked scan (SSD; Dao & Gu
 * 2024, "Transformers are SSMs"). What it computes is written in tilemamba.hpp and docs/c.md.
 *
 * Sizes: batch B, tokens T, heads H, head dimension P, groups G (head h reads group h / (H/G)), state size N, packed
 * sequences S.
 *
 * Errors. Functions that can fail return a status; whatever is not TILEMAMBA_OK has a message in
 * tilemamba_last_error(). A call that failed has launched nothing and written nothing, unless the status is
 * TILEMAMBA_BACKEND_FAILURE.
 *
 * Structs. Each begins with its own size, so that it can grow: begin with TILEMAMBA_..._INIT, or set the size and every
 * other field. A library that is newer than the header takes defaults for what the caller does not know; one that is
 * older refuses fields that it does not know, unless they are zero.
 *
 * Threads. Every function may be called from several threads at once, also with one plan, given that each call has a
 * workspace and outputs of its own. Nobody may use a plan or a list while it is destroyed.
 */
#ifndef TILEMAMBA_TILEMAMBA_H
#define TILEMAMBA_TILEMAMBA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <tilemamba/export.hpp> /* macros only */

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the library, "major.minor.patch". */
TILEMAMBA_EXPORT const char* tilemamba_version(void);

/* ------------------------------------------------------------------------------------------------------------ errors
 */

typedef int32_t tilemamba_status;
enum {
  TILEMAMBA_OK = 0,
  TILEMAMBA_INVALID_ARGUMENT = 1, /**< an argument is wrong in itself: a shape, a stride, a value, a null pointer */
  TILEMAMBA_UNSUPPORTED = 2,      /**< a legal argument that the chosen backend cannot honour */
  TILEMAMBA_NO_BACKEND = 3,       /**< no backend can run here, the forced one cannot, or its name is unknown */
  TILEMAMBA_OUT_OF_MEMORY = 4,    /**< the workspace is too small or could not be had */
  TILEMAMBA_BACKEND_FAILURE = 7,  /**< a launch or the device failed */
  TILEMAMBA_INTERNAL = 8          /**< a fault of the library itself */
};

/** What the last call of this thread that failed said: the tensor or option, what it was and what would be right. Valid
 * until another call of this thread fails. Empty if none has. */
TILEMAMBA_EXPORT const char* tilemamba_last_error(void);

/* ----------------------------------------------------------------------------------------------------------- tensors
 */

typedef int32_t tilemamba_dtype;
enum { TILEMAMBA_F32 = 0, TILEMAMBA_F16 = 1, TILEMAMBA_BF16 = 2, TILEMAMBA_I32 = 3 };

typedef int32_t tilemamba_device_kind;
enum { TILEMAMBA_CPU = 0, TILEMAMBA_CUDA = 1, TILEMAMBA_HIP = 2 };

enum { TILEMAMBA_MAX_RANK = 5 };

/** Somebody else's memory, and how to walk it. Strides count elements; the last dimension must be contiguous. */
typedef struct tilemamba_tensor {
  size_t size;
  void* data; /**< only read, if the tensor is an input */
  tilemamba_dtype dtype;
  int32_t rank;
  int64_t shape[TILEMAMBA_MAX_RANK];
  int64_t strides[TILEMAMBA_MAX_RANK];
  tilemamba_device_kind device_kind;
  int32_t device_index;
} tilemamba_tensor;

/** A dense row-major tensor in CPU memory. */
static inline tilemamba_tensor tilemamba_dense(void* data, tilemamba_dtype dtype, int32_t rank, const int64_t* shape) {
  tilemamba_tensor tensor = {sizeof(tilemamba_tensor), NULL, 0, 0, {0}, {0}, TILEMAMBA_CPU, 0};
  int64_t stride = 1;
  int32_t d;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = rank; /* a rank that is out of range is refused by name when the tensor is used */
  for (d = rank <= TILEMAMBA_MAX_RANK ? rank : 0; d-- > 0; stride *= shape[d]) {
    tensor.shape[d] = shape[d];
    tensor.strides[d] = stride;
  }
  return tensor;
}

/* ------------------------------------------------------------------------------------------------------------ a call
 */

/** The tensors of one call, all on one device. NULL: not passed. */
typedef struct tilemamba_arguments {
  size_t size;
  const tilemamba_tensor* x;              /**< (B,T,H,P), f32, f16 or bf16 */
  const tilemamba_tensor* dt;             /**< (B,T,H), as x or f32 */
  const tilemamba_tensor* A;              /**< (H), f32; values <= 0 in every real model */
  const tilemamba_tensor* B;              /**< (B,T,G,N), as x */
  const tilemamba_tensor* C;              /**< (B,T,G,N), as x */
  const tilemamba_tensor* y;              /**< output, (B,T,H,P), as x or f32 */
  const tilemamba_tensor* D;              /**< optional, (H) or (H,P), f32 or as x */
  const tilemamba_tensor* z;              /**< optional, (B,T,H,P), as x */
  const tilemamba_tensor* dt_bias;        /**< optional, (H), f32 or as dt */
  const tilemamba_tensor* initial_states; /**< optional, (B,H,P,N), packed: (S,H,P,N); f32, f16, bf16; absent: zeros */
  const tilemamba_tensor* seq_idx;        /**< optional, (B,T) i32; a change of value starts a new document */
  const tilemamba_tensor* cu_seqlens;     /**< optional, (S+1) i32, B = 1: sequence s is tokens [s] to [s+1] - 1 */
  const tilemamba_tensor* final_states;   /**< optional output, (B,H,P,N), packed: (S,H,P,N); f32, f16 or bf16 */
  const tilemamba_tensor* chunk_states; /**< optional output, (B, T div K, H,P,N), packed: (sum of len div K, H,P,N) */
} tilemamba_arguments;
#define TILEMAMBA_ARGUMENTS_INIT \
  { sizeof(tilemamba_arguments), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/** Flags are 0 or 1. Wherever options are taken, NULL stands for TILEMAMBA_OPTIONS_INIT. */
typedef struct tilemamba_options {
  size_t size;
  int32_t dt_softplus;
  float dt_min; /**< dt_limit, both ends inclusive; dt_min < 0 or dt_min > dt_max is an error */
  float dt_max;
  int32_t batch_invariant;    /**< a sequence packed among others gives bit for bit what it gives alone */
  int32_t allow_tf32;         /**< f32 inputs may be multiplied as tf32 (about 1e-3) where the device gains by it */
  int64_t chunk_size;         /**< a hint that published interfaces pass; results differ only by rounding; 0: none */
  int64_t chunk_states_every; /**< K of chunk_states in tokens, a multiple of 16; 0: chunk_states not asked for */
} tilemamba_options;
#define TILEMAMBA_OPTIONS_INIT \
  { sizeof(tilemamba_options), 0, 0.0f, INFINITY, 0, 0, 0, 0 }

typedef int32_t tilemamba_schedule;
enum { TILEMAMBA_AUTOMATIC = 0, TILEMAMBA_STAGED = 1, TILEMAMBA_FUSED = 2, TILEMAMBA_RECURRENT = 3 };

/** What the caller insists on. Wherever a choice is taken, NULL stands for TILEMAMBA_CHOICE_INIT: the library's. */
typedef struct tilemamba_choice {
  size_t size;
  const char*
      backend; /**< a family ("kokkos") or a member ("kokkos-openmp"); NULL: TILEMAMBA_BACKEND, else the device */
  const char* policy; /**< the name of a tile configuration; NULL: the planner's */
  tilemamba_schedule schedule;
} tilemamba_choice;
#define TILEMAMBA_CHOICE_INIT \
  { sizeof(tilemamba_choice), NULL, NULL, TILEMAMBA_AUTOMATIC }

/** Plan (from a cache), workspace and execute in one call. The values of cu_seqlens are checked where they are in host
 * memory. No output may overlap an input or another output.
 * @param stream the device's stream (cudaStream_t, hipStream_t), or NULL for its default; NULL on a CPU, which returns
 * when the work is done */
TILEMAMBA_EXPORT tilemamba_status tilemamba_scan(const tilemamba_arguments* arguments, const tilemamba_options* options,
                                                 const tilemamba_choice* choice, void* stream);

/** Checks all that tilemamba_scan checks, and the values of cu_seqlens wherever they are. */
TILEMAMBA_EXPORT tilemamba_status tilemamba_validate(const tilemamba_arguments* arguments,
                                                     const tilemamba_options* options);

/* ------------------------------------------------------------------------------------------------------------- plans
 */

/** A problem bound to a backend, a schedule and a policy. */
typedef struct tilemamba_plan tilemamba_plan;

/** Plans for tensors like these: their sizes, types, device, and which of them come. Their data is not looked at and
 * may be NULL, and strides may differ when the plan is executed.
 * @param plan where the plan goes; NULL goes there if the call fails */
TILEMAMBA_EXPORT tilemamba_status tilemamba_plan_create(tilemamba_plan** plan, const tilemamba_arguments* arguments,
                                                        const tilemamba_options* options,
                                                        const tilemamba_choice* choice);
/** @param plan may be NULL */
TILEMAMBA_EXPORT void tilemamba_plan_destroy(tilemamba_plan* plan);

/** Set the size; the rest is filled in. Strings live as long as the plan. */
typedef struct tilemamba_plan_info {
  size_t size;
  const char* backend; /**< member, e.g. "kokkos-openmp" */
  const char* policy;
  tilemamba_schedule schedule;
  size_t workspace_bytes; /**< of memory that the device can address, aligned to 256 bytes; may be 0 */
} tilemamba_plan_info;
TILEMAMBA_EXPORT tilemamba_status tilemamba_plan_query(const tilemamba_plan* plan, tilemamba_plan_info* info);

/** Runs the call. Allocates nothing, synchronises nothing (a CPU returns when the work is done), times nothing. No
 * output may overlap an input, the workspace or another output.
 * @param stream as for tilemamba_scan */
TILEMAMBA_EXPORT tilemamba_status tilemamba_plan_execute(const tilemamba_plan* plan,
                                                         const tilemamba_arguments* arguments, void* workspace,
                                                         size_t workspace_bytes, void* stream);

/* ---------------------------------------------------------------------------------------------- backends and devices
 */

/** Every backend of this build in the order in which they are tried, as they were when the list was made. */
typedef struct tilemamba_backend_list tilemamba_backend_list;

/** Probes every backend now. @param list where the list goes; NULL goes there if the call fails */
TILEMAMBA_EXPORT tilemamba_status tilemamba_backend_list_create(tilemamba_backend_list** list);
/** @param list may be NULL */
TILEMAMBA_EXPORT void tilemamba_backend_list_destroy(tilemamba_backend_list* list);
/** The number of backends. @param list not NULL */
TILEMAMBA_EXPORT size_t tilemamba_backend_list_count(const tilemamba_backend_list* list);

/** Set the size; the rest is filled in. Strings live as long as the list. */
typedef struct tilemamba_backend_info {
  size_t size;
  const char* name;   /**< member, e.g. "kokkos-openmp" */
  const char* family; /**< e.g. "kokkos" */
  const char* reason; /**< why it cannot run, or a word on what it is */
  int32_t can_run;
  size_t device_count;
  const char* const* devices; /**< what it would run on, in words */
} tilemamba_backend_info;
TILEMAMBA_EXPORT tilemamba_status tilemamba_backend_list_query(const tilemamba_backend_list* list, size_t index,
                                                               tilemamba_backend_info* info);

/** What could run a problem: every backend, and each of its schedules and policies, those that refuse included. */
typedef struct tilemamba_candidate_list tilemamba_candidate_list;

/** For tensors like these, as in tilemamba_plan_create. @param list where the list goes; NULL goes there if the call
 * fails */
TILEMAMBA_EXPORT tilemamba_status tilemamba_candidate_list_create(tilemamba_candidate_list** list,
                                                                  const tilemamba_arguments* arguments,
                                                                  const tilemamba_options* options);
/** @param list may be NULL */
TILEMAMBA_EXPORT void tilemamba_candidate_list_destroy(tilemamba_candidate_list* list);
/** The number of candidates. @param list not NULL */
TILEMAMBA_EXPORT size_t tilemamba_candidate_list_count(const tilemamba_candidate_list* list);

/** Set the size; the rest is filled in. Strings live as long as the list. */
typedef struct tilemamba_candidate {
  size_t size;
  const char* backend; /**< member, e.g. "kokkos-openmp" */
  const char* policy;  /**< empty, with TILEMAMBA_AUTOMATIC, for a backend that cannot run at all */
  const char* refusal; /**< why it cannot run; empty: it can */
  tilemamba_schedule schedule;
  int32_t is_default; /**< the planner's choice for this problem on this backend */
  size_t workspace_bytes;
} tilemamba_candidate;
TILEMAMBA_EXPORT tilemamba_status tilemamba_candidate_list_query(const tilemamba_candidate_list* list, size_t index,
                                                                 tilemamba_candidate* candidate);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TILEMAMBA_TILEMAMBA_H */
