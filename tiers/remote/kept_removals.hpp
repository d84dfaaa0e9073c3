// Removals that a server has confirmed, kept for the case that it forgets them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "core/block_key.hpp"
#include "core/instance_identity.hpp"

namespace cenote::remote {

/// A server that comes back with less than it had may get a removed block again from a node that does not know of the
/// removal: its owner removes it once more when the server is another process. At most most_keys keys: beyond them the
/// oldest of the instance that has most goes, so that one instance costs itself alone. In memory alone; not
/// thread-safe.
class kept_removals {
 public:
  static constexpr std::size_t most_keys = 65536;
  using keys_of_instance = std::map<block_key, std::uint64_t>;  ///< with the number of each removal

  void add(const instance_identity& identity, std::span<const block_key> keys) {
    for (const block_key& each : keys) {
      keys_[identity][each] = ++last_;
      orders_[identity].push_back({each, last_});
      if (++size_ > most_keys) drop_oldest();
    }
  }
  /// It is stored anew.
  void erase(const instance_identity& identity, const block_key& key) {
    const auto found = keys_.find(identity);
    if (found == keys_.end()) return;
    found->second.erase(key);
    if (found->second.empty()) keys_.erase(found);
  }
  [[nodiscard]] bool empty() const noexcept { return keys_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const std::map<instance_identity, keys_of_instance>& keys() const noexcept { return keys_; }

 private:
  struct entry {
    block_key key{};
    std::uint64_t number = 0;
  };

  void drop_oldest() {
    const auto largest =
        std::ranges::max_element(orders_, {}, [](const auto& instance) { return instance.second.size(); });
    const auto& [identity, order] = *largest;
    const entry oldest = order.front();
    const auto found = keys_.find(identity);
    if (found != keys_.end()) {
      const auto key = found->second.find(oldest.key);
      if (key != found->second.end() && key->second == oldest.number) erase(identity, oldest.key);
    }
    largest->second.pop_front();
    if (largest->second.empty()) orders_.erase(largest);
    --size_;
  }

  std::map<instance_identity, keys_of_instance> keys_;
  /// The oldest first; also of what was removed once more or stored anew.
  std::map<instance_identity, std::deque<entry>> orders_;
  std::size_t size_ = 0;  ///< of all orders
  std::uint64_t last_ = 0;
};

}  // namespace cenote::remote
