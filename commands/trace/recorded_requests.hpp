// Requests of a running node, as a trace.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::traces {

/// Takes the node's answers to `record`, one after the other. Not thread-safe.
class recorded_requests {
 public:
  /// `block_tokens`: of instances whose spec names none, and of the trace; 0: those of the first request, and requests
  /// of such instances are left out.
  explicit recorded_requests(std::uint64_t block_tokens) : given_tokens_(block_tokens), block_tokens_(block_tokens) {}

  /// An answer of a recording that began `start_ms` after the first one. Errors: malformed.
  [[nodiscard]] result<void> add(const nlohmann::json& answer, std::uint64_t start_ms);

  [[nodiscard]] const simulation::trace& requests() const noexcept { return requests_; }
  [[nodiscard]] simulation::trace take() && { return std::move(requests_); }
  /// Requests that are not in the trace, by what is wrong with them.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& left_out() const noexcept { return left_out_; }
  /// Those of which blocks in the middle are not named.
  [[nodiscard]] std::uint64_t cut() const noexcept { return cut_; }
  /// About the bytes that the trace takes.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

 private:
  [[nodiscard]] result<void> add_request(const nlohmann::json& request, std::uint64_t start_ms);
  [[nodiscard]] bool has_size(std::uint64_t block_tokens);
  [[nodiscard]] std::uint32_t number_of(std::uint64_t instance);

  std::uint64_t given_tokens_;
  std::uint64_t block_tokens_;
  std::uint64_t node_started_ns_ = 0;
  bool is_begun_ = false;
  std::uint64_t first_ms_ = 0;
  simulation::trace requests_;
  std::map<std::uint64_t, std::uint32_t> instances_;  ///< in the trace, by the number of the node that was started last
  std::uint32_t numbered_ = 0;                        ///< of all nodes
  std::map<std::string, std::uint64_t> left_out_;
  std::uint64_t cut_ = 0;
  std::vector<std::uint64_t> ids_;  ///< of the request at hand
};

}  // namespace cenote::traces
