// Storages, groups and instances as plain values without messages, for all that is asked often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/manager/storage_type.hpp"

namespace cenote::manager {

inline constexpr std::size_t most_specs = 64;        ///< of an instance; a set of specs is a mask of 64 bits
inline constexpr std::size_t most_spec_groups = 64;  ///< of an instance
inline constexpr std::size_t most_storages = 255;    ///< numbers 0 to 254
inline constexpr std::size_t longest_name = 255;     ///< bytes
inline constexpr std::uint64_t most_block_bytes = (1ULL << 48U) - 1;  ///< of all specs of a block together
inline constexpr std::uint32_t most_blocks_per_file = 32768;          ///< so that no offset exceeds 2^63

/// The way in which keys are looked up; the numbers are those of the wire.
enum class query_kind : std::uint8_t {
  unspecified = 0,
  batch = 1,
  prefix = 2,
  window = 3,             ///< the last run of a number of keys
  prefix_with_mamba = 4,  ///< a prefix whose last key has all specs
};

/// A part of each block.
struct spec_terms {
  std::string name = {};
  std::uint64_t bytes = 0;  ///< of a block, > 0
};

/// A named set of specs.
struct spec_group_terms {
  std::string name = {};
  std::uint64_t specs = 0;  ///< a mask: bit i is the i-th spec of the instance
};

struct instance_terms {
  std::string id = {};
  std::uint64_t number = 0;  ///< from 1; never used again
  std::string group = {};
  std::uint32_t block_tokens = 1;
  std::vector<spec_terms> specs = {};         ///< as registered, at least one
  std::vector<spec_group_terms> groups = {};  ///< sorted by name
  std::uint64_t all_specs = 0;
  std::uint64_t common_specs = 0;  ///< that all groups have; without groups all
  query_kind default_kind = query_kind::prefix;

  /// Null: there is no such group.
  [[nodiscard]] const spec_group_terms* find_group(std::string_view name) const noexcept;
  /// The number of a spec; nothing: there is none of that name.
  [[nodiscard]] std::optional<std::size_t> find_spec(std::string_view name) const noexcept;
};

struct storage_terms {
  std::string name = {};
  std::uint8_t number = 0;  ///< 0 to 254, kept as long as the storage is there
  storage_type type = storage_type::nfs;
  std::string root = {};              ///< of files: absolute, normal; "": the file system's root
  std::uint32_t blocks_per_file = 1;  ///< 1 to most_blocks_per_file
  std::uint64_t capacity = 0;         ///< bytes; 0: no bound
  std::uint32_t read_weight = 1;      ///< 0: never read
  bool is_enabled = true;
  std::string server_url = {};
  std::string server_auth_file = {};  ///< "": no password
  std::string plugin_spec = {};       ///< for a plug-in: its part of the message, as JSON
};

/// Whether two storages have the blocks of an extent in the same places.
[[nodiscard]] bool same_addresses(const storage_terms& first, const storage_terms& second) noexcept;
/// Whether they are reached in the same way, too.
[[nodiscard]] bool same_access(const storage_terms& first, const storage_terms& second) noexcept;

/// A quota of one type of storage.
struct type_quota {
  storage_type type = storage_type::unspecified;
  std::uint64_t capacity = 0;  ///< bytes; 0: full as soon as anything is used
};

/// The rank of one type of storage.
enum class preference_rule : std::uint8_t {
  none,    ///< the order of the candidates
  always,  ///< that type or none
  first,   ///< that type, then the others
};

/// The choice of the instance that gives up blocks; the numbers are those of the wire.
enum class budget_policy : std::uint8_t {
  usage_proportional = 0,  ///< the one furthest over its share
  fixed_per_instance = 1,  ///< in turn
  group_lru = 2,           ///< the one with the oldest victim
};

struct group_terms {
  std::string name = {};
  std::vector<std::string> candidates = {};  ///< names of storages, the first choice first
  std::uint64_t capacity = 0;                ///< bytes; 0: full as soon as anything is used
  std::vector<type_quota> type_quotas = {};  ///< of types with one
  std::uint64_t max_keys = 0;                ///< of an instance; 0: no bound
  std::uint64_t max_instances = 0;           ///< 0: no bound
  preference_rule preference = preference_rule::none;
  storage_type preferred_type = storage_type::unspecified;
  double used_percentage = 0;         ///< level of reclaim, 1 is all of a quota; 0: none
  std::uint64_t used_size = 0;        ///< level of reclaim, bytes; 0: none
  std::string policy = "lru";         ///< of tiers/eviction, or "ttl"
  std::uint64_t ttl_seconds = 0;      ///< of "ttl"
  bool is_ttl_sliding = false;        ///< a read begins the time anew
  std::uint64_t step_size = 0;        ///< bytes that go below a level; 0: step_percentage counts
  std::uint32_t step_percentage = 5;  ///< of the quota, 1 to 100
  std::uint32_t delay_before_delete_ms = 0;
  std::uint32_t trigger_period_seconds = 0;  ///< 0: at once
  budget_policy budget = budget_policy::group_lru;
  bool is_paused = false;
  std::int64_t version = 0;

  /// The quota of a type; null: none is set.
  [[nodiscard]] const type_quota* find_quota(storage_type type) const noexcept;
};

}  // namespace cenote::manager
