// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/calibration.cuh"

namespace tilemamba::test::cuda {

const Calibrated& machine_calibrated() { return calibrated(); }

}  // namespace tilemamba::test::cuda
