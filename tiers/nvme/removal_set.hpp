// Which blocks a path must not serve any more, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/block_key.hpp"
#include "core/instance_identity.hpp"
#include "tiers/nvme/catalog.hpp"

namespace cenote::nvme {

/// Keys of instances, whole instances, names of instances, or everything. When there are too many keys, the instance
/// with the most of them goes as a whole, and when there are too many instances, everything: more than was asked for is
/// always allowed to go, for what is lost is computed again. Not thread-safe.
class removal_set {
 public:
  static constexpr std::size_t record_bytes = sizeof(instance_identity) + 16;
  static constexpr std::size_t max_records = 10'000;
  /// Bytes of encode(), at most.
  static constexpr std::size_t max_bytes = 4 + (max_records * record_bytes);

  void add(const instance_identity& instance, const block_key& key);
  void add_instance(const instance_identity& instance);
  /// All instances that are called so, whichever they are: see resolve().
  void add_name(const std::string& id) { add_name(name_identity(id)); }
  void add_everything();
  void add(const removal_set& more);
  /// The blocks that a change of a catalog makes it forget.
  void add(const catalog_change& change);

  /// Adds those of `instances` (identities and what they are called) whose names are here.
  void resolve(std::span<const std::pair<instance_identity, instance_spec>> instances);
  [[nodiscard]] bool has_names() const noexcept { return !names_.empty(); }

  /// Looks at no names.
  [[nodiscard]] bool contains(const instance_identity& instance, const block_key& key) const noexcept;
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// Keys, whole instances, names, and everything: one each.
  [[nodiscard]] std::size_t size() const noexcept {
    return keys_ + whole_.size() + names_.size() + (everything_ ? 1 : 0);
  }

  /// The same for a catalog.
  [[nodiscard]] std::vector<catalog_change> changes() const;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Nothing when the bytes make no sense.
  [[nodiscard]] static std::optional<removal_set> decode(std::span<const std::byte> bytes);

 private:
  void add_name(const instance_identity& name);
  void bound();

  std::map<instance_identity, std::unordered_set<block_key, block_key_hash>> by_instance_;
  std::set<instance_identity> whole_;
  std::set<instance_identity> names_;
  std::size_t keys_ = 0;
  bool everything_ = false;
};

}  // namespace cenote::nvme
