#include "actors/prefetch.hpp"

#include "memory/lower_hints.hpp"
#include "memory/prefetch_terms.hpp"
#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

constexpr std::uint64_t stride = 4096;

/// Sessions with their rings over a tier whose reads the test answers.
struct prefetch_fixture : actor_fixture {
  prefetch_fixture() : actor_fixture(below::a_tier) {
    provide_memory();
    BOOST_REQUIRE_EQUAL(told().bindings.size(), 1U);
    hints = std::move(*memory::hint_writer::open(std::move(told().bindings[0]->index), 10'000));
  }
  ~prefetch_fixture() {
    for (const auto& [number, each] : served) caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    served.clear();
    run();
  }
  prefetch_fixture(const prefetch_fixture&) = delete;
  prefetch_fixture& operator=(const prefetch_fixture&) = delete;

  struct client {
    std::shared_ptr<session_resources> resources;
    memory::client_rings rings;
  };
  client serve(std::uint64_t number) {
    client made{make_client(number), {}};
    made.rings = memory::client_rings(made.resources->view);
    served[number] = system().spawn<session>(made.resources, dram());
    ring(number);
    return made;
  }
  void ring(std::uint64_t number) {
    caf::anon_send(served.at(number), doorbell_atom_v);
    run();
  }
  void request_prefetch(client& by, std::uint32_t request, std::vector<std::uint64_t> keys,
                        memory::prefetch_terms terms = {}) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      memory::submission entry = entry_of(memory::operation::prefetch, request);
      const full_key full = key_of(keys[i]);
      entry.key_size = full.size;
      std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
      if (i + 1 < keys.size()) {
        entry.flags = 0;
      } else {
        terms.chain = request;
        terms.hold = true;
        terms.pack(entry);
      }
      by.rings.push(entry);
    }
    (void)by.rings.publish();
    ring(by.resources->number);
  }
  void say(client& by, memory::operation what, std::uint32_t request, std::uint32_t chain) {
    memory::submission entry = entry_of(what, request);
    entry.grant_version = chain;
    by.rings.push(entry);
    (void)by.rings.publish();
    ring(by.resources->number);
  }
  static std::map<std::uint32_t, std::uint64_t> answers(client& to) {
    std::map<std::uint32_t, std::uint64_t> all;
    while (const auto one = to.rings.pop()) all[one->request] = one->value;
    return all;
  }
  void store_below(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t n = first; n < first + count; ++n) hints.add(reduce_key(key_of(n).view(), 0));
  }
  /// The tier below answers the first `count` of what it was asked for.
  void reads_end(std::size_t count) {
    auto outcomes = std::make_shared<std::vector<transfer_outcome>>();
    for (std::size_t i = 0; i < count; ++i) outcomes->push_back({told().reads[i].token, transfer_result::done});
    told().reads.erase(told().reads.begin(), told().reads.begin() + static_cast<std::ptrdiff_t>(count));
    caf::anon_send(dram(), transfers_done_atom_v, transfer_outcomes_ptr(std::move(outcomes)));
    run();
  }
  void time_passes(prefetch::nanoseconds time) {
    now() += time;
    scheduler().clock().advance_time(time);
    run();
  }
  prefetch::status status() {
    const auto report = ask<prefetch_report_ptr>(prefetch(), report_atom_v);
    BOOST_REQUIRE(report);
    return **report;
  }
  std::uint64_t held_bytes() {
    const auto report = ask<dram_report_ptr>(dram(), report_atom_v);
    BOOST_REQUIRE(report);
    return (*report)->store.held_bytes;
  }

  memory::hint_writer hints;
  std::map<std::uint64_t, session_actor> served;
};

memory::prefetch_terms with_policy(memory::prefetch_policy policy) {
  memory::prefetch_terms terms;
  terms.policy = policy;
  return terms;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prefetch_actor_tests, prefetch_fixture)

BOOST_AUTO_TEST_CASE(a_chain_comes_up_in_order_and_its_session_is_told_how_far) {
  client one = serve(1);
  store_below(1, 5);
  request_prefetch(one, 7, {1, 2, 3, 4, 5, 6});
  BOOST_REQUIRE_EQUAL(told().reads.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) BOOST_TEST((told().reads[i].full == key_of(i + 1)));
  BOOST_TEST(status().bytes_in_flight == 5 * stride);
  reads_end(3);
  BOOST_TEST(index().find(reduce_key(key_of(3).view(), 0)) != 0U, "what is here is seen before the end");
  BOOST_TEST(answers(one).empty());
  reads_end(2);
  BOOST_TEST(answers(one).at(7) == 5U);
  BOOST_TEST(status().loaded == 5U);
  BOOST_TEST(held_bytes() == 5 * stride);
  say(one, memory::operation::end_prefetch, 8, 7);
  BOOST_TEST(held_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(two_sessions_that_want_one_prefix_cost_one_read_a_block) {
  client one = serve(1);
  client two = serve(2);
  store_below(1, 4);
  request_prefetch(one, 1, {1, 2, 3, 4});
  request_prefetch(two, 9, {1, 2, 3, 4});
  BOOST_TEST(told().reads.size() == 4U);
  reads_end(4);
  BOOST_TEST(answers(one).at(1) == 4U);
  BOOST_TEST(answers(two).at(9) == 4U);
}

BOOST_AUTO_TEST_CASE(a_stop_in_the_same_batch_as_its_start_finds_it) {
  client one = serve(1);
  store_below(1, 4);
  memory::submission stop = entry_of(memory::operation::stop_prefetch, 2);
  stop.grant_version = 1;
  memory::submission ask = entry_of(memory::operation::prefetch, 1);
  const full_key full = key_of(1);
  ask.key_size = full.size;
  std::memcpy(ask.key, full.bytes.data(), sizeof ask.key);
  memory::prefetch_terms terms = with_policy(memory::prefetch_policy::best_effort);
  terms.chain = 1;
  terms.pack(ask);
  one.rings.push(ask);
  one.rings.push(stop);
  (void)one.rings.publish();
  ring(1);
  const auto all = answers(one);
  BOOST_TEST(all.at(1) == 0U);
  BOOST_TEST(all.contains(2));
  BOOST_TEST(status().by_reason[static_cast<std::size_t>(prefetch::reason::stopped)] == 1U);
}

BOOST_AUTO_TEST_CASE(of_a_session_that_dies_in_the_middle_nothing_is_left) {
  client one = serve(1);
  store_below(1, 6);
  request_prefetch(one, 1, {1, 2, 3, 4, 5, 6});
  reads_end(2);
  BOOST_TEST(held_bytes() == 6 * stride);
  caf::anon_send_exit(served.at(1), caf::exit_reason::user_shutdown);
  served.erase(1);
  BOOST_TEST(ask<outcome>(dram(), release_atom_v, std::uint64_t{1}).has_value());
  BOOST_TEST(held_bytes() == 0U);
  reads_end(4);
  const prefetch::status left = status();
  BOOST_TEST(left.bytes_in_flight == 0U);
  BOOST_TEST(left.waiting == 0U);
  BOOST_TEST(left.by_reason[static_cast<std::size_t>(prefetch::reason::session_gone)] == 1U);
}

BOOST_AUTO_TEST_CASE(a_timeout_ends_it_though_nothing_else_happens) {
  client one = serve(1);
  store_below(1, 64);
  std::vector<std::uint64_t> keys(64);
  for (std::uint64_t i = 0; i < 64; ++i) keys[i] = i + 1;
  request_prefetch(one, 1, keys, with_policy(memory::prefetch_policy::timeout));  // 1 s, and 0.25 s for 1,024 tokens
  reads_end(10);
  time_passes(std::chrono::milliseconds(1249));
  BOOST_TEST(answers(one).empty());
  time_passes(std::chrono::milliseconds(1));
  BOOST_TEST(answers(one).at(1) == 10U);
  BOOST_TEST(held_bytes() == 10 * stride);
  time_passes(std::chrono::seconds(10));
  BOOST_TEST(held_bytes() == 0U, "nobody took them over");
  BOOST_TEST(status().unclaimed == 1U);
}

BOOST_AUTO_TEST_CASE(with_a_device_that_recomputing_beats_the_chain_is_cut) {
  client one = serve(1);
  store_below(1, 64);
  memory::prefetch_terms terms;
  terms.prefill_rate = 1600;  // a block in 10 ms
  request_prefetch(one, 1, {1, 2, 3, 4, 5, 6, 7, 8}, terms);
  BOOST_TEST(told().reads.size() == 8U, "a window tells how fast it is");
  for (int i = 0; i < 10 && answers(one).empty(); ++i) {
    time_passes(std::chrono::milliseconds(20));
    if (status().finished == 1) break;
  }
  BOOST_TEST(status().by_reason[static_cast<std::size_t>(prefetch::reason::cut)] == 1U);
}

BOOST_AUTO_TEST_CASE(a_chain_of_several_requests_is_one_prefetch_with_one_late_answer) {
  client one = serve(1);
  store_below(1, 4);
  memory::prefetch_terms terms;
  terms.chain = 5;
  terms.more = true;
  for (const std::uint32_t request : {1U, 2U}) {
    for (const std::uint64_t place : {0U, 1U}) {
      memory::submission entry = entry_of(memory::operation::prefetch, request);
      const full_key full = key_of((request - 1) * 2 + place + 1);
      entry.key_size = full.size;
      std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
      entry.flags = place == 1 ? memory::submission::flag_last : std::uint8_t{0};
      terms.more = request == 1;
      if (place == 1) terms.pack(entry);
      one.rings.push(entry);
    }
  }
  (void)one.rings.publish();
  ring(1);
  BOOST_TEST((answers(one) == std::map<std::uint32_t, std::uint64_t>{{1, 0}}));
  BOOST_TEST(told().reads.size() == 4U);
  reads_end(4);
  BOOST_TEST((answers(one) == std::map<std::uint32_t, std::uint64_t>{{2, 4}}));
  BOOST_TEST(status().started == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
