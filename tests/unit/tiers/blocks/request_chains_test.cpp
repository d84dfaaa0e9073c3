// What sessions used and stored, and the place it gets.
#include "tiers/blocks/request_chains.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::request_chains_test {

using namespace testing;
using memory::block_ref;

namespace {

/// Refuses one block, and keeps the others in the order in which they came.
class refusal_policy final : public eviction::policy {
 public:
  explicit refusal_policy(std::uint64_t unwanted) : unwanted_(unwanted) {}

  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t /*now*/) override { return id != unwanted_; }
  void insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) override { blocks_.push_back(block); }
  void touch(std::uint32_t /*block*/, std::uint32_t /*now*/) override {}
  void forget(std::uint32_t block) override { std::erase(blocks_, block); }
  [[nodiscard]] std::optional<std::uint32_t> victim() override {
    return blocks_.empty() ? std::nullopt : std::optional(blocks_.front());
  }
  [[nodiscard]] std::uint32_t size() const noexcept override { return static_cast<std::uint32_t>(blocks_.size()); }

 private:
  std::uint64_t unwanted_;
  std::vector<std::uint32_t> blocks_;
};

struct fixture : bare_parts {
  instance& in = add();
  session& by = attach(in);
  pool& group = pool_in(in);

  /// Published, and in no order yet.
  std::uint32_t store(std::uint64_t key, std::uint64_t parent = 0) {
    const block_ref ref = blank(in);
    of.blocks.publish(in, *slab_of(in, ref), ref, key_of(key), now);
    const std::uint32_t record = record_of(in, ref);
    of.chains.note_stored(group, record, of.all.key_hash(group, record), parent, by, now);
    return record;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(request_chains_suite, fixture)

BOOST_AUTO_TEST_CASE(what_a_request_stores_takes_its_place_together_and_children_go_first) {
  const std::uint32_t head = store(1);
  const std::uint32_t tail = store(2);
  BOOST_TEST(of.chains.is_storing());
  BOOST_TEST(group.policy->size() == 0U);
  of.chains.place_stored(by, now);
  BOOST_TEST(!of.chains.is_storing());
  BOOST_TEST(group.policy->size() == 2U);
  BOOST_TEST(*oldest_of(group) == tail);
  of.order.leave_order(group, tail, departure::evicted, now);
  BOOST_TEST(*oldest_of(group) == head);
}

BOOST_AUTO_TEST_CASE(of_a_pool_that_is_watched_a_chain_is_handed_on_once_though_the_policy_follows_no_requests) {
  group.watched_room = 7;
  of.all.options.watch = request_watch::all;
  BOOST_TEST(!group.policy->follows_requests());
  const std::uint64_t head = of.all.key_hash(group, store(1));
  const std::uint64_t tail = of.all.key_hash(group, store(2, head));
  of.chains.place_stored(by, now);
  BOOST_TEST(of.all.watched.blocks() == 2U);
  const auto requests = of.all.watched.take();
  BOOST_REQUIRE(requests.size() == 1U);
  BOOST_TEST(requests[0].instance == in.number);
  BOOST_TEST(requests[0].room == 7U);
  BOOST_TEST((requests[0].ids == std::vector<std::uint64_t>{head, tail}));
  store(3, tail);
  of.chains.place_stored(by, now);  // it goes on with what was stored: no request of its own
  BOOST_TEST(of.all.watched.take().empty());
  BOOST_TEST(of.all.watched.blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(of_a_pool_that_is_not_watched_nothing_is_handed_on) {
  store(1);
  of.chains.place_stored(by, now);
  BOOST_TEST(of.all.watched.take().empty());
}

BOOST_AUTO_TEST_CASE(a_policy_that_follows_no_requests_has_none_handed_on_unless_all_are_watched) {
  group.watched_room = 7;
  of.all.options.watch = request_watch::followed;
  store(1);
  of.chains.place_stored(by, now);
  BOOST_TEST(of.all.watched.take().empty());
}

BOOST_AUTO_TEST_CASE(while_requests_are_recorded_those_of_any_policy_are_handed_on_with_their_tokens) {
  group.watched_room = 7;
  in.spec.tokens_per_block = 16;
  of.all.options.watch = request_watch::followed;
  of.all.recorded_until = now;
  store(1);
  of.chains.place_stored(by, now);
  const auto requests = of.all.watched.take();
  BOOST_REQUIRE(requests.size() == 1U);
  BOOST_TEST(requests[0].block_tokens == 16U);
  BOOST_TEST(!requests[0].is_cut);
  of.all.options.watch = request_watch::none;
  store(2);
  of.chains.place_stored(by, now);
  BOOST_TEST(of.all.watched.take().empty());
}

BOOST_AUTO_TEST_CASE(what_is_stored_behind_a_chain_makes_the_chain_young_again) {
  const std::uint32_t head = store(1);
  of.chains.place_stored(by, now);
  const std::uint32_t between = record_of(in, present(in, 7));
  const block_ref ref = blank(in);
  of.blocks.publish(in, *slab_of(in, ref), ref, key_of(2), now);
  const std::uint32_t record = record_of(in, ref);
  of.chains.note_stored(group, record, of.all.key_hash(group, record), of.all.key_hash(group, head), by, now);
  of.chains.place_stored(by, now);
  BOOST_TEST(*oldest_of(group) == between);
}

BOOST_AUTO_TEST_CASE(a_request_of_which_a_block_is_refused_brings_nothing_more_with_later_puts) {
  const std::uint32_t head = store(1);
  const std::uint32_t refused = store(2);
  const std::uint64_t unwanted = of.all.key_hash(group, refused);
  group.policy = std::make_unique<refusal_policy>(unwanted);
  of.chains.place_stored(by, now);
  BOOST_TEST(group.policy->size() == 1U);
  BOOST_TEST(*group.policy->victim() == head);
  (void)store(3, unwanted);
  of.chains.place_stored(by, now);
  BOOST_TEST(group.policy->size() == 1U);
  (void)store(4);  // of another request
  of.chains.place_stored(by, now);
  BOOST_TEST(group.policy->size() == 2U);
}

BOOST_AUTO_TEST_CASE(an_instance_that_goes_takes_along_what_it_was_storing) {
  (void)store(1);
  of.chains.forget(in);
  BOOST_TEST(!of.chains.is_storing());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::request_chains_test
