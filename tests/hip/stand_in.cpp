// SPDX-License-Identifier: Apache-2.0
#include "tests/hip/stand_in.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace tilemamba::test {
namespace {

using Matrix = std::vector<std::array<std::vector<Place>, 16>>;

Instruction read(const std::string& file) {
  std::ifstream in(std::string(TILEMAMBA_TEST_LAYOUTS) + "/" + file);
  if (!in) throw std::runtime_error("cannot read " + file);
  Instruction result;
  result.name = file;
  Matrix* matrix = nullptr;
  const std::regex place(R"(v([0-9]+)\{([0-9]+)\}(\.\[(15:0|31:16)\])?)");
  for (std::string line; std::getline(in, line);) {
    if (line[0] == 'A' || line[0] == 'B' || line[0] == 'D') {
      matrix = line[0] == 'A' ? &result.a : line[0] == 'B' ? &result.b : &result.d;
      continue;
    }
    if (matrix == nullptr) throw std::runtime_error(file + ": a row before any matrix");
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');  // the row's number
    auto& row = matrix->emplace_back();
    for (std::size_t column = 0; std::getline(cells, cell, ','); ++column) {
      for (std::sregex_iterator it(cell.begin(), cell.end(), place), end; it != end; ++it) {
        const int half = (*it)[4] == "15:0" ? 0 : (*it)[4] == "31:16" ? 1 : -1;
        row.at(column).push_back({std::stoi((*it)[2]), std::stoi((*it)[1]), half});
      }
    }
  }
  result.depth = static_cast<int>(result.b.size());
  if (result.a.size() != 16 || result.d.size() != 16 || result.depth == 0)
    throw std::runtime_error(file + ": not three matrices");
  return result;
}

float element(const std::vector<Place>& places, DType type, const std::vector<const std::uint32_t*>& words) {
  std::uint32_t bits = 0;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const Place& at = places[k];
    const std::uint32_t word = words[static_cast<std::size_t>(at.lane)][at.word];
    const std::uint32_t its = at.half < 0 ? word : word >> (16 * at.half) & 0xffffu;
    if (k > 0 && its != bits) lanes::complain("lanes that should hold the same element of an operand do not");
    bits = its;
  }
  if (type == DType::f32) return std::bit_cast<float>(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return type == DType::bf16 ? tile::from_bf16(half) : tile::from_f16(half);
}

}  // namespace

const Instruction& instruction(const std::string& file) {
  static std::map<std::string, Instruction> known;
  const auto found = known.find(file);
  return found != known.end() ? found->second : known.emplace(file, read(file)).first->second;
}

void perform(const Instruction& its, DType type, const std::vector<const std::uint32_t*>& a,
             const std::vector<const std::uint32_t*>& b, const std::vector<float*>& d) {
  float left[16][16], right[16][16], sum[16][16];
  for (std::size_t k = 0; k < static_cast<std::size_t>(its.depth); ++k) {
    for (std::size_t i = 0; i < 16; ++i) left[k][i] = element(its.a[i][k], type, a);
    for (std::size_t j = 0; j < 16; ++j) right[k][j] = element(its.b[k][j], type, b);
  }
  const auto at = [&](std::size_t i, std::size_t j) -> float& {
    const Place& place = its.d[i][j].front();
    return d[static_cast<std::size_t>(place.lane)][place.word];
  };
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) sum[i][j] = at(i, j);
  }
  for (int k = 0; k < its.depth; ++k) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) sum[i][j] += left[k][i] * right[k][j];
    }
  }
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) at(i, j) = sum[i][j];
  }
}

}  // namespace tilemamba::test
