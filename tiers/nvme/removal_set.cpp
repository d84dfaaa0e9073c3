#include "tiers/nvme/removal_set.hpp"

#include <algorithm>

#include "core/byte_io.hpp"

namespace cenote::nvme {

namespace {

// A record: instance, key.hi, key.lo. No block has the key 0, so that stands for the whole instance. This key, which
// no block will ever have by chance, says that the instance is a name.
constexpr block_key name_mark{0, 1};
constexpr std::uint32_t everything_mark = 1U << 31;

}  // namespace

void removal_set::add(const instance_identity& instance, const block_key& key) {
  if (everything_ || whole_.contains(instance)) return;
  if (!by_instance_[instance].insert(key).second) return;
  ++keys_;
  bound();
}

void removal_set::add_instance(const instance_identity& instance) {
  if (everything_ || !whole_.insert(instance).second) return;
  if (const auto found = by_instance_.find(instance); found != by_instance_.end()) {
    keys_ -= found->second.size();
    by_instance_.erase(found);
  }
  bound();
}

void removal_set::add_name(const instance_identity& name) {
  if (everything_ || !names_.insert(name).second) return;
  bound();
}

void removal_set::resolve(std::span<const std::pair<instance_identity, instance_spec>> instances) {
  for (const auto& [identity, spec] : instances) {
    if (names_.contains(name_identity(spec.id))) add_instance(identity);
  }
}

void removal_set::add_everything() {
  *this = {};
  everything_ = true;
}

void removal_set::add(const removal_set& more) {
  if (more.everything_) return add_everything();
  for (const instance_identity& name : more.names_) add_name(name);
  for (const instance_identity& instance : more.whole_) add_instance(instance);
  for (const auto& [instance, keys] : more.by_instance_) {
    for (const block_key& key : keys) add(instance, key);
  }
}

void removal_set::add(const catalog_change& change) {
  switch (change.what) {
    case catalog_change::kind::put:
    case catalog_change::kind::erase_name: return;
    case catalog_change::kind::erase: return add(change.block.instance, change.block.key);
    case catalog_change::kind::erase_blocks: return add_instance(change.block.instance);
    case catalog_change::kind::erase_named: return add_name(change.block.instance);
    case catalog_change::kind::erase_everything: return add_everything();
  }
}

void removal_set::bound() {
  while (size() > max_records) {
    const auto most = std::ranges::max_element(by_instance_, {}, [](const auto& each) { return each.second.size(); });
    // An instance of one key would need as much as before.
    if (most == by_instance_.end() || most->second.size() < 2) return add_everything();
    const instance_identity instance = most->first;
    keys_ -= most->second.size();
    by_instance_.erase(most);
    whole_.insert(instance);
  }
}

bool removal_set::contains(const instance_identity& instance, const block_key& key) const noexcept {
  if (everything_ || whole_.contains(instance)) return true;
  const auto found = by_instance_.find(instance);
  return found != by_instance_.end() && found->second.contains(key);
}

std::vector<catalog_change> removal_set::changes() const {
  std::vector<catalog_change> made;
  made.reserve(size());
  if (everything_) made.push_back({.what = catalog_change::kind::erase_everything, .block = {}});
  for (const instance_identity& name : names_) {
    made.push_back({.what = catalog_change::kind::erase_named, .block = {}});
    made.back().block.instance = name;
  }
  for (const instance_identity& instance : whole_) {
    made.push_back({.what = catalog_change::kind::erase_blocks, .block = {}});
    made.back().block.instance = instance;
  }
  for (const auto& [instance, keys] : by_instance_) {
    for (const block_key& key : keys) {
      made.push_back({.what = catalog_change::kind::erase, .block = {}});
      made.back().block.instance = instance;
      made.back().block.key = key;
    }
  }
  return made;
}

std::vector<std::byte> removal_set::encode() const {
  byte_writer out;
  const auto records = static_cast<std::uint32_t>(keys_ + whole_.size() + names_.size());
  out.put(records | (everything_ ? everything_mark : 0U));
  const auto put = [&](const instance_identity& instance, const block_key& key) {
    out.put_raw(instance.bytes);
    out.put(key.hi);
    out.put(key.lo);
  };
  for (const instance_identity& name : names_) put(name, name_mark);
  for (const instance_identity& instance : whole_) put(instance, {});
  for (const auto& [instance, keys] : by_instance_) {
    for (const block_key& key : keys) put(instance, key);
  }
  return std::move(out).take();
}

std::optional<removal_set> removal_set::decode(std::span<const std::byte> bytes) {
  byte_reader in(bytes);
  const auto head = in.get<std::uint32_t>();
  if (!in.ok()) return std::nullopt;
  const std::uint32_t records = head & ~everything_mark;
  if (records > max_records || in.remaining() != std::size_t{records} * record_bytes) return std::nullopt;
  removal_set found;
  if ((head & everything_mark) != 0) found.add_everything();
  for (std::uint32_t i = 0; i < records; ++i) {
    const instance_identity instance{in.get_array<sizeof(instance_identity)>()};
    block_key key;
    key.hi = in.get<std::uint64_t>();
    key.lo = in.get<std::uint64_t>();
    if (key == block_key{}) {
      found.add_instance(instance);
    } else if (key == name_mark) {
      found.add_name(instance);
    } else {
      found.add(instance, key);
    }
  }
  return found;
}

}  // namespace cenote::nvme
