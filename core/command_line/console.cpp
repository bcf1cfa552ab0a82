// SPDX-License-Identifier: Apache-2.0
#include "core/command_line/console.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba::command_line {

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  // Usually SIGPIPE ends the process before this is reached; a parent may have it ignored.
  if (errno == EPIPE) throw OutputClosed{};
  throw Error(ErrorCode::io, "stdout cannot be written: " + std::generic_category().message(errno));
}

void complain(std::string_view text) { fmt::print(stderr, "tilemamba: {}\n", text); }

Progress::Progress() : terminal_(isatty(fileno(stderr)) == 1) {}

void Progress::show(std::string_view text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r{:<{}}\r{}", "", shown_, text);
  std::fflush(stderr);
  shown_ = text.size();
}

void Progress::clear() {
  if (shown_ != 0) show("");
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(titles.back().size());
    for (const auto& row : rows_) widths.back() = std::max(widths.back(), row.empty() ? 0 : row[i].size());
  }
  std::string text;
  const auto append = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += columns_[i].number ? fmt::format("{:>{}}  ", cells[i], widths[i])
                                 : fmt::format("{:<{}}  ", cells[i], widths[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  append(titles);
  for (const auto& row : rows_) append(row);
  return text;
}

}  // namespace tilemamba::command_line
