// Write sessions: open ones by their deadlines, and those that have just ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// The name that a client has for a session: the extent's number and a random number, in hexadecimal.
struct session_name {
  std::uint64_t extent = 0;  ///< 0: nothing was granted
  std::uint64_t nonce = 0;

  /// That of a session of an instance (its number) which was granted nothing. Nothing is remembered of it: its name
  /// shows what it is.
  [[nodiscard]] static session_name empty(std::uint64_t instance);
  [[nodiscard]] bool is_empty_of(std::uint64_t instance) const noexcept;

  [[nodiscard]] std::string text() const;
  /// Nothing if it is not 32 digits.
  [[nodiscard]] static std::optional<session_name> parse(std::string_view text);
};

/// An open session.
struct session_place {
  std::uint64_t instance = 0;  ///< its number
  std::uint32_t table = 0;     ///< of its extent
  std::uint32_t blocks = 0;
};

/// A session that was finished; it is remembered for a while, so that the same call again has the same answer.
struct finished_session {
  std::uint64_t instance = 0;
  std::uint64_t nonce = 0;
  std::uint64_t finish_mark = 0;
  std::uint32_t blocks = 0;
  round_time expiry{};
};

/// Plain; time is an argument. The writer's alone.
class write_sessions {
 public:
  static constexpr std::size_t most_sessions = 65'536;
  static constexpr std::size_t most_blocks = std::size_t{16} << 20U;
  static constexpr std::chrono::seconds memory{60};

  /// The time for which a finish at `wrote_at` (Unix seconds) is remembered from now on.
  [[nodiscard]] static std::chrono::seconds memory_rest(std::uint32_t wrote_at) noexcept;
  [[nodiscard]] bool has_room(std::size_t blocks) const noexcept {
    return open_.size() < most_sessions && blocks + blocks_ <= most_blocks;
  }
  void open(std::uint64_t extent, const session_place& place, round_time deadline);
  [[nodiscard]] const session_place* find(std::uint64_t extent) const;
  void close(std::uint64_t extent, round_time deadline);
  void remember(std::uint64_t extent, const finished_session& session);
  [[nodiscard]] const finished_session* find_finished(std::uint64_t extent, round_time now);
  /// The session whose deadline is over; it stays open until close().
  [[nodiscard]] std::optional<std::uint64_t> expired(round_time now) const;
  [[nodiscard]] std::optional<round_time> next_deadline() const;
  [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }

 private:
  std::unordered_map<std::uint64_t, session_place> open_;
  std::set<std::pair<round_time, std::uint64_t>> deadlines_;
  std::unordered_map<std::uint64_t, finished_session> finished_;
  std::deque<std::uint64_t> finished_order_;
  std::size_t blocks_ = 0;
};

}  // namespace cenote::manager
