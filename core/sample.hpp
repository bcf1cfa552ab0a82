// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a call gives, where it is known: for whoever measures times, so that a fast wrong answer gets none.
#pragma once

#include <cstdint>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

/// The distance of two series, relative to the second's norm.
class Distance {
 public:
  void add(double value, double right) {
    error_ += (value - right) * (value - right);
    norm_ += right * right;
  }
  /// False for anything that is not finite.
  [[nodiscard]] bool within(double bar) const { return error_ <= bar * bar * norm_; }
  /// No number, or infinite, if something is not finite or the right answer is nothing but zeros.
  [[nodiscard]] TILEMAMBA_EXPORT double relative() const;

 private:
  double error_ = 0, norm_ = 0;
};

/// Some channels from all over a call, as the recurrence, token by token in double, makes them: so many that it does
/// not take long.
class TILEMAMBA_EXPORT Sample {
 public:
  /// @param call its inputs, dense and in host memory.
  Sample(const Problem& problem, const Arguments& call);
  /// Of y and of the final states, if there are any.
  struct Errors {
    Distance y, final_states;
  };
  /// Over all channels. @param call its outputs, dense and in host memory.
  [[nodiscard]] Errors errors_of(const Arguments& call) const;
  /// Whether each channel by itself is as near as that.
  [[nodiscard]] bool within(double bar, const Arguments& call) const;

 private:
  struct Channel {
    std::int64_t sequence, head, channel;
    std::int64_t begin, end;  ///< rows of tokens, counted through all batches
    std::vector<double> y, final_state;
  };
  void compute(const Arguments& call, Channel& channel) const;
  void add(const Arguments& call, const Channel& channel, Errors& errors) const;

  Problem problem_;
  std::vector<Channel> channels_;
};

}  // namespace tilemamba
