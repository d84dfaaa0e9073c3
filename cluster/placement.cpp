#include "cluster/placement.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/checksum.hpp"

namespace cenote::cluster {

placement::placement(std::vector<place> all) {
  std::erase_if(all, [](const place& each) { return each.weight == 0; });
  std::ranges::sort(all, {}, &place::name);  // of equal scores the first name wins, on every node
  for (place& each : all) {
    seeds_.push_back(checksum_of(each.name.data(), each.name.size()));
    weights_.push_back(static_cast<double>(each.weight));
    names_.push_back(std::move(each.name));
    is_even_ = is_even_ && weights_.back() == weights_.front();
  }
}

double placement::score(std::size_t index, instance_identity identity, const block_key& key) const noexcept {
  const std::uint64_t hash = checksum_of(&key, sizeof key, seeds_[index] ^ identity.spread());
  const double uniform = (static_cast<double>(hash >> 11U) + 0.5) * 0x1p-53;  // above 0, below 1
  return is_even_ ? uniform : -weights_[index] / std::log(uniform);  // equal weights keep the order of the hashes
}

std::size_t placement::home(instance_identity identity, const block_key& key) const noexcept {
  std::size_t best = 0;
  homes(identity, key, std::span(&best, 1));
  return best;
}

std::size_t placement::homes(instance_identity identity, const block_key& key,
                             std::span<std::size_t> into) const noexcept {
  constexpr std::size_t most = 4;
  double scores[most] = {};
  const std::size_t wanted = std::min({into.size(), most, size()});
  std::size_t found = 0;
  for (std::size_t index = 0; index < size(); ++index) {
    const double mine = score(index, identity, key);
    std::size_t at = found;
    while (at > 0 && mine > scores[at - 1]) --at;
    if (at >= wanted) continue;
    found = std::min(found + 1, wanted);
    for (std::size_t i = found - 1; i > at; --i) {
      scores[i] = scores[i - 1];
      into[i] = into[i - 1];
    }
    scores[at] = mine;
    into[at] = index;
  }
  return found;
}

}  // namespace cenote::cluster
