// Small random traces for comparisons with naive models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::simulation::testing_models {

/// `prefixes`: requests go on, or leave, the paths of earlier ones. `any`: a block may come behind several others.
enum class chain_kind : std::uint8_t { prefixes, any };
/// `apart`: some requests only ask, others only store.
enum class access_kind : std::uint8_t { joined, apart };

/// Up to 40 requests of 3 instances and 5 sessions, up to two minutes long.
inline trace random_requests(std::uint64_t seed, chain_kind chains, access_kind accesses = access_kind::joined) {
  std::mt19937_64 random(seed);
  trace made(std::uint64_t{1} + random() % 20);
  std::vector<std::vector<std::uint64_t>> paths{{}};
  std::uint64_t next = 0;
  std::uint64_t time_ms = random() % 3000;
  for (std::size_t requests = 1 + random() % 40; requests > 0; --requests) {
    std::vector<std::uint64_t> path = paths[random() % paths.size()];
    path.resize(random() % (path.size() + 1));
    for (std::uint64_t n = random() % 6; n > 0; --n) {
      const std::uint64_t old = random() % 20;
      const bool again = chains == chain_kind::any && std::ranges::find(path, old) == path.end() && random() % 2 == 0;
      path.push_back(again ? old : 100 + next++);
    }
    if (random() % 3 > 0) time_ms += random() % (std::uint64_t{1} << random() % 13);
    const auto access = accesses == access_kind::joined ? 0 : random() % 3;
    made.add({.time_ms = time_ms,
              .tokens = path.size() * made.block_tokens() + random() % made.block_tokens(),
              .access = static_cast<chain_access>(access),
              .instance = static_cast<std::uint32_t>(random() % 3),
              .session = static_cast<std::uint32_t>(random() % 5)},
             path);
    paths.push_back(std::move(path));
  }
  return made;
}

}  // namespace cenote::simulation::testing_models
