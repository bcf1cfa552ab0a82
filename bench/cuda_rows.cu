// SPDX-License-Identifier: Apache-2.0
// Times of the published rows on an NVIDIA GPU, as JSON: medians of replays of a CUDA graph, which is the device's time
// alone.
//
//   cuda_rows [--all] [--slow] [--rows FIRST,LAST] [--repeat N]
//
// --all times every schedule and policy that can run a row, not only the planner's choice. --slow: half of the heads
// keep their state for thousands of tokens (|A dt| <= 1e-4), the others for about 50, instead of the published
// distribution.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tilemamba/tilemamba.hpp>
#include <vector>

namespace {

using namespace tilemamba;

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

struct Row {
  const char* model;
  std::int64_t batch, tokens, heads, groups, head_dim, state;
  double rival_ms;  ///< mamba_ssm 2.3.2.post1 (Triton) on an H200; 0: not measured
};

constexpr Row rows[] = {
    {"grid", 4, 1024, 8, 1, 64, 64, 0.0277},
    {"grid", 4, 4096, 8, 1, 64, 64, 0.0693},
    {"grid", 4, 16384, 8, 1, 64, 64, 0.2696},
    {"grid", 4, 65536, 8, 1, 64, 64, 1.0551},
    {"grid", 4, 262144, 8, 1, 64, 64, 4.1498},
    {"grid", 4, 1024, 8, 1, 64, 128, 0.0296},
    {"grid", 4, 4096, 8, 1, 64, 128, 0.0879},
    {"grid", 4, 16384, 8, 1, 64, 128, 0.3564},
    {"grid", 4, 65536, 8, 1, 64, 128, 1.3778},
    {"grid", 4, 262144, 8, 1, 64, 128, 5.4015},
    {"grid", 4, 1024, 8, 1, 64, 256, 0.0398},
    {"grid", 4, 4096, 8, 1, 64, 256, 0.1258},
    {"grid", 4, 16384, 8, 1, 64, 256, 0.4888},
    {"grid", 4, 65536, 8, 1, 64, 256, 1.8353},
    {"grid", 4, 262144, 8, 1, 64, 256, 7.2387},
    {"grid", 4, 1024, 8, 1, 64, 512, 0.0571},
    {"grid", 4, 4096, 8, 1, 64, 512, 0.1922},
    {"grid", 4, 16384, 8, 1, 64, 512, 0.7404},
    {"grid", 4, 65536, 8, 1, 64, 512, 2.7976},
    {"grid", 4, 262144, 8, 1, 64, 512, 11.0304},
    {"Mamba2-2.7B", 1, 2048, 80, 1, 64, 128, 0.0996},
    {"Mamba2-2.7B", 1, 8192, 80, 1, 64, 128, 0.3537},
    {"Mamba2-2.7B", 1, 65536, 80, 1, 64, 128, 3.0412},
    {"Mamba2-2.7B", 8, 4096, 80, 1, 64, 128, 1.4232},
    {"Nemotron-H-8B", 1, 2048, 128, 8, 64, 128, 0.1598},
    {"Nemotron-H-8B", 1, 8192, 128, 8, 64, 128, 0.5801},
    {"Nemotron-H-8B", 1, 65536, 128, 8, 64, 128, 5.0769},
    {"Nemotron-H-8B", 8, 4096, 128, 8, 64, 128, 2.4001},
    {"off the grid", 1, 5000, 3, 1, 64, 64, 0},
    {"off the grid", 2, 3333, 24, 1, 64, 128, 0},
    {"off the grid", 1, 8192, 128, 8, 80, 128, 0},
};

/// What a tensor is filled with.
enum class Fill { silu_normal, softplus_normal, normal, published_rate, slow_rate, slow_step };

__device__ float uniform(std::uint64_t index, std::uint64_t seed) {
  std::uint64_t v = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return (static_cast<float>((v ^ (v >> 31)) >> 40) + 0.5f) * 0x1p-24f;
}

__global__ void fill(void* data, bool wide, std::int64_t count, std::int64_t last, Fill kind, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const float u = uniform(2 * i, seed), w = uniform(2 * i + 1, seed);
    const float n = sqrtf(-2.0f * logf(u)) * cospif(2.0f * w);
    float v = n;
    if (kind == Fill::silu_normal) v = n / (1.0f + expf(-n));
    if (kind == Fill::softplus_normal) v = log1pf(expf(n));
    if (kind == Fill::published_rate) v = -1.0f - 15.0f * u;
    if (kind == Fill::slow_rate) v = i % last % 2 == 0 ? -1e-3f : -0.2f;
    if (kind == Fill::slow_step) v = 0.1f * u;
    if (wide)
      static_cast<float*>(data)[i] = v;
    else
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(v);
  }
}

/// Device memory of the tensors of a row.
class Tensors {
 public:
  ~Tensors() {
    for (void* memory : all_) cudaFree(memory);
  }
  MutableTensor add(DType dtype, std::initializer_list<std::int64_t> shape, Fill kind) {
    MutableTensor tensor{dense(dtype, shape, {DeviceKind::cuda, 0}), nullptr};
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    require(cudaMalloc(&tensor.data, static_cast<std::size_t>(count) * size_of(dtype)), "memory");
    all_.push_back(tensor.data);
    fill<<<2048, 256>>>(tensor.data, dtype == DType::f32, count, *(shape.end() - 1), kind, all_.size());
    require(cudaGetLastError(), "filling a tensor");
    return tensor;
  }
  void* memory(std::size_t bytes) {
    void* data = nullptr;
    require(cudaMalloc(&data, bytes + 1), "workspace");
    all_.push_back(data);
    return data;
  }

 private:
  std::vector<void*> all_;
};

/// Milliseconds of a call: the median of replays of a graph of several.
double time_of(const Plan& plan, const Arguments& arguments, void* workspace, int repeat) {
  cudaStream_t stream{};
  require(cudaStreamCreate(&stream), "a stream");
  const auto once = [&] { plan.execute(arguments, workspace, plan.workspace_bytes(), stream); };
  cudaEvent_t begin{}, end{};
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const auto capture = [&](int calls) {
    cudaGraph_t graph{};
    cudaGraphExec_t ready{};
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < calls; ++i) once();
    require(cudaStreamEndCapture(stream, &graph), "end of capture");
    require(cudaGraphInstantiate(&ready, graph, 0), "instantiate");
    cudaGraphDestroy(graph);
    return ready;
  };
  const auto replay = [&](cudaGraphExec_t graph) {
    cudaEventRecord(begin, stream);
    require(cudaGraphLaunch(graph, stream), "launch");
    cudaEventRecord(end, stream);
    require(cudaEventSynchronize(end), "a call");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    return static_cast<double>(ms);
  };
  cudaGraphExec_t one = capture(1);  // the first call of the plan
  replay(one);
  const double rough = replay(one);
  const int calls = std::clamp(static_cast<int>(1.0 / std::max(rough, 1e-3)), 1, 50);
  cudaGraphExec_t graph = capture(calls);
  replay(graph);
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) times.push_back(replay(graph) / calls);
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(one);
  cudaGraphExecDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  return times[times.size() / 2];
}

/// Copy 4.3 TB/s, bf16 products 790 TFLOP/s: an H200's measured ceilings.
double floor_ms(const Row& r) {
  const double tokens = static_cast<double>(r.batch * r.tokens);
  const double bytes = tokens * (r.heads * r.head_dim * 4.0 + r.groups * r.state * 4.0 + r.heads * 2.0);
  const double flop =
      tokens * (r.heads * (128.0 * r.head_dim + 4.0 * r.head_dim * r.state) + r.groups * 128.0 * r.state);
  return std::max(bytes / 4.3e12, flop / 7.9e14) * 1e3;
}

bool time_row(const Row& r, bool all, bool slow, int repeat, bool first) {
  Tensors tensors;
  Arguments a;
  a.x = tensors.add(DType::bf16, {r.batch, r.tokens, r.heads, r.head_dim}, Fill::silu_normal);
  a.dt = tensors.add(DType::bf16, {r.batch, r.tokens, r.heads}, slow ? Fill::slow_step : Fill::softplus_normal);
  a.A = tensors.add(DType::f32, {r.heads}, slow ? Fill::slow_rate : Fill::published_rate);
  a.B = tensors.add(DType::bf16, {r.batch, r.tokens, r.groups, r.state}, Fill::silu_normal);
  a.C = tensors.add(DType::bf16, {r.batch, r.tokens, r.groups, r.state}, Fill::silu_normal);
  a.D = tensors.add(DType::f32, {r.heads}, Fill::normal);
  a.initial_states = tensors.add(DType::f32, {r.batch, r.heads, r.head_dim, r.state}, Fill::normal);
  a.y = tensors.add(DType::bf16, {r.batch, r.tokens, r.heads, r.head_dim}, Fill::normal);
  a.final_states = tensors.add(DType::f32, {r.batch, r.heads, r.head_dim, r.state}, Fill::normal);
  require(cudaDeviceSynchronize(), "filling");
  const Problem problem = Problem::of(a);
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty() || (!all && !candidate.is_default)) continue;
    const Plan plan(problem, {candidate.backend, candidate.schedule, candidate.policy});
    const double ms = time_of(plan, a, tensors.memory(plan.workspace_bytes()), repeat);
    std::printf(
        "%s    {\"model\": \"%s\", \"batch\": %lld, \"tokens\": %lld, \"heads\": %lld, \"groups\": %lld, \"head_dim\": "
        "%lld, \"state\": %lld, "
        "\"backend\": \"%s\", \"schedule\": \"%s\", \"policy\": \"%s\", \"default\": %s, \"ms\": %.5f, \"floor_ms\": "
        "%.5f, \"times_floor\": %.2f, "
        "\"mamba_ssm_ms\": %.4f, \"ratio\": %.3f}",
        first ? "" : ",\n", r.model, static_cast<long long>(r.batch), static_cast<long long>(r.tokens),
        static_cast<long long>(r.heads), static_cast<long long>(r.groups), static_cast<long long>(r.head_dim),
        static_cast<long long>(r.state), candidate.backend.c_str(), std::string(name(candidate.schedule)).c_str(),
        candidate.policy.c_str(), candidate.is_default ? "true" : "false", ms, floor_ms(r), ms / floor_ms(r),
        r.rival_ms, r.rival_ms / ms);
    std::fflush(stdout);
    first = false;
  }
  return first;
}

}  // namespace

int main(int count, char** words) try {
  bool all = false, slow = false;
  int repeat = 15;
  std::size_t begin = 0, end = std::size(rows);
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--all")
      all = true;
    else if (word == "--slow")
      slow = true;
    else if (word == "--repeat" && i + 1 < count)
      repeat = std::atoi(words[++i]);
    else if (word == "--rows" && i + 1 < count) {
      const std::string range = words[++i];
      begin = std::stoul(range);
      end = std::min(end, std::stoul(range.substr(range.find(',') + 1)) + 1);
    } else {
      std::fprintf(stderr, "usage: cuda_rows [--all] [--slow] [--rows FIRST,LAST] [--repeat N]\n");
      return 2;
    }
  }
  cudaDeviceProp device{};
  require(cudaGetDeviceProperties(&device, 0), "the device");
  int driver = 0;
  cudaDriverGetVersion(&driver);
  std::printf(
      "{\n  \"device\": \"%s\", \"driver_cuda\": %d, \"runtime_cuda\": %d, \"version\": \"%s\", \"distribution\": "
      "\"%s\",\n  \"rows\": [\n",
      device.name, driver, CUDART_VERSION, std::string(version()).c_str(), slow ? "slow decay" : "published");
  bool first = true;
  for (std::size_t i = begin; i < end; ++i) first = time_row(rows[i], all, slow, repeat, first);
  std::printf("\n  ]\n}\n");
  return 0;
} catch (const tilemamba::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
