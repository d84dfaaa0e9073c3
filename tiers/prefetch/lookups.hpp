// How far chains reach, tiers below that must be asked included, without anything being loaded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/prefetch/commands.hpp"
#include "tiers/prefetch/inquiry.hpp"

namespace cenote::prefetch {

/// Answers requests of kind `locate` with the length of the longest prefix whose blocks are here, on their way or
/// below. Each is answered within its patience: with what is known without the tiers that did not answer. Not
/// thread-safe; the caller passes the time.
class lookups {
 public:
  static constexpr std::size_t max_session_lookups = 64;  ///< that wait for an answer; more are refused

  /// `number`: unique among questions. `longest`: no request is waited for longer.
  void begin(std::uint64_t number, request incoming, nanoseconds longest, time_point now);
  /// A tier's answer; ignored when it is to another question.
  void on_told(std::uint64_t number, edge_number edge, const std::vector<bool>& held);
  void on_session_closed(std::uint64_t session);
  /// Answers those whose patience is over.
  void expire(time_point now);
  [[nodiscard]] std::optional<time_point> wake_at() const noexcept;

  [[nodiscard]] std::vector<question> take_questions() { return std::exchange(questions_, {}); }
  [[nodiscard]] std::vector<answer> take_answers() { return std::exchange(answers_, {}); }

 private:
  struct lookup {
    std::uint64_t session = 0;
    std::uint32_t request = 0;
    std::vector<spot> places;
    inquiry asks;
  };

  [[nodiscard]] std::size_t open_of(std::uint64_t session) const noexcept;
  void close(lookup& done);
  void say(std::uint64_t session, std::uint32_t request, error_code code, std::uint64_t length);

  std::map<std::uint64_t, lookup> open_;  ///< by number
  std::vector<question> questions_;
  std::vector<answer> answers_;
};

}  // namespace cenote::prefetch
