/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface as a C99 program uses it. Prints each expectation that fails; exit code 1 if any did. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tilemamba/tilemamba.h>

static int failures = 0;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

/* The call fails with this status, and its message has these words. */
static void expect_failure(int line, tilemamba_status got, tilemamba_status status, const char* words) {
  if (got == status && strstr(tilemamba_last_error(), words) != NULL) return;
  fprintf(stderr, "line %d: status %d, message '%s'; expected %d and '%s'\n", line, (int)got, tilemamba_last_error(),
          (int)status, words);
  ++failures;
}
#define EXPECT_FAILURE(call, status, words) expect_failure(__LINE__, call, status, words)

enum {
  batch = 2,
  tokens = 70,
  heads = 4,
  head_dim = 8,
  groups = 2,
  state = 16,
  states = batch * heads * head_dim * state
};

/* A problem with everything in it that is not packed. */
typedef struct {
  float x[batch * tokens * heads * head_dim], z[batch * tokens * heads * head_dim],
      y[batch * tokens * heads * head_dim];
  float dt[batch * tokens * heads], A[heads], D[heads], dt_bias[heads];
  float B[batch * tokens * groups * state], C[batch * tokens * groups * state];
  float initial[states], final[states];
  tilemamba_tensor tensors[11];
  tilemamba_arguments arguments;
  tilemamba_options options;
} problem;

static void fill(float* values, size_t count, float low, float high) {
  static unsigned seed = 1;
  size_t i;
  for (i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = low + (high - low) * (float)(seed >> 8) / 16777216.0f;
  }
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static problem* new_problem(void) {
  const int64_t bthp[] = {batch, tokens, heads, head_dim}, bth[] = {batch, tokens, heads}, h[] = {heads};
  const int64_t btgn[] = {batch, tokens, groups, state}, bhpn[] = {batch, heads, head_dim, state};
  problem* p = malloc(sizeof *p);
  tilemamba_tensor* t;
  const tilemamba_arguments none = TILEMAMBA_ARGUMENTS_INIT;
  const tilemamba_options defaults = TILEMAMBA_OPTIONS_INIT;
  if (p == NULL) exit(1);
  fill(p->x, COUNT(p->x), -1, 1), fill(p->z, COUNT(p->z), -1, 1), fill(p->dt, COUNT(p->dt), -3, 0);
  fill(p->A, COUNT(p->A), -2, 0), fill(p->D, COUNT(p->D), -1, 1), fill(p->dt_bias, COUNT(p->dt_bias), -1, 1);
  fill(p->B, COUNT(p->B), -1, 1), fill(p->C, COUNT(p->C), -1, 1), fill(p->initial, COUNT(p->initial), -1, 1);
  t = p->tensors;
  p->arguments = none;
  p->options = defaults;
  p->options.dt_softplus = 1;
  p->options.dt_max = 0.5f;
  p->arguments.x = t, *t++ = tilemamba_dense(p->x, TILEMAMBA_F32, 4, bthp);
  p->arguments.z = t, *t++ = tilemamba_dense(p->z, TILEMAMBA_F32, 4, bthp);
  p->arguments.y = t, *t++ = tilemamba_dense(p->y, TILEMAMBA_F32, 4, bthp);
  p->arguments.dt = t, *t++ = tilemamba_dense(p->dt, TILEMAMBA_F32, 3, bth);
  p->arguments.A = t, *t++ = tilemamba_dense(p->A, TILEMAMBA_F32, 1, h);
  p->arguments.D = t, *t++ = tilemamba_dense(p->D, TILEMAMBA_F32, 1, h);
  p->arguments.dt_bias = t, *t++ = tilemamba_dense(p->dt_bias, TILEMAMBA_F32, 1, h);
  p->arguments.B = t, *t++ = tilemamba_dense(p->B, TILEMAMBA_F32, 4, btgn);
  p->arguments.C = t, *t++ = tilemamba_dense(p->C, TILEMAMBA_F32, 4, btgn);
  p->arguments.initial_states = t, *t++ = tilemamba_dense(p->initial, TILEMAMBA_F32, 4, bhpn);
  p->arguments.final_states = t, *t++ = tilemamba_dense(p->final, TILEMAMBA_F32, 4, bhpn);
  return p;
}

/* Token by token in double: the larger of the relative errors of y and of the final states. */
static double error_of(const problem* p) {
  double y_error = 0, y_norm = 0, s_error = 0, s_norm = 0;
  int b, t, h, i, n;
  for (b = 0; b < batch; ++b) {
    for (h = 0; h < heads; ++h) {
      double sum[head_dim][state];
      const size_t first = (size_t)(b * heads + h) * head_dim * state;
      for (i = 0; i < head_dim * state; ++i) sum[i / state][i % state] = p->initial[first + (size_t)i];
      for (t = 0; t < tokens; ++t) {
        const size_t token = (size_t)(b * tokens + t), row = (token * heads + (size_t)h) * head_dim;
        const size_t column = (token * groups + (size_t)(h / (heads / groups))) * state;
        double delta = log1p(exp((double)p->dt[token * heads + (size_t)h] + p->dt_bias[h]));
        if (delta > p->options.dt_max) delta = p->options.dt_max;
        for (i = 0; i < head_dim; ++i) {
          const double x = p->x[row + (size_t)i], z = p->z[row + (size_t)i];
          double y = p->D[h] * x;
          for (n = 0; n < state; ++n) {
            sum[i][n] = exp(delta * p->A[h]) * sum[i][n] + delta * x * p->B[column + (size_t)n];
            y += sum[i][n] * p->C[column + (size_t)n];
          }
          y *= z / (1 + exp(-z));
          y_error += (p->y[row + (size_t)i] - y) * (p->y[row + (size_t)i] - y);
          y_norm += y * y;
        }
      }
      for (i = 0; i < head_dim * state; ++i) {
        const double right = sum[i / state][i % state], difference = p->final[first + (size_t)i] - right;
        s_error += difference * difference;
        s_norm += right * right;
      }
    }
  }
  y_error = sqrt(y_error / y_norm), s_error = sqrt(s_error / s_norm);
  return y_error > s_error ? y_error : s_error;
}

/* The least bar that stored cases in f32 have. */
static const double bar = 2e-6;

static void test_scan(void) {
  problem* p = new_problem();
  EXPECT(tilemamba_validate(&p->arguments, &p->options) == TILEMAMBA_OK);
  EXPECT(tilemamba_scan(&p->arguments, &p->options, NULL, NULL) == TILEMAMBA_OK);
  EXPECT(error_of(p) <= bar);
  free(p);
}

static void test_plan(void) {
  problem* p = new_problem();
  tilemamba_tensor x = *p->arguments.x;
  tilemamba_arguments arguments = p->arguments;
  tilemamba_choice choice = TILEMAMBA_CHOICE_INIT;
  tilemamba_plan* plan = NULL;
  tilemamba_plan_info info = {sizeof info, NULL, NULL, 0, 0};
  char *memory, *workspace;
  choice.backend = "kokkos-serial";
  choice.schedule = TILEMAMBA_FUSED;
  x.data = NULL; /* planning looks at no data */
  arguments.x = &x;
  EXPECT(tilemamba_plan_create(&plan, &arguments, &p->options, &choice) == TILEMAMBA_OK);
  EXPECT(tilemamba_plan_query(plan, &info) == TILEMAMBA_OK);
  EXPECT(strcmp(info.backend, "kokkos-serial") == 0 && info.schedule == TILEMAMBA_FUSED && strlen(info.policy) > 0);
  memory = malloc(info.workspace_bytes + 255); /* C99 has no aligned_alloc */
  workspace = memory + (256 - (uintptr_t)memory % 256) % 256;
  EXPECT(tilemamba_plan_execute(plan, &p->arguments, workspace, info.workspace_bytes, NULL) == TILEMAMBA_OK);
  EXPECT(error_of(p) <= bar);

  EXPECT_FAILURE(tilemamba_plan_execute(plan, &arguments, workspace, info.workspace_bytes, NULL),
                 TILEMAMBA_INVALID_ARGUMENT, "x has no data");
  arguments = p->arguments;
  arguments.z = NULL;
  EXPECT_FAILURE(tilemamba_plan_execute(plan, &arguments, workspace, info.workspace_bytes, NULL),
                 TILEMAMBA_INVALID_ARGUMENT, "z was not passed, but the plan was made with it");
  if (info.workspace_bytes > 0) {
    EXPECT_FAILURE(tilemamba_plan_execute(plan, &p->arguments, workspace, 0, NULL), TILEMAMBA_OUT_OF_MEMORY,
                   "the workspace has 0 bytes");
  }
  free(memory);
  tilemamba_plan_destroy(plan);
  tilemamba_plan_destroy(NULL);
  free(p);
}

static void test_errors_of_c(void) {
  problem* p = new_problem();
  tilemamba_tensor x = *p->arguments.x;
  tilemamba_plan* plan = (tilemamba_plan*)p;
  tilemamba_choice choice = TILEMAMBA_CHOICE_INIT;
  tilemamba_plan_info info;
  char larger[sizeof(tilemamba_options) + 8] = {0};
  p->arguments.x = &x;
#define SCAN tilemamba_scan(&p->arguments, &p->options, &choice, NULL)
  EXPECT_FAILURE(tilemamba_scan(NULL, NULL, NULL, NULL), TILEMAMBA_INVALID_ARGUMENT,
                 "tilemamba_arguments is a null pointer");
  EXPECT_FAILURE(tilemamba_plan_create(NULL, &p->arguments, NULL, NULL), TILEMAMBA_INVALID_ARGUMENT,
                 "plan is a null pointer");
  EXPECT_FAILURE(tilemamba_plan_execute(NULL, &p->arguments, NULL, 0, NULL), TILEMAMBA_INVALID_ARGUMENT,
                 "plan is a null pointer");
  EXPECT_FAILURE(tilemamba_plan_query(NULL, &info), TILEMAMBA_INVALID_ARGUMENT, "plan is a null pointer");

  p->arguments.size = 8;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "tilemamba_arguments has size 8; it must be sizeof(");
  p->arguments.size = sizeof p->arguments;
  p->arguments.x = NULL;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "x is a null pointer");
  p->arguments.x = &x;
  x.dtype = 7;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "x.dtype is 7; tilemamba.h has the values 0 to 3");
  x.dtype = TILEMAMBA_F32;
  x.device_kind = -1;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "x.device_kind is -1");
  x.device_kind = TILEMAMBA_CPU;
  x.rank = 99;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "x has 99 dimensions; it must have 4");
  x.rank = 4;
  choice.schedule = 4;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "schedule is 4");
  choice.schedule = TILEMAMBA_AUTOMATIC;
  p->options.allow_tf32 = 2;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "allow_tf32 is 2; it must be 0 or 1");
  p->options.allow_tf32 = 0;

  /* A header of the future: what it adds may be there as long as it says nothing. */
  memcpy(larger, &p->options, sizeof p->options);
  ((tilemamba_options*)(void*)larger)->size = sizeof larger;
  EXPECT(tilemamba_scan(&p->arguments, (const tilemamba_options*)(const void*)larger, NULL, NULL) == TILEMAMBA_OK);
  larger[sizeof larger - 1] = 1;
  EXPECT_FAILURE(tilemamba_scan(&p->arguments, (const tilemamba_options*)(const void*)larger, NULL, NULL),
                 TILEMAMBA_INVALID_ARGUMENT, "tilemamba_options has fields that version");

  x.shape[3] = head_dim / 2;
  EXPECT_FAILURE(tilemamba_plan_create(&plan, &p->arguments, NULL, NULL), TILEMAMBA_INVALID_ARGUMENT, "y has shape");
  EXPECT(plan == NULL);
  free(p);
}

/* The messages of the C++ library come through. */
static void test_errors_of_the_library(void) {
  problem* p = new_problem();
  tilemamba_choice choice = TILEMAMBA_CHOICE_INIT;
  int32_t cu_seqlens[] = {0, 40, 30, tokens};
  const int64_t four[] = {4};
  tilemamba_tensor packed = tilemamba_dense(cu_seqlens, TILEMAMBA_I32, 1, four);
  p->options.dt_min = 1;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "dt_limit = (1, 0.5)");
  p->options.dt_min = 0;
  choice.backend = "abacus";
  EXPECT_FAILURE(SCAN, TILEMAMBA_NO_BACKEND, "unknown backend 'abacus'; valid:");
  choice.backend = "kokkos-serial";
  choice.policy = "none of them";
  EXPECT_FAILURE(SCAN, TILEMAMBA_NO_BACKEND, "schedules and policies that it has:");
  choice.policy = NULL;
  EXPECT_FAILURE(tilemamba_scan(&p->arguments, &p->options, &choice, p), TILEMAMBA_INVALID_ARGUMENT,
                 "pass a null stream");
  p->arguments.cu_seqlens = &packed;
  EXPECT_FAILURE(SCAN, TILEMAMBA_INVALID_ARGUMENT, "cu_seqlens");
  free(p);
}
#undef SCAN

static void test_backends(void) {
  tilemamba_backend_list* list = NULL;
  tilemamba_backend_info info = {sizeof info, NULL, NULL, NULL, 0, 0, NULL};
  size_t i;
  int found = 0;
  EXPECT(tilemamba_backend_list_create(&list) == TILEMAMBA_OK);
  for (i = 0; i < tilemamba_backend_list_count(list); ++i) {
    EXPECT(tilemamba_backend_list_query(list, i, &info) == TILEMAMBA_OK);
    EXPECT(info.size == sizeof info && strlen(info.reason) > 0);
    EXPECT(!info.can_run || info.device_count > 0);
    if (strcmp(info.name, "kokkos-serial") == 0) {
      found = info.can_run;
      EXPECT(strcmp(info.family, "kokkos") == 0 && info.device_count == 1 && strlen(info.devices[0]) > 0);
    }
  }
  EXPECT(found);
  EXPECT_FAILURE(tilemamba_backend_list_query(list, i, &info), TILEMAMBA_INVALID_ARGUMENT, "there is no backend");
  info.size = 1;
  EXPECT_FAILURE(tilemamba_backend_list_query(list, 0, &info), TILEMAMBA_INVALID_ARGUMENT,
                 "tilemamba_backend_info has size 1");
  tilemamba_backend_list_destroy(list);
  tilemamba_backend_list_destroy(NULL);
}

/* The default that is listed is what a plan takes, and candidates that refuse say why. */
static void test_candidates(void) {
  problem* p = new_problem();
  const tilemamba_choice choice = {sizeof choice, "kokkos-serial", NULL, TILEMAMBA_AUTOMATIC};
  tilemamba_candidate_list* list = NULL;
  tilemamba_candidate candidate = {sizeof candidate, NULL, NULL, NULL, 0, 0, 0};
  tilemamba_plan* plan = NULL;
  tilemamba_plan_info info = {sizeof info, NULL, NULL, 0, 0};
  size_t i;
  int defaults = 0;
  EXPECT(tilemamba_plan_create(&plan, &p->arguments, &p->options, &choice) == TILEMAMBA_OK);
  EXPECT(tilemamba_plan_query(plan, &info) == TILEMAMBA_OK);
  EXPECT(tilemamba_candidate_list_create(&list, &p->arguments, &p->options) == TILEMAMBA_OK);
  for (i = 0; i < tilemamba_candidate_list_count(list); ++i) {
    EXPECT(tilemamba_candidate_list_query(list, i, &candidate) == TILEMAMBA_OK);
    EXPECT(candidate.size == sizeof candidate && strlen(candidate.backend) > 0);
    EXPECT(strlen(candidate.policy) > 0 || strlen(candidate.refusal) > 0);
    if (strcmp(candidate.backend, "kokkos-serial") != 0 || !candidate.is_default) continue;
    ++defaults;
    EXPECT(candidate.schedule == info.schedule && strcmp(candidate.policy, info.policy) == 0);
    EXPECT(candidate.workspace_bytes == info.workspace_bytes && strlen(candidate.refusal) == 0);
  }
  EXPECT(defaults == 1);
  EXPECT_FAILURE(tilemamba_candidate_list_query(list, i, &candidate), TILEMAMBA_INVALID_ARGUMENT,
                 "there is no candidate");
  tilemamba_candidate_list_destroy(list);
  tilemamba_candidate_list_destroy(NULL);
  p->tensors[0].shape[1] = 3;
  EXPECT_FAILURE(tilemamba_candidate_list_create(&list, &p->arguments, &p->options), TILEMAMBA_INVALID_ARGUMENT, "dt");
  EXPECT(list == NULL);
  tilemamba_plan_destroy(plan);
  free(p);
}

static void* in_a_thread(void* result) {
  problem* p = new_problem();
  int i, right = strcmp(tilemamba_last_error(), "") == 0; /* the other threads' messages are theirs */
  for (i = 0; i < 20; ++i) {
    right = right && tilemamba_scan(&p->arguments, &p->options, NULL, NULL) == TILEMAMBA_OK && error_of(p) <= bar;
    right = right && tilemamba_scan(NULL, NULL, NULL, NULL) == TILEMAMBA_INVALID_ARGUMENT;
  }
  *(int*)result = right;
  free(p);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  int right[4] = {0}, i;
  for (i = 0; i < 4; ++i) EXPECT(pthread_create(&threads[i], NULL, in_a_thread, &right[i]) == 0);
  for (i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
    EXPECT(right[i]);
  }
}

int main(int argc, char** argv) {
  EXPECT(argc == 2 && strcmp(tilemamba_version(), argv[1]) == 0);
  EXPECT(strcmp(tilemamba_last_error(), "") == 0);
  test_scan();
  test_plan();
  test_errors_of_c();
  test_errors_of_the_library();
  test_backends();
  test_candidates();
  test_threads();
  printf("%d expectations failed\n", failures);
  return failures == 0 ? 0 : 1;
}
