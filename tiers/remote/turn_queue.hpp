// Tokens that wait for one other node, in turns of their instances: a long line keeps no other one waiting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace cenote::remote {

/// First in, first out within an instance (`Key`); the instances take turns of `turn_bytes`, so that a frame still
/// names many blocks of one. (Deficit round robin: Shreedhar and Varghese, IEEE/ACM ToN 1996.) Not thread-safe.
template <class Key>
class turn_queue {
 public:
  static constexpr std::uint64_t turn_bytes = std::uint64_t{1} << 20;

  [[nodiscard]] bool empty() const noexcept { return lines_.empty(); }
  /// Only while it is not empty.
  [[nodiscard]] std::uint64_t front() const noexcept { return lines_.front().second.front(); }
  void push(const Key& key, std::uint64_t token) {
    auto line = std::ranges::find(lines_, key, &std::pair<Key, std::deque<std::uint64_t>>::first);
    if (line == lines_.end()) line = lines_.emplace(lines_.end(), key, std::deque<std::uint64_t>());
    line->second.push_back(token);
  }
  /// `bytes`: its price, paid from its instance's turn.
  void pop(std::uint64_t bytes) {
    auto& line = lines_.front();
    line.second.pop_front();
    paid_ += bytes;
    if (!line.second.empty() && paid_ < turn_bytes) return;
    auto over = std::move(line);
    lines_.pop_front();
    paid_ = 0;
    if (!over.second.empty()) lines_.push_back(std::move(over));
  }

 private:
  std::deque<std::pair<Key, std::deque<std::uint64_t>>> lines_;  ///< in the order of their turns; none is empty
  std::uint64_t paid_ = 0;                                       ///< of the first one's turn
};

}  // namespace cenote::remote
