#include "tiers/blocks/session_lookups.hpp"

#include <algorithm>
#include <iterator>

#include "tiers/blocks/structures.hpp"

namespace cenote::blocks {

using memory::lookup_counts;

namespace {

constexpr std::uint64_t lookup_counts::*all_counts[] = {&lookup_counts::match_keys, &lookup_counts::match_resident,
                                                        &lookup_counts::match_lower, &lookup_counts::read_keys,
                                                        &lookup_counts::read_resident};
static_assert(sizeof(lookup_counts) == std::size(all_counts) * sizeof(std::uint64_t));

}  // namespace

void add_lookups(lookup_counts& sum, const lookup_counts& part) noexcept {
  for (const auto count : all_counts) sum.*count = std::min(most_lookups, sum.*count + part.*count);
}

lookup_counts lookups_of(const instance& instance) noexcept {
  lookup_counts sum = instance.past_lookups;
  for (session* const each : instance.sessions) {
    each->lookups.look(each->memory.header().lookups.load());
    add_lookups(sum, each->lookups.counts());
  }
  return sum;
}

lookup_counts uncredited(const lookup_counts& lookups, const instance& instance) noexcept {
  lookup_counts rest = lookups;
  for (const auto count : all_counts) rest.*count -= std::min(rest.*count, instance.credited_lookups.*count);
  return rest;
}

void add_hits(group_hits& sum, const lookup_counts& part, std::uint32_t tokens_per_block) noexcept {
  const auto add = [&](std::uint64_t group_hits::*blocks, std::uint64_t group_hits::*tokens, std::uint64_t count) {
    sum.*blocks = std::min(most_lookups, sum.*blocks + count);
    sum.*tokens = std::min(most_lookups, sum.*tokens + tokens_of(count, tokens_per_block));
  };
  add(&group_hits::lookups, &group_hits::lookup_tokens, part.match_keys);
  add(&group_hits::hits, &group_hits::hit_tokens, part.match_resident);
  add(&group_hits::lower_hits, &group_hits::lower_hit_tokens, part.match_lower);
}

std::uint64_t tokens_of(std::uint64_t keys, std::uint32_t tokens_per_block) noexcept {
  std::uint64_t tokens = 0;
  const bool is_beyond = __builtin_mul_overflow(keys, tokens_per_block, &tokens);
  return is_beyond ? most_lookups : std::min(most_lookups, tokens);
}

void session_lookups::look(const lookup_counts& words) noexcept {
  for (const auto count : all_counts) {
    const std::uint64_t growth = words.*count - std::min(words.*count, base_.*count);
    grown_.*count = std::max(grown_.*count, std::min(most_lookups, growth));
  }
}

lookup_counts session_lookups::counts() const noexcept {
  lookup_counts all = grown_;
  all.match_resident = std::min(all.match_resident, all.match_keys);
  all.match_lower = std::min(all.match_lower, all.match_keys);
  all.read_resident = std::min(all.read_resident, all.read_keys);
  return all;
}

}  // namespace cenote::blocks
