// What ranks of a group say, and how it travels in a submission.
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
inline constexpr std::uint32_t max_ranks = 1024;  ///< of a group
inline constexpr std::chrono::nanoseconds shortest_group_timeout = std::chrono::milliseconds(1);
inline constexpr std::chrono::nanoseconds longest_group_timeout = std::chrono::hours(1);
inline constexpr std::size_t most_rank_groups = 64;        ///< that one session is in
inline constexpr std::size_t most_open_questions = 1'024;  ///< of one rank

/// A rank that joins. Packed: key = name; argument = rank (32) | size (32); want = timeout; grant_version = handle;
/// parent = the worker's epoch.
struct join_terms {
  std::string name;  ///< 1 to max_rank_group_name bytes
  std::uint32_t rank = 0;
  std::uint32_t size = 0;             ///< ranks of the group
  std::chrono::nanoseconds timeout{};  ///< of a question: its rank has an answer by then, or the group is lost
  std::uint32_t handle = 0;            ///< the client's name of its membership; not 0, used once in a session
  std::uint64_t epoch = 0;             ///< of the worker that is meant: a later one knows nothing of it

  void pack(submission& into) const noexcept {
    into.op = operation::join;
    into.key_size = static_cast<std::uint8_t>(std::min(name.size(), max_rank_group_name));
    std::memcpy(into.key, name.data(), into.key_size);
    into.argument = std::uint64_t{rank} | (std::uint64_t{size} << 32);
    into.want = static_cast<std::uint64_t>(timeout.count());
    into.grant_version = handle;
    into.parent = epoch;
  }
  /// Nothing is checked but that the name lies in the entry.
  [[nodiscard]] static join_terms of(const submission& entry) {
    const std::size_t bytes = std::min<std::size_t>(entry.key_size, max_rank_group_name);
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    return {.name = std::string(reinterpret_cast<const char*>(entry.key), bytes),
            .rank = static_cast<std::uint32_t>(entry.argument),
            .size = static_cast<std::uint32_t>(entry.argument >> 32),
            .timeout = std::chrono::nanoseconds(std::min(entry.want, most)),
            .handle = entry.grant_version,
            .epoch = entry.parent};
  }
};

/// A question. Packed: block = number; argument = length; grant_version and parent as of the join.
struct agree_terms {
  std::uint64_t question = 0;
  std::uint64_t length = 0;  ///< what this rank has
  std::uint32_t handle = 0;
  std::uint64_t epoch = 0;

  void pack(submission& into) const noexcept {
    into.op = operation::agree;
    into.block = question;
    into.argument = length;
    into.grant_version = handle;
    into.parent = epoch;
  }
  [[nodiscard]] static agree_terms of(const submission& entry) noexcept {
    return {.question = entry.block, .length = entry.argument, .handle = entry.grant_version, .epoch = entry.parent};
  }
};

/// Why the node refused what a rank said: `block` of the completion, unless its code is group_lost.
enum class group_refusal : std::uint8_t {
  none = 0,
  not_a_name = 1,           ///< its length
  not_a_size = 2,           ///< 0, or more than max_ranks
  not_a_rank = 3,           ///< at least the size
  not_a_timeout = 4,        ///< too short or too long
  not_a_handle = 5,         ///< 0, or in use
  unknown_handle = 6,       ///< no join went before
  not_joined_yet = 7,       ///< its join is not answered yet
  other_size = 8,           ///< others of the group say another size
  too_many_groups = 9,      ///< most_rank_groups, or the node's bound
  too_many_questions = 10,  ///< most_open_questions
};

/// Why a group is lost: `block` of a completion with group_lost.
enum class group_loss : std::uint8_t {
  unknown = 0,       ///< a later node's
  left = 1,          ///< a rank left, or its process ended
  joined_again = 2,  ///< a rank joined again
  node_gone = 3,     ///< a node with ranks of it is gone, or was started anew
  overdue = 4,       ///< a question was not decided in time
  other_worker = 5,  ///< meant for a worker that is gone
};

[[nodiscard]] constexpr std::string_view text_of(group_loss why) noexcept {
  switch (why) {
    case group_loss::left: return "a rank left or its process ended";
    case group_loss::joined_again: return "a rank joined again";
    case group_loss::node_gone: return "a node with ranks of the group is gone or was started anew";
    case group_loss::overdue: return "a question was not decided in time";
    case group_loss::other_worker: return "the node's worker was replaced";
    default: return "the node says so";
  }
}

}  // namespace cenote::memory
