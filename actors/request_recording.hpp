// Watched requests on their way to a recorder.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "actors/messages.hpp"

namespace cenote {

/// One recording at a time, of requests that wait until they are fetched; bounded, since a node never waits. It ends
/// when none were fetched for `patience`. Not thread-safe.
class request_recording {
 public:
  static constexpr std::chrono::seconds patience{5};
  static constexpr std::uint64_t most_waiting = 1 << 20;  ///< blocks, 8 more for each request
  static constexpr std::uint64_t most_answered = 1 << 18;

  /// `dropped`: requests that never came, of all times. The first answer has the number of a recording that begins.
  /// Errors: limit_exceeded: another one is under way.
  [[nodiscard]] recorded_batch begin(std::uint64_t dropped, std::chrono::steady_clock::time_point now);
  void add(const watched_batch& batch, std::chrono::steady_clock::time_point now);
  /// Requests in the order in which they came, up to `most_answered`. Errors: closed: it has ended.
  [[nodiscard]] recorded_batch take(std::uint64_t number, std::uint64_t dropped,
                                    std::chrono::steady_clock::time_point now);
  void end(std::uint64_t number) noexcept;

 private:
  struct waiting_request {
    blocks::watched_request request;
    std::uint64_t time_ns = 0;
  };
  [[nodiscard]] bool is_under_way(std::chrono::steady_clock::time_point now) noexcept;

  std::uint64_t number_ = 0;  ///< of the recording under way; 0: none is
  std::chrono::steady_clock::time_point start_{};
  std::chrono::steady_clock::time_point last_question_{};
  std::deque<waiting_request> waiting_;
  std::uint64_t waiting_weight_ = 0;
  std::uint64_t dropped_ = 0;         ///< of this recording, since too much waited
  std::uint64_t dropped_before_ = 0;  ///< of all times when it began
};

}  // namespace cenote
