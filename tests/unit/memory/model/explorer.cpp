#include "tests/unit/memory/model/explorer.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace cenote::model {
namespace {

static_assert(std::is_trivially_copyable_v<state> && std::has_unique_object_representations_v<state>,
              "a state is hashed as bytes");

std::uint64_t fingerprint(const state& s) noexcept {
  std::uint64_t words[(sizeof(state) + 7) / 8]{};
  std::memcpy(words, &s, sizeof(state));
  std::uint64_t hash = 0x9e3779b97f4a7c15U;
  for (const std::uint64_t part : words) {
    hash = (hash ^ part) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32U;
  }
  hash *= 0xc4ceb9fe1a85ec53U;
  hash ^= hash >> 29U;
  return hash == 0 ? 1 : hash;
}

/// A set of fingerprints with open addressing. 0 marks a free place.
class fingerprint_set {
 public:
  fingerprint_set() : places_(std::size_t{1} << 16U, 0) {}

  bool insert(std::uint64_t print) {
    if (2 * (size_ + 1) > places_.size()) grow();
    return place(places_, print) && ++size_ > 0;
  }
  std::size_t size() const noexcept { return size_; }

 private:
  static bool place(std::vector<std::uint64_t>& places, std::uint64_t print) noexcept {
    const std::size_t mask = places.size() - 1;
    for (std::size_t at = static_cast<std::size_t>(print) & mask;; at = (at + 1) & mask) {
      if (places[at] == print) return false;
      if (places[at] == 0) {
        places[at] = print;
        return true;
      }
    }
  }
  void grow() {
    std::vector<std::uint64_t> larger(places_.size() * 4, 0);
    for (const std::uint64_t print : places_)
      if (print != 0) place(larger, print);
    places_.swap(larger);
  }

  std::vector<std::uint64_t> places_;
  std::size_t size_ = 0;
};

/// How a state was reached first.
struct origin {
  std::uint32_t parent = 0;
  move by{};
};

std::vector<std::string> replay(const scenario& with, const std::vector<origin>& origins, std::size_t last) {
  std::vector<move> path;
  for (std::size_t at = last; at != 0; at = origins[at].parent) path.push_back(origins[at].by);
  std::reverse(path.begin(), path.end());
  std::vector<std::string> lines;
  state s = initial_state(with);
  for (const move m : path) {
    const state before = s;
    const outcome effect = apply(with, s, m);
    lines.push_back(describe(before, m, effect));
  }
  return lines;
}

struct reached {
  std::uint32_t index;
  state at;
};

}  // namespace

exploration explore(const scenario& with, std::size_t state_limit) {
  exploration result;
  const std::vector<move> moves = all_moves();
  fingerprint_set seen;
  std::vector<origin> origins(1);
  std::vector<reached> layer{{0, initial_state(with)}};
  std::vector<reached> next;
  seen.insert(fingerprint(layer.front().at));

  const auto stop = [&](violation broken, std::size_t index) {
    result.broken = broken;
    result.trace = replay(with, origins, index);
    result.states = seen.size();
    return result;
  };

  for (; !layer.empty(); layer.swap(next), next.clear()) {
    for (const reached& from : layer) {
      bool at_rest = true;
      for (const move m : moves) {
        if (!may_happen(with, from.at, m)) continue;
        state to = from.at;
        const outcome effect = apply(with, to, m);
        if (!effect.enabled) {
          if (effect.broken != violation::none) return stop(effect.broken, from.index);
          continue;
        }
        if (m.what != move::kind::die && m.what != move::kind::die_losing_stores) at_rest = false;
        result.events |= effect.events;
        if (effect.broken == violation::none && !seen.insert(fingerprint(to))) continue;
        const auto index = static_cast<std::uint32_t>(origins.size());
        origins.push_back({from.index, m});
        if (effect.broken != violation::none) return stop(effect.broken, index);
        next.push_back({index, to});
      }
      if (at_rest && !has_open_loads(from.at)) {
        ++result.resting_states;
        if (const violation broken = check_at_rest(with, from.at); broken != violation::none)
          return stop(broken, from.index);
      }
    }
    if (seen.size() > state_limit) {
      result.states = seen.size();
      return result;
    }
  }
  result.states = seen.size();
  result.complete = true;
  return result;
}

}  // namespace cenote::model
