#include "tiers/eviction/registry.hpp"

#include <algorithm>
#include <array>

#include "tiers/eviction/arc.hpp"
#include "tiers/eviction/automatic.hpp"
#include "tiers/eviction/clock.hpp"
#include "tiers/eviction/fifo.hpp"
#include "tiers/eviction/lfu.hpp"
#include "tiers/eviction/lru.hpp"
#include "tiers/eviction/mq.hpp"
#include "tiers/eviction/s3fifo.hpp"
#include "tiers/eviction/sieve.hpp"
#include "tiers/eviction/tblru.hpp"
#include "tiers/eviction/two_queue.hpp"

namespace cenote::eviction {

namespace {

template <class P>
concept has_history = requires(P& successor, const P& predecessor) { successor.import_history(predecessor); };

template <class P, auto... Options>
constexpr policy_info row_of(policy_info row) {
  row.make = [](block_links& links) -> std::unique_ptr<policy> { return std::make_unique<P>(links, Options...); };
  row.import_history = [](policy& successor, const policy& predecessor) {
    if constexpr (has_history<P>) static_cast<P&>(successor).import_history(static_cast<const P&>(predecessor));
  };
  return row;
}

constexpr std::array registry{
    row_of<fifo>({.name = "fifo", .summary = "first in, first out"}),
    row_of<lru>(
        {.name = "lru", .summary = "least recently used; the NVMe tier's default", .candidate = candidacy::order}),
    row_of<lfu>({.name = "lfu",
                 .summary = "least frequently used, the oldest of equals first",
                 .source = "Shah, Mitra, Matani 2010 (the O(1) list of lists)",
                 .memory = "4 bytes"}),
    row_of<clock>({.name = "clock", .summary = "second chance, one bit", .source = "Corbató 1968", .memory = "1 byte"}),
    row_of<sieve>({.name = "sieve",
                   .summary = "a hand that never moves blocks",
                   .source = "Zhang et al., NSDI 2024",
                   .memory = "1 byte"}),
    row_of<s3fifo>({.name = "s3fifo",
                    .summary = "small and main FIFO, ghosts; small 0.1, ghosts 0.9, two uses to stay",
                    .source = "Yang et al., SOSP 2023, with the authors' later filling of the main queue",
                    .memory = "1 byte",
                    .candidate = candidacy::state}),
    row_of<arc>({.name = "arc",
                 .summary = "two LRU lists that share the capacity by what their ghosts say",
                 .source = "Megiddo, Modha, FAST 2003",
                 .memory = "1 byte",
                 .candidate = candidacy::state}),
    row_of<two_queue>({.name = "2q",
                       .summary = "FIFO for newcomers (0.25), LRU for who returns; ghosts 0.5",
                       .source = "Johnson, Shasha, VLDB 1994",
                       .memory = "1 byte",
                       .candidate = candidacy::state}),
    row_of<mq>({.name = "mq",
                .summary =
                    "eight LRU queues by log2 of the uses, lifetime 10,000 accesses; ghosts 4 × the capacity; no "
                    "partial blocks",
                .source = "Zhou, Philbin, Li, USENIX ATC 2001, parameters of libCacheSim",
                .memory = "16 bytes",
                .candidate = candidacy::order}),
    row_of<tblru>({.name = "tblru",
                   .summary = "LRU with a bonus for sessions that went on before; no partial blocks",
                   .source = "below",
                   .memory = "8 bytes",
                   .use = policy_use::requests,
                   .candidate = candidacy::order}),
    row_of<mq, partial_blocks::admitted>({.name = "mq+partial",
                                          .summary = "`mq`, admitting partial blocks; simulation only",
                                          .memory = "16 bytes",
                                          .use = policy_use::replays}),
    row_of<tblru, partial_blocks::admitted>({.name = "tblru+partial",
                                             .summary = "`tblru`, admitting partial blocks; simulation only",
                                             .memory = "8 bytes",
                                             .use = policy_use::replays}),
    row_of<automatic>({.name = "auto",
                       .summary = "the one of its candidates that does best on the tier's own requests",
                       .source = "below",
                       .memory = "6 bytes, and what the policy at work needs",
                       .use = policy_use::requests}),
};

constexpr auto names = [] {
  std::array<std::string_view, registry.size()> all;
  std::ranges::transform(registry, all.begin(), &policy_info::name);
  return all;
}();

constexpr auto is_candidate = [](const policy_info& each) { return each.candidate != candidacy::none; };

constexpr auto candidate_rows = [] {
  std::array<const policy_info*, std::ranges::count_if(registry, is_candidate)> all{};
  auto at = all.begin();
  for (const policy_info& each : registry) {
    if (is_candidate(each)) *at++ = &each;
  }
  return all;
}();
static_assert(candidate_rows.size() <= policy_selector::most);

/// "a|b" of the rows that `may`.
std::string joined(bool (*may)(const policy_info& each)) {
  std::string all;
  for (const policy_info& each : registry) {
    if (may(each)) all.append(all.empty() ? "" : "|").append(each.name);
  }
  return all;
}

}  // namespace

std::span<const policy_info> policies() noexcept {
  return registry;
}

const policy_info* find_policy(std::string_view name) noexcept {
  const auto found = std::ranges::find(registry, name, &policy_info::name);
  return found == registry.end() ? nullptr : &*found;
}

std::span<const policy_info* const> candidates() noexcept {
  return candidate_rows;
}

std::string_view choices_of_requests() noexcept {
  static const std::string all = joined([](const policy_info& each) { return each.use != policy_use::replays; });
  return all;
}

std::string_view choices_of_blocks() noexcept {
  static const std::string all = joined([](const policy_info& each) { return each.use == policy_use::tiers; });
  return all;
}

std::span<const std::string_view> policy_names() noexcept {
  return names;
}

result<std::unique_ptr<policy>> make_policy(std::string_view name, block_links& links) {
  if (const policy_info* const known = find_policy(name)) return known->make(links);
  std::string list;
  for (const std::string_view each : names) list.append(list.empty() ? "" : ", ").append(each);
  return fail(error_code::invalid_config, "unknown eviction policy `" + std::string(name) + "`; known: " + list);
}

}  // namespace cenote::eviction
