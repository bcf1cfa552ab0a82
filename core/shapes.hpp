// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of shapes that are measured: by bench/main.cpp all of them, by `tilemamba tune` those of models or the grid.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/workload.hpp"

namespace tilemamba::workload {

struct Row {
  std::string_view set;
  std::string_view model;  ///< empty where the sizes are no model's
  Shape shape;
  Decay decay = Decay::published;
  bool batch_invariant = false;
};

/// Released models with prompts of 2048 tokens. Each stands for all that have its sizes: Nemotron-H 8B is Codestral,
/// Nemotron-3 Super is as well, Granite-4.0-H Small is Bamba, Falcon-H1 0.5B is Mamba2 130m.
inline constexpr std::int64_t T_of_models = 2048;
inline constexpr std::array models = {
    Row{"models", "mamba2-130m", {1, T_of_models, 24, 64, 1, 128}},
    Row{"models", "mamba2-370m", {1, T_of_models, 32, 64, 1, 128}},
    Row{"models", "mamba2-780m", {1, T_of_models, 48, 64, 1, 128}},
    Row{"models", "mamba2-1.3b", {1, T_of_models, 64, 64, 1, 128}},
    Row{"models", "mamba2-2.7b", {1, T_of_models, 80, 64, 1, 128}},
    Row{"models", "codestral-mamba-7b", {1, T_of_models, 128, 64, 8, 128}},
    Row{"models", "nemotron-h-47b", {1, T_of_models, 256, 64, 8, 256}},
    Row{"models", "nemotron-nano-9b-v2", {1, T_of_models, 128, 80, 8, 128}},
    Row{"models", "nemotron-3-nano-4b", {1, T_of_models, 96, 80, 8, 128}},
    Row{"models", "nemotron-3-nano-30b", {1, T_of_models, 64, 64, 8, 128}},
    Row{"models", "nemotron-3-ultra", {1, T_of_models, 256, 64, 8, 128}},
    Row{"models", "bamba-9b", {1, T_of_models, 128, 64, 1, 128}},
    Row{"models", "granite-4.0-h-350m", {1, T_of_models, 48, 32, 1, 128}},
    Row{"models", "falcon-h1-1.5b", {1, T_of_models, 48, 64, 1, 256}},
    Row{"models", "falcon-h1-3b", {1, T_of_models, 32, 128, 1, 256}},
    Row{"models", "falcon-h1-7b", {1, T_of_models, 24, 128, 1, 256}},
    Row{"models", "falcon-h1-34b", {1, T_of_models, 32, 128, 2, 256}},
    Row{"models", "zamba2-2.7b", {1, T_of_models, 80, 64, 1, 64}},
    Row{"models", "zamba2-7b", {1, T_of_models, 112, 64, 2, 64}},
    Row{"models", "plamo-2-1b", {1, T_of_models, 32, 128, 1, 64}},
    Row{"models", "plamo-2-8b", {1, T_of_models, 64, 128, 1, 64}},
};

/// @param max_tokens the longest sequence of the published grid (B 4, H 8, P 64, G 1; T from 2^10, N 64 to 512).
[[nodiscard]] inline std::vector<Row> rows(std::int64_t max_tokens) {
  // One sequence, one size at a time away from the first.
  std::vector<Row> rows = {
      {"sizes", "", {1, 4096, 8, 64, 1, 128}},  {"sizes", "", {1, 4096, 8, 64, 1, 64}},
      {"sizes", "", {1, 4096, 8, 64, 1, 256}},  {"sizes", "", {1, 4096, 8, 80, 1, 128}},
      {"sizes", "", {1, 4096, 80, 64, 1, 128}},
  };
  // Where one schedule becomes faster than another.
  for (const std::int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
    rows.push_back({"tokens", "", {1, tokens, 8, 64, 1, 128}});
  }
  rows.insert(rows.end(), models.begin(), models.end());
  for (std::int64_t tokens = 1024; tokens <= max_tokens; tokens *= 2) {
    for (const std::int64_t state : {64, 128, 256, 512}) rows.push_back({"grid", "", {4, tokens, 8, 64, 1, state}});
  }
  return rows;
}

/// For GPUs: every second length of the published grid, models with prompts of several lengths, sizes that divide
/// nothing, packed sequences, slow decay, and what bits that depend on no company cost.
[[nodiscard]] inline std::vector<Row> rows_of_gpus() {
  std::vector<Row> rows;
  for (const std::int64_t state : {64, 128, 256, 512}) {
    for (std::int64_t tokens = 1024; tokens <= 262144; tokens *= 4) {
      rows.push_back({"grid", "", {4, tokens, 8, 64, 1, state}});
    }
  }
  constexpr Row of_models[] = {{"models", "mamba2-2.7b", {1, 0, 80, 64, 1, 128}},
                               {"models", "nemotron-h-8b", {1, 0, 128, 64, 8, 128}}};
  for (Row row : of_models) {
    for (const auto& [batch, tokens] : {std::pair{1, 2048}, {1, 8192}, {1, 65536}, {8, 4096}}) {
      row.shape.batch = batch;
      row.shape.tokens = tokens;
      rows.push_back(row);
    }
  }
  rows.push_back({"models", "nemotron-nano-9b-v2", {1, 65536, 128, 80, 8, 128}});
  rows.push_back({"models", "falcon-h1-7b", {1, 65536, 24, 128, 1, 256}});
  rows.push_back({"off-grid", "", {1, 5000, 3, 64, 1, 64}});
  rows.push_back({"off-grid", "", {2, 3333, 24, 64, 1, 128}});
  rows.push_back({"off-grid", "", {1, 8192, 128, 80, 8, 128}});
  for (const std::int64_t sequences : {8, 64}) {
    rows.push_back({"varlen", "mamba2-2.7b", {1, 16384, 80, 64, 1, 128, sequences}});
    rows.push_back({"varlen", "nemotron-h-8b", {1, 16384, 128, 64, 8, 128, sequences}});
  }
  rows.push_back({"varlen", "mamba2-2.7b", {1, 10800, 80, 64, 1, 128, 300}});  // up to 199 tokens each
  for (const std::int64_t state : {64, 128, 256, 512}) {
    rows.push_back({"slow", "", {4, 65536, 8, 64, 1, state}, Decay::slow});
  }
  for (Row row : of_models) {
    row.set = "slow";
    row.shape.tokens = 8192;
    row.decay = Decay::slow;
    rows.push_back(row);
  }
  for (const std::int64_t tokens : {1024, 16384}) {
    for (const std::int64_t state : {64, 128, 256, 512}) {
      rows.push_back({"invariant", "", {4, tokens, 8, 64, 1, state}, Decay::published, true});
    }
  }
  rows.push_back({"invariant", "mamba2-2.7b", {1, 8192, 80, 64, 1, 128}, Decay::published, true});
  rows.push_back({"invariant", "nemotron-h-8b", {1, 8192, 128, 64, 8, 128}, Decay::published, true});
  return rows;
}

}  // namespace tilemamba::workload
