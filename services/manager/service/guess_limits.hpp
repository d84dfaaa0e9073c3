// Wrong passwords, by the address that they come from.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

#include "services/manager/service/recent_map.hpp"

namespace cenote::manager {

/// The addresses that one client can choose among: one of IPv4, or the first 64 bits of one of IPv6.
[[nodiscard]] std::string network_of(const std::string& address);

/// Ten wrong passwords of a network within a minute, and it waits for the minute's end. Thread-safe.
class guess_limits {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr unsigned most_guesses = 10;
  static constexpr std::chrono::seconds period{60};
  static constexpr std::size_t most_networks = 16'384;

  guess_limits() : networks_(most_networks) {}

  /// The time until a password is looked at again; 0: now.
  [[nodiscard]] std::chrono::nanoseconds delay(const std::string& address, time_point now);
  /// Counts a wrong password.
  void add(const std::string& address, time_point now);

 private:
  struct guesses {
    unsigned number = 0;
    time_point begin{};
  };

  std::mutex mutex_;
  recent_map<std::string, guesses> networks_;
};

}  // namespace cenote::manager
