// What the parts of a store share, and how to find one thing from another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "memory/crash_guard.hpp"
#include "tiers/block_changes/block_changes.hpp"
#include "tiers/blocks/published.hpp"
#include "tiers/blocks/structures.hpp"
#include "tiers/blocks/watched_requests.hpp"

namespace cenote::blocks {

enum class allocation : std::uint8_t { ok, wait, no_space };
enum class departure : std::uint8_t { evicted, removed };  ///< what is evicted may leave a ghost
/// How far eviction goes: in passing, or when nothing else is left for a request.
enum class effort : std::uint8_t { usual, last_resort };

[[nodiscard]] std::uint64_t share_of(std::uint64_t bytes, double share) noexcept;

/// All that is here, and what the parts of the store count together. Only its owner's thread has it.
struct state {
  state(store_options with, memory::record_table table)
      : options(std::move(with)), records(std::move(table)), guard(records.guard()) {
    shares.most = {share_of(options.capacity, options.copies_share), share_of(options.capacity, options.hosted_share)};
  }

  store_options options;
  memory::record_table records;
  memory::crash_guard guard;
  memory::range_allocator record_ranges{memory::max_records};
  std::map<instance_number, std::unique_ptr<instance>> instances{};
  std::unordered_multimap<std::string, instance*> by_id{};  ///< users and instance groups may use one id
  std::unordered_map<session_number, std::unique_ptr<session>> sessions{};
  std::map<std::uint32_t, slab*> by_record{};  ///< first record -> slab
  std::uint64_t assigned = 0;                  ///< bytes of slabs that exist or are asked for
  std::uint64_t used = 0;                      ///< bytes of blocks that are not free
  std::uint64_t blank = 0;  ///< … of those, of what is not cached: granted, reserved, loading, waiting for a pin
  bool took_over = false;   ///< from a worker before, which may have left records of slabs that are gone
  std::uint64_t spent = 0;  ///< steps of the run under way
  std::uint64_t budget = no_budget;
  store_counters counters{};
  kind_shares shares{};
  edge_set away{};                              ///< tiers below that neither take nor give anything now
  std::optional<boot_time> lingers_until{};     ///< of what a dead worker's devices may still write
  published requests{};                         ///< … of engines, whose blocks are handed over
  watched_requests watched{};                   ///< … of pools that are watched, on their way to estimates
  std::optional<boot_time> recorded_until{};    ///< requests of all instances are handed on until then
  block_changes changes{options.most_changes};  ///< of what is here, each block at the number of its record

  [[nodiscard]] slab* slab_of_record(std::uint32_t record) const noexcept;
  [[nodiscard]] memory::block_record& record_of(const slab& slab, memory::block_ref ref) const noexcept {
    return records[slab.what.first_record + ref.block()];
  }
  /// The record of the present block that the index has under the key, and where it is; null: there is none.
  [[nodiscard]] const memory::block_record* present_under(const instance& instance, const block_key& key,
                                                          memory::block_ref& ref) const noexcept;
  /// Nothing when the key is not here; another one may have its place.
  [[nodiscard]] std::optional<memory::block_ref> find_present(const instance& instance,
                                                              const block_key& key) const noexcept;
  /// Nothing when the key is not here; `collision`: another key has its place.
  [[nodiscard]] std::optional<memory::block_ref> find_present(const instance& instance, const block_key& key,
                                                              const full_key& full, bool* collision) const noexcept;
  /// False also when the slab went to another pool since.
  [[nodiscard]] bool is_same(const pool& group, const chain_block& block) const noexcept;
  /// What the policy knows the block by: as good a hash as any, and at hand in every tier.
  [[nodiscard]] std::uint64_t key_hash(const pool& group, std::uint32_t record) const noexcept;
  /// Some time before key_hash().
  void prefetch_key(std::uint32_t record) const noexcept {
    const memory::block_record& soon = records[record];
    __builtin_prefetch(&soon.key_size);
    __builtin_prefetch(&soon.key[sizeof soon.key / 2 - 1]);
  }
  /// The block is not found under its key any more.
  void note_removed(const slab& home, memory::block_ref ref) {
    if (changes.has_readers()) [[unlikely]] {
      changes.removed(home.what.first_record + ref.block(), home.owner->number, home.what.group,
                      record_of(home, ref).get_key());
    }
  }
  [[nodiscard]] std::uint64_t usable_bytes() const noexcept;
  [[nodiscard]] bool is_recorded() const noexcept { return recorded_until && options.watch != request_watch::none; }
  /// What the water marks and the capacity are compared with.
  [[nodiscard]] std::uint64_t counted_bytes() const noexcept {
    return options.grants_in_capacity ? used : used - blank;
  }
};

/// Of what a client named; null when it makes no sense.
[[nodiscard]] slab* slab_of(const instance& instance, memory::block_ref ref) noexcept;
[[nodiscard]] inline pool& pool_of(const slab& slab) noexcept {
  return *slab.owner->pools[slab.what.group];
}
[[nodiscard]] inline std::uint32_t version_index_of(const slab& slab, memory::block_ref ref) noexcept {
  return slab.what.first_version + ref.block();
}
/// The record of the block that goes next.
[[nodiscard]] std::optional<std::uint32_t> oldest_of(const pool& group) noexcept;
/// … of those that are not among the ones marked as written back.
[[nodiscard]] std::optional<std::uint32_t> oldest_unwritten_of(const pool& group) noexcept;

inline constexpr std::uint32_t eviction_batch = 256;  ///< one fence and one scan of the pins for that many
/// At most a batch.
[[nodiscard]] std::uint32_t blocks_for(std::uint64_t bytes, const pool& pool) noexcept;

/// The batch's request is refused, if it was not before.
void refuse(batch& work, const memory::submission& entry, error_code code) noexcept;
/// The request's last entry took effect: its answer.
void finish_request(batch& work, const memory::submission& entry);

}  // namespace cenote::blocks
