// What ranks of a group say, and how it travels in submissions and completions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "memory/session_memory.hpp"

namespace cenote::memory {

inline constexpr std::size_t max_rank_group_name = max_key_bytes;
inline constexpr std::uint32_t max_ranks = 256;  ///< of a group
inline constexpr std::chrono::nanoseconds shortest_group_timeout = std::chrono::milliseconds(1);
inline constexpr std::chrono::nanoseconds longest_group_timeout = std::chrono::hours(1);
inline constexpr std::size_t most_rank_groups = 64;        ///< that one session is in
inline constexpr std::size_t most_open_questions = 1'024;  ///< of one rank

[[nodiscard]] constexpr bool is_for_groups(operation what) noexcept {
  return what >= operation::join && what <= operation::leave;
}

/// A time that another process says; longer than any that is allowed stays so.
[[nodiscard]] constexpr std::chrono::nanoseconds time_in(std::uint64_t word) noexcept {
  return std::chrono::nanoseconds(std::min(word, std::uint64_t{1} << 60));
}

/// A rank that joins. Packed: key = name; argument = rank (32) | size (32); want = patience; grant_version = handle;
/// parent = the worker's epoch.
struct join_terms {
  std::string name;  ///< 1 to max_rank_group_name bytes
  std::uint32_t rank = 0;
  std::uint32_t size = 0;               ///< ranks of the group
  std::chrono::nanoseconds patience{};  ///< for the other ranks
  std::uint32_t handle = 0;             ///< the client's name of its membership; not 0, used once in a session
  std::uint64_t epoch = 0;              ///< of the worker that is meant: a later one knows nothing of it

  void pack(submission& into) const noexcept {
    into.op = operation::join;
    into.key_size = static_cast<std::uint8_t>(std::min(name.size(), max_rank_group_name));
    std::memcpy(into.key, name.data(), into.key_size);
    into.argument = std::uint64_t{rank} | (std::uint64_t{size} << 32);
    into.want = static_cast<std::uint64_t>(patience.count());
    into.grant_version = handle;
    into.parent = epoch;
  }
  /// Nothing is checked but that the name lies in the entry.
  [[nodiscard]] static join_terms of(const submission& entry) {
    const std::size_t bytes = std::min<std::size_t>(entry.key_size, max_rank_group_name);
    return {.name = std::string(reinterpret_cast<const char*>(entry.key), bytes),
            .rank = static_cast<std::uint32_t>(entry.argument),
            .size = static_cast<std::uint32_t>(entry.argument >> 32),
            .patience = time_in(entry.want),
            .handle = entry.grant_version,
            .epoch = entry.parent};
  }
};

/// A question. Packed: block = number; argument = length; want = timeout; grant_version and parent as of the join.
struct agree_terms {
  std::uint64_t question = 0;
  std::uint64_t length = 0;            ///< what this rank has
  std::chrono::nanoseconds timeout{};  ///< until when the rank has an answer, or the group is lost
  std::uint32_t handle = 0;
  std::uint64_t epoch = 0;

  void pack(submission& into) const noexcept {
    into.op = operation::agree;
    into.block = question;
    into.argument = length;
    into.want = static_cast<std::uint64_t>(timeout.count());
    into.grant_version = handle;
    into.parent = epoch;
  }
  [[nodiscard]] static agree_terms of(const submission& entry) noexcept {
    return {.question = entry.block,
            .length = entry.argument,
            .timeout = time_in(entry.want),
            .handle = entry.grant_version,
            .epoch = entry.parent};
  }
};

/// Why something was refused, in words: 16 bytes of UTF-8 in each of some completions before the one that ends the
/// request, the last one with zeros behind.
struct refusal_text {
  static constexpr std::size_t most = 256;  ///< bytes

  /// Calls `push` with each of them. What is longer is cut.
  template <class Push>
  static void pack(std::string_view text, std::uint32_t request, Push&& push) {
    text = text.substr(0, most);
    for (std::size_t at = 0; at < text.size(); at += 2 * sizeof(std::uint64_t)) {
      completion piece{.request = request, .kind = completion_kind::text};
      const std::string_view some = text.substr(at, 2 * sizeof(std::uint64_t));
      std::memcpy(&piece.block, some.data(), std::min(some.size(), sizeof piece.block));
      if (some.size() > sizeof piece.block)
        std::memcpy(&piece.value, some.data() + sizeof piece.block, some.size() - sizeof piece.block);
      push(piece);
    }
  }
  static void append(std::string& to, const completion& piece) {
    if (to.size() >= most) return;
    char bytes[2 * sizeof(std::uint64_t)];
    std::memcpy(bytes, &piece.block, sizeof piece.block);
    std::memcpy(bytes + sizeof piece.block, &piece.value, sizeof piece.value);
    to.append(bytes, ::strnlen(bytes, sizeof bytes));
  }
};

}  // namespace cenote::memory
