// A map of bounded size that forgets the entry whose last use is the oldest.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>

namespace cenote::manager {

/// Not thread-safe.
template <class Key, class Value, class Hash = std::hash<Key>>
class recent_map {
 public:
  explicit recent_map(std::size_t limit) : limit_(limit) {}
  recent_map(const recent_map&) = delete;
  recent_map& operator=(const recent_map&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  /// Null: there is none. A use.
  [[nodiscard]] Value* find(const Key& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, place->second);
    return &place->second->second;
  }
  /// Takes the place of the value that is there. Valid until the next call.
  Value& put(const Key& key, Value value) {
    if (Value* const entry = find(key); entry != nullptr) return *entry = std::move(value);
    entries_.emplace_front(key, std::move(value));
    places_.emplace(key, entries_.begin());
    if (places_.size() > limit_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }
  void erase(const Key& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return;
    entries_.erase(place->second);
    places_.erase(place);
  }

 private:
  using entry_list = std::list<std::pair<Key, Value>>;

  std::size_t limit_;
  entry_list entries_;  ///< the latest use first
  std::unordered_map<Key, typename entry_list::iterator, Hash> places_;
};

}  // namespace cenote::manager
