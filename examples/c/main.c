/* SPDX-License-Identifier: Apache-2.0 */
/* One head of 4 tokens, checked by hand: with A = 0, B = C = 1 and delta = 1 the state adds up x, and y is what it has
 * so far. */
#include <stdio.h>

#include <tilemamba/tilemamba.h>

int main(void) {
  float x[4] = {1, 2, 3, 4}, dt[4] = {1, 1, 1, 1}, A[1] = {0}, B[4] = {1, 1, 1, 1}, C[4] = {1, 1, 1, 1};
  float y[4], state[1];
  const int64_t bthp[] = {1, 4, 1, 1}, bth[] = {1, 4, 1}, h[] = {1}, bhpn[] = {1, 1, 1, 1};
  const tilemamba_tensor tx = tilemamba_dense(x, TILEMAMBA_F32, 4, bthp);
  const tilemamba_tensor tdt = tilemamba_dense(dt, TILEMAMBA_F32, 3, bth);
  const tilemamba_tensor tA = tilemamba_dense(A, TILEMAMBA_F32, 1, h);
  const tilemamba_tensor tB = tilemamba_dense(B, TILEMAMBA_F32, 4, bthp); /* G = N = 1: (B,T,G,N) is (1,4,1,1) too */
  const tilemamba_tensor tC = tilemamba_dense(C, TILEMAMBA_F32, 4, bthp);
  const tilemamba_tensor ty = tilemamba_dense(y, TILEMAMBA_F32, 4, bthp);
  const tilemamba_tensor tstate = tilemamba_dense(state, TILEMAMBA_F32, 4, bhpn);
  tilemamba_arguments arguments = TILEMAMBA_ARGUMENTS_INIT;
  arguments.x = &tx;
  arguments.dt = &tdt;
  arguments.A = &tA;
  arguments.B = &tB;
  arguments.C = &tC;
  arguments.y = &ty;
  arguments.final_states = &tstate;
  if (tilemamba_scan(&arguments, NULL, NULL, NULL) != TILEMAMBA_OK) {
    fprintf(stderr, "%s\n", tilemamba_last_error());
    return 1;
  }
  printf("tilemamba %s: y = %g %g %g %g, state = %g\n", tilemamba_version(), y[0], y[1], y[2], y[3], state[0]);
  return y[0] == 1 && y[1] == 3 && y[2] == 6 && y[3] == 10 && state[0] == 10 ? 0 : 1;
}
