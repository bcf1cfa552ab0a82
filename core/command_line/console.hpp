// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the command line writes: answers to stdout, everything else to stderr.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilemamba::command_line {

/// Thrown when whoever reads stdout has gone: there is nobody left to tell.
struct OutputClosed {};

/// Writes to stdout at once.
/// @throws OutputClosed if nobody reads it; Error io if it cannot be written otherwise (a full disk).
void print(std::string_view text);

/// "tilemamba: ..." on stderr.
void complain(std::string_view text);

/// One line on stderr, rewritten, while something takes long. Silent unless stderr is a terminal.
class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void show(std::string_view text);
  /// Takes the line away; call it before something else is written.
  void clear();

 private:
  bool terminal_;
  std::size_t shown_ = 0;
};

/// A table whose columns are as wide as their longest cell. Text goes left, and numbers go right.
class Table {
 public:
  struct Column {
    std::string title;
    bool number = false;
  };
  explicit Table(std::vector<Column> columns);

  /// As many cells as there are columns. An empty row gives an empty line.
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tilemamba::command_line
