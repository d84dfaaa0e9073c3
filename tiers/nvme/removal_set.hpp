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
#include "tiers/nvme/catalog.hpp"

namespace cenote::nvme {

/// Keys of instances, whole instances, names of instances, or everything. When there are too many keys, the instance
/// with the most of them goes as a whole, and when there are too many instances, everything: more than was asked for is
/// always allowed to go, for what is lost is computed again. Not thread-safe.
class removal_set {
 public:
  static constexpr std::size_t max_records = 20'000;
  /// Bytes of encode(), at most.
  static constexpr std::size_t max_bytes = 4 + (max_records * 24);

  void add(std::uint64_t instance, const block_key& key);
  void add_instance(std::uint64_t instance);
  /// All instances that are called so, whichever they are: see resolve().
  void add_name(const std::string& id) { add_name(name_identity(id)); }
  void add_everything();
  void add(const removal_set& more);
  /// The blocks that a change of a catalog makes it forget.
  void add(const catalog_change& change);

  /// Adds those of `instances` (identities and what they are called) whose names are here.
  void resolve(std::span<const std::pair<std::uint64_t, std::string>> instances);
  [[nodiscard]] bool has_names() const noexcept { return !names_.empty(); }

  /// Looks at no names.
  [[nodiscard]] bool contains(std::uint64_t instance, const block_key& key) const noexcept;
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
  void add_name(std::uint64_t name);
  void bound();

  std::map<std::uint64_t, std::unordered_set<block_key, block_key_hash>> by_instance_;
  std::set<std::uint64_t> whole_;
  std::set<std::uint64_t> names_;
  std::size_t keys_ = 0;
  bool everything_ = false;
};

}  // namespace cenote::nvme
