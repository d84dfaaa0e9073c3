#include "tiers/prefetch/continuations.hpp"

#include <algorithm>

namespace cenote::prefetch {

continuations::place_key continuations::place_of(std::uint32_t instance, std::uint32_t group,
                                                 const full_key& tip) noexcept {
  const block_key key = reduce_key(tip.view(), group);
  return {instance, key.hi, key.lo};
}

void continuations::learn(std::uint64_t session, std::uint32_t instance, std::uint32_t group, const key_list& keys,
                          std::size_t ahead) {
  if (keys->empty()) return;
  const auto before = last_.find(session);
  if (before != last_.end()) {
    const chain& old = before->second;
    const std::size_t length = old.keys->size();
    // Chained keys: where the last one is the same, all before it are.
    const bool goes_on = old.instance == instance && old.group == group && keys->size() > length &&
                         (*keys)[length - 1] == old.keys->back();
    if (goes_on) {
      const auto first = keys->begin() + static_cast<std::ptrdiff_t>(length);
      const auto count = static_cast<std::ptrdiff_t>(std::min(ahead, keys->size() - length));
      const place_key tip = place_of(instance, group, old.keys->back());
      const auto [at, is_new] =
          known_.insert_or_assign(tip, std::make_shared<const std::vector<full_key>>(first, first + count));
      if (is_new) order_.push_back(at->first);
    }
  }
  last_.insert_or_assign(session, chain{instance, group, keys});
  while (known_.size() > most) {
    known_.erase(order_.front());
    order_.pop_front();
  }
}

key_list continuations::after(std::uint32_t instance, std::uint32_t group, const full_key& tip) const {
  const auto found = known_.find(place_of(instance, group, tip));
  return found == known_.end() ? nullptr : found->second;
}

}  // namespace cenote::prefetch
