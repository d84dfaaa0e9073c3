// The order in which the blocks of an instance in a storage go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::manager {

/// The numbers of records in the order of a policy. A plain object; time is in tenths of a second. Not thread-safe.
class reclaim_pool {
 public:
  /// Errors: invalid_config (no policy of this name).
  [[nodiscard]] static result<std::unique_ptr<reclaim_pool>> make(std::string_view policy);

  /// `id` is the same each time the key comes. A record that is here already is used.
  void insert(std::uint32_t record, std::uint64_t id, std::uint32_t now);
  [[nodiscard]] bool has(std::uint32_t record) const noexcept { return record < members_.size() && members_[record]; }
  // Records that are not here do not matter to these.
  void touch(std::uint32_t record, std::uint32_t now);
  void forget(std::uint32_t record);
  /// As forget(), to make room: a policy with ghosts remembers it.
  void evict(std::uint32_t record, std::uint64_t id, std::uint32_t now);
  [[nodiscard]] std::optional<std::uint32_t> victim() { return policy_->victim(); }
  /// A victim that was forgotten comes back as the oldest of all.
  void put_back(std::uint32_t record, std::uint32_t last_use, std::uint32_t uses);
  [[nodiscard]] std::uint32_t size() const noexcept { return policy_->size(); }

 private:
  reclaim_pool() = default;
  /// Whether the record was here.
  [[nodiscard]] bool leave(std::uint32_t record) noexcept;

  eviction::block_links links_;
  std::unique_ptr<eviction::policy> policy_;
  std::vector<bool> members_;  ///< by record
};

}  // namespace cenote::manager
