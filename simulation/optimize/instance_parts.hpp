// The requests of each instance of a trace, or of each group of instances, as traces of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::simulation {

/// Knows which requests are of which instance; makes a trace of one's when it is asked, so that only those are in
/// memory that are in use. `whole` outlives it.
class instance_parts {
 public:
  /// `groups`: the group of each instance number; empty: each instance is one of its own.
  explicit instance_parts(const trace& whole, std::span<const std::uint32_t> groups = {});

  /// The numbers of instances or groups that have requests, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& instances() const noexcept { return instances_; }
  /// The requests of instances()[place], in their order, with their times.
  [[nodiscard]] trace part(std::size_t place) const;
  /// The places of these requests in the whole.
  [[nodiscard]] std::span<const std::size_t> places(std::size_t place) const {
    return std::span(order_).subspan(begins_[place], begins_[place + 1] - begins_[place]);
  }
  /// Its requests among the first `count` of the whole.
  [[nodiscard]] std::size_t count_within(std::size_t place, std::size_t count) const;

 private:
  const trace& whole_;
  std::vector<std::uint32_t> instances_;
  std::vector<std::size_t> order_;   ///< of requests, by instance
  std::vector<std::size_t> begins_;  ///< in order_, one more than instances
};

}  // namespace cenote::simulation
