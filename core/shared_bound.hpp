// The bounds of a node that all its clients fill together, and what each user and instance group may have of one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/fair_share.hpp"

namespace cenote {

/// Pays for its part of a bound: a user, and one of the user's instance groups. Another node pays as a user of its own.
struct share_holder {
  std::uint32_t uid = 0;
  std::string group{};  ///< as the spec has it; of another node: its name

  static constexpr std::uint32_t other_node = ~std::uint32_t{0};  ///< a uid that no process has
  auto operator<=>(const share_holder&) const = default;
};

enum class node_bound : std::uint8_t {
  connections,
  sessions,
  instances,
  rank_groups,
  ranks,
  requests,
  request_keys,
  followers,
  prefetch_keys,
  guest_instances,
  device_sessions,
  blank_blocks,
  trace_spans,
};
inline constexpr std::size_t node_bounds = static_cast<std::size_t>(node_bound::trace_spans) + 1;

/// The holders that share a bound.
enum class share_kind : std::uint8_t {
  user,            ///< the instance group is not known there, or is nothing that descriptors are counted by
  user_and_group,  ///< a user's share is shared again by the user's instance groups
};

struct node_bound_row {
  node_bound bound{};
  std::string_view things;  ///< in error texts
  std::uint64_t total = 0;  ///< 0: `place` names what sets it
  share_kind share{};
  std::string_view place;  ///< the configuration's key, or the constant that has the total
};

/// All of them. A constant or a key that bounds what many clients fill has a row here, and its check is
/// share_refusal() or a shared_bound; tests/unit/core/shared_bound_test.cpp finds those that have none.
inline constexpr std::array<node_bound_row, node_bounds> node_bound_table{{
    {node_bound::connections, "connections", 0, share_kind::user, "RLIMIT_NOFILE"},
    {node_bound::sessions, "sessions", 0, share_kind::user, "node.max_sessions"},
    {node_bound::instances, "instances", 0, share_kind::user, "limits.instances"},
    {node_bound::rank_groups, "groups of ranks", 256, share_kind::user_and_group, "most_groups"},
    {node_bound::ranks, "ranks in groups", 4096, share_kind::user_and_group, "most_ranks"},
    {node_bound::requests, "published requests", 4096, share_kind::user_and_group, "most_requests"},
    {node_bound::request_keys, "published keys", std::uint64_t{1} << 19, share_kind::user_and_group, "most_keys"},
    {node_bound::followers, "followers of requests", 4096, share_kind::user_and_group, "most_followers"},
    {node_bound::prefetch_keys, "keys of prefetches", std::uint64_t{1} << 21, share_kind::user_and_group, "max_keys"},
    {node_bound::guest_instances, "instances of other nodes", 1024, share_kind::user, "most_instances"},
    {node_bound::device_sessions, "sessions on one device", 0, share_kind::user_and_group, "node.max_sessions"},
    {node_bound::blank_blocks, "blank blocks", 0, share_kind::user_and_group, "dram.capacity"},
    {node_bound::trace_spans, "spans that wait", 8192, share_kind::user_and_group, "most_spans"},
}};

[[nodiscard]] constexpr const node_bound_row& row_of(node_bound bound) noexcept {
  return node_bound_table.at(static_cast<std::size_t>(bound));
}
[[nodiscard]] constexpr std::size_t total_of(node_bound bound) noexcept {
  return row_of(bound).total;
}

/// Parts of a bound that are in use.
struct share_usage {
  std::uint64_t all = 0;
  std::uint64_t user = 0;   ///< of that, by one user
  std::uint64_t group = 0;  ///< of that, by one instance group of the user; only for share_kind::user_and_group
};

/// The most that a user may have, and of it one instance group.
[[nodiscard]] std::uint64_t user_share(std::uint64_t total, const share_usage& usage) noexcept;
[[nodiscard]] std::uint64_t group_share(std::uint64_t total, const share_usage& usage) noexcept;

/// `limit_exceeded`, in words, if `holder` must not take `count` of them; nothing if it may.
[[nodiscard]] std::optional<error> share_refusal(node_bound bound, std::uint64_t total, const share_usage& usage,
                                                 const share_holder& holder, std::uint64_t count = 1);

/// Counts what each holder has of one bound. Not thread-safe.
class shared_bound {
 public:
  explicit shared_bound(node_bound bound) : shared_bound(bound, total_of(bound)) {}
  shared_bound(node_bound bound, std::uint64_t total) : bound_(bound), total_(total) {}

  [[nodiscard]] std::optional<error> refusal(const share_holder& holder, std::uint64_t count = 1) const;
  /// Whether it may is the caller's question before.
  void take(const share_holder& holder, std::uint64_t count = 1);
  void give_back(const share_holder& holder, std::uint64_t count = 1);
  [[nodiscard]] std::uint64_t total_taken() const noexcept { return all_; }
  [[nodiscard]] share_usage taken_by(const share_holder& holder) const;

 private:
  node_bound bound_;
  std::uint64_t total_;
  std::uint64_t all_ = 0;
  std::map<std::uint32_t, std::uint64_t> by_user_;   ///< none is 0
  std::map<share_holder, std::uint64_t> by_holder_;  ///< none is 0
};

}  // namespace cenote
