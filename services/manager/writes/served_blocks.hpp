// The records that can be evicted, their order, and their children that are served.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// The order of a group's blocks, by the name of a policy. Under "ttl" the oldest are those whose time is over first.
[[nodiscard]] std::string_view pool_policy(const group_terms& group) noexcept;

/// Reads used these records, head to tail; some may be gone. A time that a use does not begin anew goes on.
void note_uses(instance_state& instance, std::span<const std::uint32_t> records, std::uint32_t now);

/// The way of an instance's records into the order of one storage. For a row of them, while the instance gets no
/// other pool.
class pool_entrance {
 public:
  pool_entrance(instance_state& instance, std::uint8_t storage);
  /// A record has its first served location in the storage.
  void add(std::uint32_t record, std::uint32_t now);

 private:
  instance_state& instance_;
  const instance_index& index_;
  reclaim_pool& pool_;
  bool is_alone_;  ///< the instance has no other pool
};

/// It has none there any more; a record that is not in the pool does not matter.
void leave_pool(instance_state& instance, std::uint8_t storage, std::uint32_t record);
/// As leave_pool(), to make room.
void evict_from_pool(instance_state& instance, std::uint8_t storage, std::uint32_t record, std::uint32_t now);
/// The record's number may be another key's from now on.
void forget_record(instance_state& instance, std::uint32_t record);
/// Whether a key behind this one is served.
[[nodiscard]] bool has_served_child(const instance_state& instance, std::uint32_t record) noexcept;
/// Whether a record is in the order of any storage.
[[nodiscard]] bool has_pool(const instance_state& instance, std::uint32_t record);
/// Whether a record has a served location in the storage.
[[nodiscard]] bool is_served(const instance_state& instance, std::uint32_t record, std::uint8_t storage);

}  // namespace cenote::manager
