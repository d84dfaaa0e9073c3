#include "simulation/optimize/analysis.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "simulation/simulation.hpp"
#include "tests/unit/simulation/optimize/random_requests.hpp"

namespace cenote::simulation {

namespace {

using testing_models::access_kind;
using testing_models::chain_kind;
using testing_models::random_requests;
using pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

constexpr std::uint64_t seeds = 300;

std::uint64_t power_above(std::uint64_t value) {
  std::uint64_t power = 1;
  while (power <= value) power *= 2;
  return power;
}

pairs pairs_of(const std::vector<power_count>& rows) {
  pairs all;
  for (const power_count& each : rows) all.emplace_back(each.limit, each.count);
  return all;
}

template <class Map>
pairs pairs_of(const Map& counts) {
  return {counts.begin(), counts.end()};
}

bool is_question(const trace::entry& request) {
  return request.access != chain_access::write;
}

/// Leading hits with all that was stored up to now, whose last use is less than `ttl_ms` ago.
std::pair<std::uint64_t, std::uint64_t> naive_hits(const trace& trace, std::uint64_t ttl_ms) {
  std::map<std::uint32_t, std::uint64_t> cache;
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
  for (const trace::entry& request : trace.requests()) {
    std::uint64_t leading = 0;
    for (const std::uint32_t block : trace.blocks(request)) {
      const auto here = cache.find(block);
      if (here == cache.end() || request.time_ms - here->second >= ttl_ms) break;
      ++leading;
    }
    if (is_question(request)) {
      blocks += leading;
      tokens += leading * trace.block_tokens();
    }
    if (request.access == chain_access::read) continue;
    for (const std::uint32_t block : trace.blocks(request)) cache[block] = request.time_ms;
  }
  return {blocks, tokens};
}

std::uint64_t sum_of(const std::vector<std::uint32_t>& hits) {
  std::uint64_t sum = 0;
  for (const std::uint32_t each : hits) sum += each;
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(analyses)

BOOST_AUTO_TEST_CASE(a_value_is_in_the_smallest_power_of_two_above_it) {
  power_histogram values;
  for (const std::uint64_t value : {0U, 1U, 2U, 3U, 3U, 4U}) values.add(value);
  values.add(~std::uint64_t{0}, 7);
  values.add(9, 0);
  BOOST_TEST((pairs_of(values.rows()) == pairs{{1, 1}, {2, 1}, {4, 3}, {8, 1}, {~std::uint64_t{0}, 7}}));
}

BOOST_AUTO_TEST_CASE(reuse_is_what_lies_between_two_uses_of_a_block) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests = random_requests(seed, seed % 2 == 0 ? chain_kind::prefixes : chain_kind::any);
    std::vector<std::uint32_t> stream;
    std::map<std::uint32_t, std::uint64_t> last;
    std::map<std::uint64_t, std::uint64_t> distances;
    std::map<std::uint64_t, std::uint64_t> times;
    for (const trace::entry& request : requests.requests()) {
      for (const std::uint32_t block : requests.blocks(request)) {
        if (const auto before = std::find(stream.rbegin(), stream.rend(), block); before != stream.rend()) {
          ++distances[power_above(std::set(stream.rbegin(), before).size())];
          ++times[power_above(request.time_ms - last[block])];
        }
        stream.push_back(block);
        last[block] = request.time_ms;
      }
    }
    const auto reuse = measure_reuse(requests);
    BOOST_REQUIRE(reuse);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST(reuse->cold == last.size());
      BOOST_TEST((pairs_of(reuse->distances) == pairs_of(distances)));
      BOOST_TEST((pairs_of(reuse->times) == pairs_of(times)));
    }
  }
}

BOOST_AUTO_TEST_CASE(uses_of_blocks_are_those_of_requests_that_ask) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests =
        random_requests(seed, chain_kind::any, seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    std::vector<double> uses(requests.distinct());
    for (const trace::entry& request : requests.requests()) {
      for (const std::uint32_t block : requests.blocks(request)) uses[block] += is_question(request) ? 1 : 0;
    }
    std::map<std::uint64_t, std::uint64_t> counts;
    for (const double each : uses) ++counts[static_cast<std::uint64_t>(each)];
    std::erase(uses, 0.0);
    double differences = 0;  // Gini: the mean difference of two, by twice the mean
    double sum = 0;
    for (const double a : uses) {
      sum += a;
      for (const double b : uses) differences += std::abs(a - b);
    }
    const block_uses all = measure_uses(requests);
    pairs frequency;
    for (const use_count& each : all.frequency) frequency.emplace_back(each.uses, each.blocks);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST((frequency == pairs_of(counts)));
      if (uses.empty()) continue;
      const auto used = static_cast<double>(uses.size());
      BOOST_TEST(std::abs(all.gini - differences / (2 * used * sum)) < 1e-9);
      BOOST_TEST(std::abs(all.one_use_share - static_cast<double>(counts[1]) / used) < 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_endless_cache_has_all_that_was_stored) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests =
        random_requests(seed, chain_kind::any, seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    const auto hits = endless_hits(requests);
    BOOST_TEST(hits.size() == requests.requests().size());
    BOOST_TEST(sum_of(hits) == naive_hits(requests, ~std::uint64_t{0}).first);
    std::uint64_t helpless = 0;
    for (std::size_t i = 0; i < hits.size(); ++i)
      helpless += is_question(requests.requests()[i]) && hits[i] == 0 ? 1 : 0;
    BOOST_TEST(count_helpless(requests, hits).requests == helpless);
    BOOST_TEST(!measure_engine_hits(requests, hits).has_value());
  }
}

BOOST_AUTO_TEST_CASE(windows_add_up_to_the_whole_and_begin_at_multiples) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests =
        random_requests(seed, chain_kind::any, seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    const auto hits = endless_hits(requests);
    const std::uint64_t length = 1 + seed * 7;
    std::map<std::uint64_t, time_window> expected;
    std::set<std::uint32_t> there;
    for (std::size_t i = 0; i < hits.size(); ++i) {
      const trace::entry& request = requests.requests()[i];
      time_window& window = expected[request.time_ms / length * length];
      for (const std::uint32_t block : requests.blocks(request)) there.insert(block);
      window.distinct = there.size();
      window.requests += is_question(request) ? 1 : 0;
      window.references += is_question(request) ? request.count : 0;
      window.hit_blocks += hits[i];
      window.hit_tokens += hits[i] * requests.block_tokens();
    }
    const auto windows = measure_windows(requests, hits, length);
    BOOST_REQUIRE(windows.size() == expected.size());
    for (const time_window& each : windows) {
      BOOST_REQUIRE(expected.contains(each.start_ms));
      const time_window& wanted = expected[each.start_ms];
      BOOST_TEST(each.requests == wanted.requests);
      BOOST_TEST(each.references == wanted.references);
      BOOST_TEST(each.distinct == wanted.distinct);
      BOOST_TEST(each.hit_blocks == wanted.hit_blocks);
      BOOST_TEST(each.hit_tokens == wanted.hit_tokens);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_block_is_shared_where_requests_of_more_than_one_have_it) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests =
        random_requests(seed, chain_kind::any, seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    for (const sharer kind : {sharer::session, sharer::instance}) {
      std::map<std::uint32_t, std::set<std::uint32_t>> parties;
      std::map<std::uint32_t, std::uint64_t> references;
      std::set<std::uint32_t> all;
      for (const trace::entry& request : requests.requests()) {
        const std::uint32_t party = kind == sharer::session ? request.session : request.instance;
        all.insert(party);
        for (const std::uint32_t block : requests.blocks(request)) {
          parties[block].insert(party);
          references[block] += is_question(request) ? 1 : 0;
        }
      }
      block_sharing wanted{.sharers = all.size()};
      for (const auto& [block, some] : parties) {
        if (some.size() < 2) continue;
        wanted.shared_blocks += 1;
        wanted.shared_references += references[block];
      }
      const block_sharing measured = measure_sharing(requests, kind);
      BOOST_TEST(measured.sharers == wanted.sharers);
      BOOST_TEST(measured.shared_blocks == wanted.shared_blocks);
      BOOST_TEST(measured.shared_references == wanted.shared_references);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_delay_is_the_time_since_the_sessions_request_in_front) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests =
        random_requests(seed, chain_kind::any, seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    std::map<std::uint32_t, std::vector<std::uint64_t>> times;
    for (const trace::entry& request : requests.requests()) {
      if (is_question(request)) times[request.session].push_back(request.time_ms);
    }
    std::map<std::uint32_t, std::vector<std::uint64_t>> delays;
    for (const auto& [session, all] : times) {
      for (std::uint32_t i = 1; i < all.size(); ++i) {
        delays[std::min(i + 1, most_turns)].push_back(all[i] - all[i - 1]);
      }
    }
    const auto turns = measure_turns(requests);
    BOOST_TEST(turns.has_value() == (times.size() > 1));
    if (!turns) continue;
    BOOST_REQUIRE(turns->size() == delays.size());
    for (const turn_delay& each : *turns) {
      auto& all = delays[each.turn];
      std::ranges::sort(all);
      const auto ranked = [&](double share) {
        return all[static_cast<std::size_t>(std::ceil(share * static_cast<double>(all.size()) - 1e-9)) - 1];
      };
      BOOST_TEST(each.requests == all.size());
      BOOST_TEST(each.median_ms == ranked(0.5));
      BOOST_TEST(each.p90_ms == ranked(0.9));
      BOOST_TEST(each.longest_ms == all.back());
    }
  }
}

BOOST_AUTO_TEST_CASE(late_turns_are_one_row) {
  trace requests;
  for (std::uint64_t i = 0; i < 100; ++i) requests.add({.time_ms = i * i}, {});
  requests.add({.time_ms = 10'000, .session = 1}, {});
  const auto turns = measure_turns(requests);
  BOOST_REQUIRE(turns);
  BOOST_TEST(turns->size() == most_turns - 1);
  BOOST_TEST(turns->back().turn == most_turns);
  BOOST_TEST(turns->back().requests == 100 - most_turns + 1);
  BOOST_TEST(turns->back().longest_ms == 99U * 99 - 98U * 98);
}

BOOST_AUTO_TEST_CASE(larger_blocks_hit_where_all_that_they_hold_does) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests = random_requests(seed, chain_kind::prefixes);
    const auto capacity = static_cast<std::uint32_t>(seed % (requests.distinct() + 2));
    const auto sizes = measure_block_sizes(requests, capacity);
    BOOST_REQUIRE(sizes);
    BOOST_TEST(sizes->front().block_tokens == requests.block_tokens());
    for (const block_size& each : *sizes) {
      const std::uint64_t factor = each.block_tokens / requests.block_tokens();
      BOOST_TEST(each.block_tokens % requests.block_tokens() == 0U);
      BOOST_TEST(each.capacity == capacity / factor);
      std::map<std::vector<std::uint64_t>, std::uint64_t> numbers;  // whole prefixes, in place of keys
      trace larger(each.block_tokens);
      for (const trace::entry& request : requests.requests()) {
        const auto ids = requests.ids(request);
        std::vector<std::uint64_t> path;
        for (std::size_t i = factor; i <= ids.size(); i += factor) {
          path.push_back(
              numbers.try_emplace({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i)}, numbers.size())
                  .first->second);
        }
        larger.add(request.time_ms, request.tokens, path);
      }
      const auto tokens_at = [&](std::uint32_t blocks) {
        return blocks == 0 ? 0 : simulate(larger, "lru", blocks, replay_order::reverse)->prefix_tokens;
      };
      BOOST_TEST(each.endless_tokens == tokens_at(larger.distinct() + 100));
      BOOST_TEST(each.hit_tokens == tokens_at(each.capacity));
    }
  }
}

BOOST_AUTO_TEST_CASE(sizes_double_from_16_to_1024_behind_the_traces_own) {
  const auto sizes_of = [](std::uint64_t block_tokens) {
    std::vector<std::uint64_t> all;
    const auto sizes = measure_block_sizes(trace(block_tokens), 10);
    if (sizes) std::ranges::transform(*sizes, std::back_inserter(all), &block_size::block_tokens);
    return all;
  };
  BOOST_TEST((sizes_of(16) == std::vector<std::uint64_t>{16, 32, 64, 128, 256, 512, 1024}));
  BOOST_TEST((sizes_of(3) == std::vector<std::uint64_t>{3, 24, 48, 96, 192, 384, 768}));
  BOOST_TEST((sizes_of(512) == std::vector<std::uint64_t>{512, 1024}));
  BOOST_TEST((sizes_of(4096) == std::vector<std::uint64_t>{4096}));
}

BOOST_AUTO_TEST_CASE(a_longer_time_to_live_ends_at_the_hits_of_an_endless_cache) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const trace requests = random_requests(seed, seed % 2 == 0 ? chain_kind::prefixes : chain_kind::any);
    const auto ttls = measure_ttls(requests);
    BOOST_REQUIRE(ttls);
    for (const ttl_hits& each : *ttls) {
      const auto [blocks, tokens] = naive_hits(requests, each.seconds * 1000);
      BOOST_TEST(each.hit_blocks == blocks);
      BOOST_TEST(each.hit_tokens == tokens);
    }
    const std::uint64_t most = naive_hits(requests, ~std::uint64_t{0}).first;
    BOOST_TEST((ttls->empty() ? 0 : ttls->back().hit_blocks) == most);
    if (ttls->size() > 1) BOOST_TEST((*ttls)[ttls->size() - 2].hit_blocks < most);
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_hold_gives_nothing) {
  trace apart;
  apart.add({.tokens = 512, .access = chain_access::read}, std::vector<std::uint64_t>{1});
  BOOST_TEST(!measure_reuse(apart));
  BOOST_TEST(!measure_ttls(apart));
  BOOST_TEST(!measure_block_sizes(apart, 1));
  BOOST_TEST(!measure_turns(apart));
  trace behind_two;
  behind_two.add(0, 1024, std::vector<std::uint64_t>{1, 2});
  behind_two.add(1, 1024, std::vector<std::uint64_t>{3, 2});
  BOOST_TEST(!measure_block_sizes(behind_two, 1));
}

BOOST_AUTO_TEST_CASE(a_trace_without_requests_has_no_figures) {
  const trace none;
  BOOST_TEST(measure_reuse(none)->distances.empty());
  BOOST_TEST(measure_uses(none).frequency.empty());
  BOOST_TEST(endless_hits(none).empty());
  BOOST_TEST(count_helpless(none, {}).share == 0);
  BOOST_TEST(measure_windows(none, {}, 1).empty());
  BOOST_TEST(measure_sharing(none, sharer::session).sharers == 0U);
  BOOST_TEST(measure_ttls(none)->empty());
}

BOOST_AUTO_TEST_CASE(blocks_that_engines_had_stand_in_front_of_those_of_an_endless_cache) {
  trace requests(16);
  const auto add = [&](std::uint32_t engine_blocks, std::uint64_t tokens, const std::vector<std::uint64_t>& ids) {
    requests.add({.tokens = tokens, .engine_blocks = engine_blocks}, ids);
  };
  add(1, 48, {1, 2, 3});     // the cache has nothing yet
  add(2, 60, {1, 2, 3, 4});  // one more, 3
  add(4, 60, {1, 2, 3, 4});  // the engine has all
  add(0, 60, {1, 2, 3, 4});  // the cache has all; the last block is not full
  const auto found = measure_engine_hits(requests, endless_hits(requests));
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->requests == 3U);
  BOOST_TEST(found->blocks == 7U);
  BOOST_TEST(found->tokens == 16U + 32U + 60U);
  BOOST_TEST(found->more_blocks == 1U + 4U);
  BOOST_TEST(found->more_tokens == 16U + 60U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
