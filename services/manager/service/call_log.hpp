// Lines of the log about calls: those that were refused, that failed or that took long.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "services/manager/service/token_bucket.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// A call that has its answer.
struct ended_call {
  std::string_view name{};  ///< as in the proto
  answer_code code = answer_code::ok;
  std::string_view reason{};    ///< of a refusal
  std::string_view trace_id{};  ///< the client's name for the request, as it came; empty: it has none
  std::chrono::nanoseconds time{};
};

/// Writes a line for each call that is not OK or that is slow, with its trace_id. Clients cause them, so there are at
/// most `lines_per_second`; the next line has the number of those that were left out. At the level debug all are
/// written. Texts of clients are cut, and cannot steer a terminal. Thread-safe.
class call_log {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds slow_time{1};
  static constexpr double lines_per_second = 10;
  static constexpr std::size_t longest_trace_id = 128;  ///< bytes
  static constexpr std::size_t longest_reason = 512;

  explicit call_log(time_point now = std::chrono::steady_clock::now()) noexcept : lines_(lines_per_second, now) {}

  [[nodiscard]] static bool wants(answer_code code, std::chrono::nanoseconds time) noexcept {
    return code != answer_code::ok || time >= slow_time;
  }
  /// To be called for calls that it wants.
  void note(const ended_call& call, time_point now);

 private:
  /// The number of lines that were left out since the last one; nothing: this one is left out, too.
  [[nodiscard]] std::optional<std::uint64_t> take_line(time_point now);

  std::mutex mutex_;
  token_bucket lines_;  ///< with what follows under the mutex
  std::uint64_t omitted_ = 0;
};

}  // namespace cenote::manager
