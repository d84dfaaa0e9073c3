#include "simulation/optimize/prefix_tree.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "simulation/optimize/analysis.hpp"
#include "tests/unit/simulation/optimize/random_requests.hpp"

namespace cenote::simulation {

namespace {

using prefix = std::vector<std::uint64_t>;

struct prefix_figures {
  std::set<prefix> children;
  std::uint64_t uses = 0;
  std::uint64_t tokens_saved = 0;
};

/// By whole prefixes.
std::map<prefix, prefix_figures> naive_tree(const trace& trace) {
  std::map<prefix, prefix_figures> all;
  std::set<prefix> stored;
  for (const trace::entry& request : trace.requests()) {
    prefix path;
    bool is_hit = request.access != chain_access::write;
    std::vector<prefix> here;
    for (const std::uint64_t id : trace.ids(request)) {
      const prefix parent = path;
      path.push_back(id);
      all[parent].children.insert(path);
      is_hit = is_hit && stored.contains(path);
      all[path].uses += request.access != chain_access::write ? 1 : 0;
      all[path].tokens_saved += is_hit ? trace.block_tokens() : 0;
      here.push_back(path);
    }
    if (request.access != chain_access::read) stored.insert(here.begin(), here.end());
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(prefix_trees)

BOOST_AUTO_TEST_CASE(its_shape_and_runs_are_those_of_a_tree_of_whole_prefixes) {
  using testing_models::access_kind;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const trace requests = testing_models::random_requests(seed, testing_models::chain_kind::prefixes,
                                                           seed % 2 == 0 ? access_kind::joined : access_kind::apart);
    auto expected = naive_tree(requests);
    tree_shape shape;
    std::multiset<std::vector<std::uint64_t>> runs;  // depth, blocks, uses, tokens
    shape.roots = expected[{}].children.size();
    for (const auto& [path, figures] : expected) {
      if (path.empty()) continue;
      shape.nodes += 1;
      shape.leaves += figures.children.empty() ? 1 : 0;
      shape.forks += figures.children.size() > 1 ? 1 : 0;
      shape.depth = std::max<std::uint64_t>(shape.depth, path.size());
      const prefix parent(path.begin(), path.end() - 1);
      if (!parent.empty() && expected[parent].children.size() == 1) continue;
      std::uint64_t blocks = 1;
      std::uint64_t tokens = figures.tokens_saved;
      for (prefix end = path; expected[end].children.size() == 1; ++blocks) {
        end = *expected[end].children.begin();
        tokens += expected[end].tokens_saved;
      }
      runs.insert({parent.size(), blocks, figures.uses, tokens});
    }
    const auto tree = prefix_tree::measure(requests, endless_hits(requests));
    BOOST_REQUIRE(tree);
    std::multiset<std::vector<std::uint64_t>> measured;
    for (const tree_run& each : tree->runs()) {
      measured.insert({each.depth, each.blocks, each.uses, each.tokens_saved});
      const bool fits = each.parent ? each.depth == tree->runs()[*each.parent].depth + tree->runs()[*each.parent].blocks
                                    : each.depth == 0;
      BOOST_TEST(fits);
    }
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST(tree->shape().nodes == shape.nodes);
      BOOST_TEST(tree->shape().roots == shape.roots);
      BOOST_TEST(tree->shape().leaves == shape.leaves);
      BOOST_TEST(tree->shape().forks == shape.forks);
      BOOST_TEST(tree->shape().depth == shape.depth);
      BOOST_TEST((measured == runs));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_hottest_runs_save_the_most_tokens) {
  trace requests(16);
  const auto add = [&](std::vector<std::uint64_t> ids) { requests.add(0, ids.size() * 16, ids); };
  add({1, 2, 3});
  add({1, 2, 4});
  add({1, 2, 4});
  add({7, 8});
  const auto tree = prefix_tree::measure(requests, endless_hits(requests));
  BOOST_REQUIRE(tree);
  BOOST_TEST((tree->hottest(2) == std::vector<std::uint32_t>{0, 2}));
  BOOST_TEST((tree->hottest(100) == std::vector<std::uint32_t>{0, 2, 1, 3}));
  BOOST_TEST(tree->runs()[0].tokens_saved == 4U * 16);
  BOOST_TEST(tree->runs()[2].parent.value() == 0U);
  BOOST_TEST(!tree->runs()[3].parent);
}

BOOST_AUTO_TEST_CASE(chains_that_are_no_prefixes_have_no_tree) {
  const auto has_tree = [](const std::vector<std::vector<std::uint64_t>>& chains) {
    trace requests;
    for (const auto& each : chains) requests.add(0, each.size() * 512, each);
    return prefix_tree::measure(requests, endless_hits(requests)).has_value();
  };
  BOOST_TEST(!has_tree({{1, 2}, {3, 2}}));
  BOOST_TEST(!has_tree({{1, 1}}));
  BOOST_TEST(!has_tree({{1, 2}, {2}}));
  BOOST_TEST(has_tree({{1, 2}, {1, 3}, {}}));
  BOOST_TEST(has_tree({}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
