// Events become entries: keys from tokens, parents by name, and what is passed.
#include "services/indexer/backends/shared_placer.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/indexer/backends/pod_entry.hpp"

namespace cenote::indexer {

namespace {

constexpr std::uint32_t block = 4;

struct recording_store final : shared_store {
  void add(std::string_view pod, std::string_view field, std::span<const std::uint64_t> keys,
           std::span<const std::uint64_t> hashes) override {
    pods.insert_or_assign(std::string(pod), std::string(field));
    added.insert(added.end(), keys.begin(), keys.end());
    names.insert(names.end(), hashes.begin(), hashes.end());
  }
  void remove(std::string_view, std::string_view field, std::span<const std::uint64_t> hashes) override {
    removed_field = field;
    removed.insert(removed.end(), hashes.begin(), hashes.end());
  }
  void clear(std::string_view pod, std::string_view tier) override { clears.emplace_back(pod, tier); }
  void add_size(std::string_view model, std::uint32_t tokens) override { sizes.emplace(model, tokens); }
  std::optional<std::uint64_t> find(std::uint64_t hash) override {
    ++questions;
    const auto found = blocks_by_name.find(hash);
    return found == blocks_by_name.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<std::uint64_t> find_all(std::uint64_t hash) override {
    ++questions;
    std::vector<std::uint64_t> keys;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == hash) keys.push_back(added[i]);
    }
    return keys;
  }

  std::map<std::string, std::string> pods;
  std::vector<std::uint64_t> added, names, removed;
  std::string removed_field;
  std::vector<std::pair<std::string, std::string>> clears;
  std::map<std::string, std::uint32_t> sizes;
  std::map<std::uint64_t, std::uint64_t> blocks_by_name;
  int questions = 0;
};

class placer_world {
 public:
  explicit placer_world(clear_scope clear = clear_scope::gpu, publisher_kind kind = publisher_kind::engine,
                        std::uint32_t block_tokens = 0)
      : placer(processor, store_, {.block_tokens = block_tokens}) {
    placer.open(1, {.name = "a", .pod = "pod", .model = "model", .clear = clear, .kind = kind});
  }

  engine_event& store(std::vector<std::uint64_t> hashes, std::uint32_t first_token,
                      std::optional<std::uint64_t> parent = std::nullopt) {
    engine_event& event = add(event_kind::stored, std::move(hashes));
    event.parent = parent;
    event.block_tokens = block;
    event.tokens = {static_cast<std::uint32_t>(batch.tokens.size()), event.hashes.size * block};
    for (std::uint32_t i = 0; i < event.tokens.size; ++i) batch.tokens.push_back(first_token + i);
    return event;
  }
  engine_event& add(event_kind kind, std::vector<std::uint64_t> hashes) {
    engine_event event;
    event.kind = kind;
    event.hashes = {static_cast<std::uint32_t>(batch.hashes.size()), static_cast<std::uint32_t>(hashes.size())};
    batch.hashes.insert(batch.hashes.end(), hashes.begin(), hashes.end());
    return batch.events.emplace_back(event);
  }
  bool apply() {
    const bool is_parent_unknown = placer.apply(1, batch);
    batch.clear();
    return is_parent_unknown;
  }
  std::vector<std::uint64_t> keys(std::uint32_t first_token, std::uint32_t blocks,
                                  std::uint32_t block_tokens = block) const {
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < blocks * block_tokens; ++i) tokens.push_back(first_token + i);
    std::vector<std::uint64_t> made;
    const token_run run{.tokens = tokens, .extra_keys = {}, .parent = std::nullopt};
    BOOST_REQUIRE(
        processor.keys_of(run, {.model = "model", .lora_name = {}, .block_tokens = block_tokens}, made).has_value());
    return made;
  }

  token_processor processor{key_chain::fnv64_cbor, "seed"};
  recording_store store_;
  shared_placer placer;
  event_batch batch;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(shared_placers)

BOOST_AUTO_TEST_CASE(blocks_get_the_keys_of_their_tokens_and_a_child_follows_its_parent) {
  placer_world all;
  all.store({1, 2}, 100);
  all.store({3}, 108, 2);
  BOOST_TEST(!all.apply());
  BOOST_TEST(all.store_.added == all.keys(100, 3), boost::test_tools::per_element());
  BOOST_TEST((all.store_.names == std::vector<std::uint64_t>{1, 2, 3}));
  BOOST_TEST(all.store_.pods.at("pod") == field_text({.pod = "pod", .tier = "gpu"}));
  BOOST_TEST(all.store_.sizes.at("model") == block);
  BOOST_TEST(all.store_.questions == 0);
}

BOOST_AUTO_TEST_CASE(a_parent_that_is_not_at_hand_is_asked_for_once) {
  placer_world all;
  all.store_.blocks_by_name[9] = all.keys(100, 1).front();
  all.store({10}, 104, 9);
  all.store({11}, 104, 9);
  BOOST_TEST(!all.apply());
  BOOST_TEST(all.store_.questions == 1);
  BOOST_TEST(all.store_.added.front() == all.keys(100, 2).back());
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_costs_its_event_and_is_said) {
  placer_world all;
  all.store({10}, 104, 9);
  all.store({1}, 100);
  BOOST_TEST(all.apply());
  BOOST_TEST(all.store_.added == all.keys(100, 1), boost::test_tools::per_element());
  BOOST_TEST(all.placer.counters().refusals(placement_refusal::unknown_parent) == 1U);
}

BOOST_AUTO_TEST_CASE(tokenless_blocks_lie_in_one_more_tier) {
  placer_world all;
  all.store({1, 2}, 100);
  (void)all.apply();
  all.store_.added.clear();
  all.add(event_kind::stored, {2, 7}).medium = block_medium::cpu;
  (void)all.apply();
  BOOST_TEST((all.store_.added == std::vector{all.keys(100, 2).back()}));
  BOOST_TEST(all.store_.pods.at("pod") == field_text({.pod = "pod", .tier = "cpu"}));
  BOOST_TEST(all.placer.counters().refusals(placement_refusal::unknown_name) == 1U);
}

BOOST_AUTO_TEST_CASE(a_removal_names_the_field_that_was_stored) {
  placer_world all;
  engine_event& event = all.add(event_kind::removed, {5, 6});
  event.group = 2;
  (void)all.apply();
  BOOST_TEST((all.store_.removed == std::vector<std::uint64_t>{5, 6}));
  BOOST_TEST(all.store_.removed_field == field_text({.pod = "pod", .tier = "gpu", .group = 2}));
}

BOOST_AUTO_TEST_CASE(a_clear_is_of_the_gpu_or_of_all) {
  for (const bool is_all : {false, true}) {
    placer_world all(is_all ? clear_scope::all : clear_scope::gpu);
    all.add(event_kind::cleared, {});
    (void)all.apply();
    BOOST_REQUIRE(all.store_.clears.size() == 1U);
    BOOST_TEST(all.store_.clears.front().second == (is_all ? "" : "gpu"));
  }
}

BOOST_AUTO_TEST_CASE(windows_sparse_groups_and_nodes_are_passed) {
  placer_world all;
  all.store({1}, 100).attention = attention_kind::sliding_window;
  all.store({2}, 100).attention = attention_kind::other;
  all.store({3}, 100).tokens.size = 2 * block;
  all.batch.tokens.resize(all.batch.tokens.size() + block);
  (void)all.apply();
  BOOST_TEST(all.store_.added.empty());
  BOOST_TEST(all.placer.counters().refusals(placement_refusal::ignored_group) == 3U);
  placer_world node(clear_scope::all, publisher_kind::node);
  node.store({1}, 100);
  node.add(event_kind::cleared, {});
  (void)node.apply();
  BOOST_TEST(node.store_.added.empty());
  BOOST_TEST(node.store_.clears.empty());
}

BOOST_AUTO_TEST_CASE(a_longer_block_has_its_engine_s_name_for_all_that_it_is_cut_into) {
  placer_world all(clear_scope::gpu, publisher_kind::engine, block / 2);
  all.store({1, 2}, 100);
  all.store({3}, 108, 2);
  BOOST_TEST(!all.apply());
  BOOST_TEST(all.store_.added == all.keys(100, 6, block / 2), boost::test_tools::per_element());
  BOOST_TEST((all.store_.names == std::vector<std::uint64_t>{1, 1, 2, 2, 3, 3}));
  BOOST_TEST(all.store_.sizes.at("model") == block / 2);
  all.add(event_kind::removed, {2});
  (void)all.apply();
  BOOST_TEST((all.store_.removed == std::vector<std::uint64_t>{2}));
  const std::vector<std::uint64_t> first(all.store_.added.begin(), all.store_.added.begin() + 2);
  all.add(event_kind::stored, {1}).medium = block_medium::cpu;
  (void)all.apply();
  const std::vector<std::uint64_t> last(all.store_.added.end() - 2, all.store_.added.end());
  BOOST_TEST(last == first, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(shorter_blocks_are_one_entry_while_all_are_there) {
  placer_world all(clear_scope::gpu, publisher_kind::engine, 2 * block);
  all.store({1, 2, 3}, 100);
  BOOST_TEST(!all.apply());
  BOOST_TEST(all.store_.added == all.keys(100, 1, 2 * block), boost::test_tools::per_element());
  BOOST_TEST((all.store_.names == std::vector<std::uint64_t>{2}));
  all.store({4}, 112, 3);
  (void)all.apply();
  BOOST_TEST(all.store_.added == all.keys(100, 2, 2 * block), boost::test_tools::per_element());
  all.add(event_kind::removed, {1, 3});
  (void)all.apply();
  BOOST_TEST((all.store_.removed == std::vector<std::uint64_t>{2, 4}));
  all.placer.clear("pod", {});
  all.store({3}, 108, 2);
  (void)all.apply();
  BOOST_TEST(all.store_.names.size() == 2U);
}

BOOST_AUTO_TEST_CASE(names_of_two_publishers_are_apart) {
  recent_names names;
  names.add(1, 5, 50);
  names.add(2, 5, 60);
  BOOST_TEST((names.find(1, 5) == 50U));
  BOOST_TEST((names.find(2, 5) == 60U));
  BOOST_TEST(!names.find(3, 5).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
