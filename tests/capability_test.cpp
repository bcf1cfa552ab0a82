// SPDX-License-Identifier: Apache-2.0
/// @file
/// Devices that are not there: for each architecture, older and newer than anything compiled too, the backend that its
/// tensors would be given to and the policy that it would take, or the reason why not. Rules over plain numbers, which
/// the modules ask as well; no vendor's header.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "backends/cuda/common/capability.hpp"
#include "backends/cuda/sm100/policy.hpp"
#include "backends/cuda/sm80/policy.hpp"
#include "backends/cuda/sm90/policy.hpp"
#include "backends/hip/capability.hpp"
#include "core/registry.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

/// The first member of a family whose rule takes the device, in the order of the backend table; or "no: " and each
/// member's reason. `why_not(member)` is its rule.
template <class WhyNot>
std::string chosen(const std::string& family, const WhyNot& why_not) {
  std::string reasons = "no";
  for (const BackendRow& row : backend_table()) {
    if (row.family != family) continue;
    const std::string why = why_not(row.member);
    if (why.empty()) return row.member;
    reasons += ": " + why;
  }
  return reasons;
}

void expect_holds(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// ------------------------------------------------------------------------------------------------------------- NVIDIA

/// What is compiled unless somebody says otherwise, by CUDA 13.0.
const cuda::Compiled release = {{80, 86, 89, 90, 120}, {80}, 13000};

constexpr int of_tcgen05[] = {100, 103};
constexpr cuda::Instructions tcgen05 = {"tcgen05", of_tcgen05};

/// The rule of each member; `unproven`: whether those that nobody has run may be taken. A new member needs its line
/// here and its rows in the tables below.
std::string why_not_cuda(const std::string& member, const cuda::Compiled& compiled, int capability, int driver,
                         bool unproven) {
  const cuda::Capability device{capability};
  if (const std::string why = cuda::why_not(compiled, device, driver); !why.empty()) return why;
  if (member == "cuda-sm80") return "";
  if (member == "cuda-sm90") return cuda::why_not(cuda::wgmma, device);
  if (member == "cuda-sm100") return unproven ? cuda::why_not(tcgen05, device) : "never run by us";
  return "there is no row for " + member + " in this test";
}
std::string chosen_cuda(const cuda::Compiled& compiled, int capability, int driver = 13000, bool unproven = false) {
  return chosen(
      "cuda", [&](const std::string& member) { return why_not_cuda(member, compiled, capability, driver, unproven); });
}

TEST(CudaCapability, TheReleaseIsCompiledForTheseArchitectures) {
  std::ifstream in(TILEMAMBA_TEST_GOLDEN "/../../backends/cuda/CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  expect_holds(text, "\"80;86-real;89-real;90-real;100a-real;103a-real;120-real\"");
}

TEST(CudaCapability, ArchitectureDecides) {
  cuda::Compiled no_ptx = release;
  no_ptx.ptx.clear();
  const std::string no_code = "is none that this build has code for: sm_80 sm_86 sm_89 sm_90 sm_120";
  struct Row {
    int capability;
    std::string with_ptx, without_ptx;  ///< member, or what its reason holds
  };
  for (const Row& row : std::vector<Row>{
           {75, "compute capability 7.5 is too old: 8.0 is the least",
            "compute capability 7.5 is too old: 8.0 is the least"},
           {80, "cuda-sm80", "cuda-sm80"},  // A100
           {86, "cuda-sm80", "cuda-sm80"},
           {87, "cuda-sm80", "cuda-sm80"},  // Orin: the code for 8.6
           {89, "cuda-sm80", "cuda-sm80"},
           {90, "cuda-sm90", "cuda-sm90"},
           {100, "cuda-sm80", "compute capability 10.0 " + no_code},
           {103, "cuda-sm80", "compute capability 10.3 " + no_code},
           {110, "cuda-sm80", "compute capability 11.0 " + no_code},
           {120, "cuda-sm80", "cuda-sm80"},
           {121, "cuda-sm80", "cuda-sm80"},  // the code for 12.0
           {130, "cuda-sm80", "compute capability 13.0 " + no_code},
       }) {
    SCOPED_TRACE(row.capability);
    for (const auto& [right, found] : {std::pair{row.with_ptx, chosen_cuda(release, row.capability)},
                                       {row.without_ptx, chosen_cuda(no_ptx, row.capability)}}) {
      if (right.starts_with("cuda-")) {
        EXPECT_EQ(found, right);
      } else {
        EXPECT_EQ(found.substr(0, 4), "no: ");
        expect_holds(found, right);
      }
    }
  }
}

/// tcgen05 for the two that have it, where it is allowed; every other device is given what it would be given without.
TEST(CudaCapability, BlackwellIsAskedForItsOwnOnlyWhereThatIsAllowed) {
  for (const int capability : {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 130}) {
    SCOPED_TRACE(capability);
    const bool has_it = capability == 100 || capability == 103;
    const std::string allowed = chosen_cuda(release, capability, 13000, true);
    if (has_it) {
      EXPECT_EQ(allowed, "cuda-sm100");
    } else if (capability >= 80) {
      EXPECT_EQ(allowed, chosen_cuda(release, capability));
    } else {
      expect_holds(allowed, "too old");
    }
  }
}

/// A driver that is older than the compiler runs its machine code, within a major version, and not its PTX.
TEST(CudaCapability, AnOlderDriverDoesNotKnowThePtx) {
  const cuda::Compiled newer = {{80, 86, 89, 90, 120}, {80}, 13010};
  for (const int capability : {80, 86, 87, 89, 120, 121}) EXPECT_EQ(chosen_cuda(newer, capability), "cuda-sm80");
  EXPECT_EQ(chosen_cuda(newer, 90), "cuda-sm90");
  for (const int capability : {100, 103, 110, 130}) {
    expect_holds(chosen_cuda(newer, capability),
                 cuda::Capability{capability}.text() +
                     " needs this build's PTX, and that a driver for CUDA 13.1; this one is made for 13.0");
    EXPECT_EQ(chosen_cuda(newer, capability, 13010), "cuda-sm80");
    EXPECT_EQ(chosen_cuda(newer, capability, 14000), "cuda-sm80");
  }
}

TEST(CudaCapability, BuildsForFewArchitectures) {
  const cuda::Compiled hopper = {{90}, {}, 13000}, ampere = {{80}, {}, 13000}, later = {{120}, {90}, 13000};
  EXPECT_EQ(chosen_cuda(hopper, 90), "cuda-sm90");
  for (const int capability : {80, 89, 100, 120}) expect_holds(chosen_cuda(hopper, capability), "code for: sm_90");
  for (const int capability : {80, 86, 89}) EXPECT_EQ(chosen_cuda(ampere, capability), "cuda-sm80");
  for (const int capability : {90, 100, 120}) expect_holds(chosen_cuda(ampere, capability), "code for: sm_80");
  expect_holds(chosen_cuda(later, 89), "8.9 is none that this build has code for: sm_120 compute_90");
  EXPECT_EQ(chosen_cuda(later, 103), "cuda-sm80");
  // 12.1's code does not run on 12.0.
  expect_holds(chosen_cuda({{121}, {}, 13000}, 120), "code for: sm_121");
}

TEST(CudaCapability, WgmmaIsHoppersAlone) {
  EXPECT_EQ(cuda::why_not(cuda::wgmma, {90}), "");
  for (const int capability : {80, 89, 100, 103, 110, 120, 121, 130}) {
    EXPECT_EQ(cuda::why_not(cuda::wgmma, {capability}),
              "wgmma needs compute capability 9.0, the device has " + cuda::Capability{capability}.text());
  }
  EXPECT_EQ(cuda::why_not(tcgen05, {120}), "tcgen05 needs compute capability 10.0 or 10.3, the device has 12.0");
}

TEST(CudaCapability, MachinesWithoutDevices) {
  expect_holds(cuda::why_none({false, 0, false}, 13000), "no NVIDIA driver on this machine (libcuda.so.1)");
  EXPECT_EQ(cuda::why_none({true, 12080, true}, 13000),
            "the NVIDIA driver is too old: it is made for CUDA 12.8, this build needs 13.0");
  EXPECT_EQ(cuda::why_none({true, 13000, false}, 13000), "there is an NVIDIA driver but no device that it shows");
}

/// Schedule and name of the policy that cuda-sm80 takes for a problem on a device with so much shared memory for a
/// block, or what the first of them says.
std::string policy_of(const Problem& problem, unsigned kibibytes) {
  std::string first;
  for (const auto& policy : cuda::sm80::policies) {
    if (policy.x != problem.x) continue;
    const std::string why = cuda::sm80::why_not(policy, problem, kibibytes * 1024);
    if (why.empty()) return std::string(name(policy.schedule)) + " " + std::string(policy.name);
    if (first.empty() && (policy.out.in_turn || problem.state <= policy.out.columns())) first = why;
  }
  return first;
}

/// 99 KiB: 8.6, 8.9, 12.0, 12.1. 163 KiB: 8.0, 8.7. 227 KiB: 9.0, 10.0, 10.3, 11.0. No device that code is compiled for
/// has as little as 48 KiB.
TEST(CudaCapability, SharedMemoryDecidesThePolicy) {
  struct Row {
    DType x;
    std::int64_t state;
    const char *at_99, *at_163, *at_227;
  };
  Problem problem = Call(Spec{}).problem();
  for (const Row& row : {
           Row{DType::bf16, 16, "fused q64n64w1", "fused q64n64w1", "fused q64n64w1"},
           Row{DType::bf16, 64, "fused q64n64w1", "fused q64n64w1", "fused q64n64w1"},
           Row{DType::bf16, 128, "staged q64w1", "fused q64n128w1", "fused q64n128w1"},
           Row{DType::bf16, 256, "staged q64w1", "staged q128w2", "staged q128w2"},
           Row{DType::bf16, 512, "staged q64w1", "staged q128w2", "staged q128w2"},
           Row{DType::f16, 64, "staged q64w1", "fused q64n128w1", "fused q64n128w1"},
           Row{DType::f16, 128, "staged q64w1", "fused q64n128w1", "fused q64n128w1"},
           Row{DType::f16, 256, "staged q64w1", "staged q128w2", "staged q128w2"},
           Row{DType::f16, 512, "staged q64w1", "staged q128w2", "staged q128w2"},
           Row{DType::f32, 64, "staged q32w1", "fused q32n128", "fused q32n128"},
           Row{DType::f32, 128, "staged q32w1", "fused q32n128", "fused q32n128"},
           Row{DType::f32, 256, "staged q32w1", "staged q32w1", "staged q32w1"},
           Row{DType::f32, 512, "staged q32w1", "staged q32w1", "staged q32w1"},
       }) {
    problem.x = problem.y = row.x, problem.state = row.state;
    SCOPED_TRACE(std::string(name(row.x)) + " " + std::to_string(row.state));
    EXPECT_EQ(policy_of(problem, 99), row.at_99);
    EXPECT_EQ(policy_of(problem, 163), row.at_163);
    EXPECT_EQ(policy_of(problem, 227), row.at_227);
    expect_holds(policy_of(problem, 48), "bytes of shared memory, the device gives 49152");
  }
}

/// The most that a call can ask for, a gate and outputs in fp32, finds a policy on the smallest devices.
TEST(CudaCapability, EveryCallHasRoomOnTheSmallestDevices) {
  Problem problem = Call(Spec{}).problem();
  problem.y = DType::f32, problem.z = true;
  struct Row {
    DType x;
    std::int64_t state;
    const char* at_99;
  };
  for (const Row& row : {Row{DType::bf16, 64, "fused q64n64w1"}, Row{DType::bf16, 128, "staged q64w1"},
                         Row{DType::bf16, 512, "staged q64w1"}, Row{DType::f16, 64, "staged q64w1"},
                         Row{DType::f16, 512, "staged q64w1"}, Row{DType::f32, 128, "staged q32w1"},
                         Row{DType::f32, 512, "staged q32w1"}}) {
    problem.x = row.x, problem.state = row.state;
    EXPECT_EQ(policy_of(problem, cuda::sm80::least_shared_memory / 1024), row.at_99) << name(row.x) << ' ' << row.state;
  }
}

TEST(CudaCapability, StateDecidesThePolicyOfHopperAndBlackwell) {
  const auto policy = [](const auto& policies, std::int64_t state) {
    for (const auto& each : policies) {
      if (state <= each.state) return std::string(each.name);
    }
    return std::string();
  };
  struct Row {
    std::int64_t state;
    const char *hopper, *blackwell;
  };
  for (const Row& row :
       {Row{1, "wgmma-q64n64w2", "tcgen05-q64n128w2"}, Row{64, "wgmma-q64n64w2", "tcgen05-q64n128w2"},
        Row{65, "wgmma-q64n128w2", "tcgen05-q64n128w2"}, Row{128, "wgmma-q64n128w2", "tcgen05-q64n128w2"},
        Row{129, "wgmma-q64n256w2c2", "tcgen05-q64n256w2c2"}, Row{256, "wgmma-q64n256w2c2", "tcgen05-q64n256w2c2"},
        Row{257, "wgmma-q64n512w2c4", "tcgen05-q64n512w2c4"}, Row{512, "wgmma-q64n512w2c4", "tcgen05-q64n512w2c4"},
        Row{513, "", ""}}) {
    EXPECT_EQ(policy(cuda::sm90::policies, row.state), row.hopper) << row.state;
    EXPECT_EQ(policy(cuda::sm100::policies, row.state), row.blackwell) << row.state;
  }
}

// ---------------------------------------------------------------------------------------------------------------- AMD

std::string chosen_hip(const std::vector<std::string>& compiled, const std::string& device, int wave) {
  return chosen("hip", [&](const std::string& member) -> std::string {
    if (member == hip::Kind<hip::Cdna>::member) return hip::why_not<hip::Cdna>(compiled, device, wave);
    if (member == hip::Kind<hip::Rdna>::member) return hip::why_not<hip::Rdna>(compiled, device, wave);
    return "there is no row for " + member + " in this test";
  });
}

TEST(HipCapability, EveryArchitecture) {
  const std::vector<std::string> all = {"gfx90a", "gfx942", "gfx1100"};
  const std::string unknown = " is none of the architectures that it knows: gfx90a gfx942";
  const std::string unknown_to_rdna = " is none of the architectures that it knows: gfx1100";
  struct Row {
    std::string device;
    int wave;
    std::string right;  ///< empty: no member knows it
  };
  for (const Row& row : std::vector<Row>{
           {"gfx906:sramecc+:xnack-", 64, ""},  // no matrix instructions
           {"gfx908:sramecc+:xnack-", 64, ""},  // MI100: MFMA, but none of bf16 in this form
           {"gfx90a:sramecc+:xnack-", 64, "hip-cdna"},
           {"gfx942:sramecc+:xnack-", 64, "hip-cdna"},
           {"gfx950:sramecc+:xnack-", 64, ""},
           {"gfx1100", 32, "hip-rdna"},
           {"gfx1101", 32, ""},
           {"gfx1200", 32, ""},
           {"gfx9999", 64, ""},  // newer than anything
       }) {
    SCOPED_TRACE(row.device);
    const std::string found = chosen_hip(all, row.device, row.wave);
    if (!row.right.empty()) {
      EXPECT_EQ(found, row.right);
      continue;
    }
    const std::string device = hip::architecture_of(row.device);
    EXPECT_EQ(found, "no: " + device + unknown + ": " + device + unknown_to_rdna);
  }
  // Known, and not compiled; and with waves of the other width.
  expect_holds(chosen_hip({"gfx90a"}, "gfx942", 64), "this build has no code for gfx942, only for gfx90a");
  expect_holds(chosen_hip({"gfx90a"}, "gfx1100", 32), "this build has no code for gfx1100, only for gfx90a");
  expect_holds(chosen_hip({}, "gfx90a", 64), "only for none");
  expect_holds(chosen_hip(all, "gfx1100", 64), "gfx1100 runs waves of 64, the code is for 32");
  EXPECT_EQ(chosen_hip({"gfx942"}, "gfx942", 64), "hip-cdna");
}

}  // namespace
}  // namespace tilemamba::test
