// A reader at full rate beside something else.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "commands/bench/manager/private_manager.hpp"

namespace cenote::bench {

/// Requests for 64 chains, as bytes. Any thread.
class reader_load {
 public:
  reader_load(const private_manager& manager, std::uint64_t chains);

  /// Lookups per second on this thread, for some seconds or until `is_over`.
  [[nodiscard]] double rate(double seconds) const;
  [[nodiscard]] double rate(const std::atomic<bool>& is_over, double seconds) const;
  /// Bytes of all answers.
  [[nodiscard]] std::uint64_t answer_bytes() const;

 private:
  const private_manager& manager_;
  std::vector<std::string> bodies_;
};

}  // namespace cenote::bench
