// A session whose blocks a device reads and writes: the simulated one, with its faults.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "device/sim.hpp"
#include "tests/unit/client/session_fixture.hpp"

namespace session_device_test {

using namespace cenote;
using namespace std::chrono_literals;
using testing::batch_of;
using testing::code_of;
using testing::content;
using testing::keys_of;
using testing::must;
using testing::part_bytes;
using testing::run_of;

namespace {

constexpr auto patience = 60s;

/// Keeps a stream from going on, for good.
class gate {
 public:
  explicit gate(sim_device& owner) : owner_(&owner), other_(must(owner.make_stream())) {}
  void hold(const stream_ref& stream) {
    owner_->lose_next_event();
    lost_ = must(owner_->record(other_));
    while (!taken()) std::this_thread::yield();
    must(owner_->wait(stream, lost_));
  }

 private:
  /// The switch is used up when the other stream has come to the event.
  bool taken() { return owner_->look(must(owner_->record(other_))) == event_state::done; }

  sim_device* owner_;
  stream_ref other_;
  event_ref lost_;
};

struct fixture : testing::session_fixture {
  explicit fixture(std::chrono::milliseconds deadline = patience)
      : session_fixture(128, 64, 1, deadline),
        sim(std::make_shared<sim_device>()),
        where{sim, must(sim->make_stream())} {}
  ~fixture() {
    session.reset();
    sim.reset();
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  std::vector<client::reserved_block> reserved(const std::vector<std::byte>& keys) {
    std::vector<client::reserved_block> blocks(keys.size() / 32);
    must(session->reserve(batch_of(keys), 0, std::nullopt, blocks));
    return blocks;
  }
  void write(std::span<const client::reserved_block> blocks, const std::vector<std::byte>& bytes) {
    std::vector<copy_run> runs;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      runs.push_back({blocks[i].data, bytes.data() + i * part_bytes, part_bytes});
    }
    must(sim->copy(where.stream, runs));
  }
  std::uint64_t resident(const std::vector<std::byte>& keys) {
    return must(session->match_prefix(batch_of(keys), 0)).resident;
  }

  std::shared_ptr<sim_device> sim;
  client::device_stream where;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sessions_with_a_device)

BOOST_AUTO_TEST_CASE(blocks_are_visible_when_the_device_has_written_them_and_not_before) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 8);
  const auto bytes = content(0, 8);
  const auto blocks = test.reserved(keys);
  test.sim->set_delay(50ms);
  test.write(blocks, bytes);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST(test.resident(keys) == 0U);
  BOOST_TEST(must(test.session->stats()).waiting_for_device == 1U);
  BOOST_TEST(must(test.session->flush()) == 8U);
  BOOST_TEST(test.resident(keys) == 8U);
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(must(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 8))) == 8U);
  BOOST_TEST((back == bytes));
}

BOOST_AUTO_TEST_CASE(pins_end_when_the_device_has_read_and_not_before) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 4);
  auto bytes = content(0, 4);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4)).status);
  std::vector<client::held_block> held(4);
  BOOST_TEST(must(test.session->acquire(batch_of(keys), 0, held)) == 4U);
  std::vector<std::uint32_t> slots;
  for (const auto& each : held) slots.push_back(each.slot);
  gate closed(*test.sim);
  closed.hold(test.where.stream);
  must(test.session->release_after(slots, test.where));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  const auto other = must(test.sim->make_stream());
  must(test.session->release_after({}, {test.sim, other}));  // a later one of another stream comes first
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).waiting_for_device == 1U; }));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
}

BOOST_AUTO_TEST_CASE(a_pin_that_ends_with_an_event_is_ended_by_nobody_else_so_that_a_later_one_of_its_slot_stays) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 4);
  auto bytes = content(0, 4);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4)).status);
  const auto acquire = [&] {
    std::vector<client::held_block> held(4);
    BOOST_TEST(must(test.session->acquire(batch_of(keys), 0, held)) == 4U);
    std::vector<std::uint32_t> slots;
    for (const auto& each : held) slots.push_back(each.slot);
    return slots;
  };
  const auto slots = acquire();
  const auto both = {slots[0], slots[1], slots[0]};
  BOOST_TEST((code_of(test.session->release_after(both, test.where)) == error_code::invalid_argument));

  const client::device_stream other{test.sim, must(test.sim->make_stream())};
  std::promise<void> closed, opened;  // between them the device tells nobody that an event is done
  test.sim->when(must(test.sim->record(other.stream)),
                 [&closed, open = opened.get_future().share()](const result<void>&) {
                   closed.set_value();
                   open.wait();
                 });
  closed.get_future().wait();
  must(test.session->release_after(slots, test.where));
  BOOST_TEST((code_of(test.session->release_after(std::span(slots).last(1), other)) == error_code::invalid_argument));
  BOOST_TEST((code_of(test.session->release(slots)) == error_code::invalid_argument));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  opened.set_value();
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).waiting_for_device == 0U; }));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 0U);

  const auto later = acquire();
  BOOST_TEST(later == slots, boost::test_tools::per_element());
  must(test.session->release_after(later, other));  // the marks went with the pins
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).pins_in_use == 0U; }));
}

BOOST_AUTO_TEST_CASE(pins_whose_end_a_device_refuses_to_tell_are_still_held) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 4);
  auto bytes = content(0, 4);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4)).status);
  std::vector<client::held_block> held(4);
  BOOST_TEST(must(test.session->acquire(batch_of(keys), 0, held)) == 4U);
  std::vector<std::uint32_t> slots;
  for (const auto& each : held) slots.push_back(each.slot);
  test.sim->fail_work();
  std::byte from{}, to{};
  const copy_run fatal{&to, &from, 1};
  must(test.sim->copy(test.where.stream, {&fatal, 1}));
  BOOST_TEST(test.comes([&] { return test.sim->state() == standing::away; }));
  BOOST_TEST((code_of(test.session->release_after(slots, test.where)) == error_code::closed));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  must(test.session->release(slots));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 0U);
}

BOOST_AUTO_TEST_CASE(what_a_failed_device_has_written_is_never_shown_and_flush_says_so) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 8);
  const auto blocks = test.reserved(keys);
  const auto bytes = content(0, 8);
  test.sim->fail_work();
  test.sim->set_delay(100ms);  // it fails behind the next call, which a device that is away would refuse
  test.write(blocks, bytes);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST((code_of(test.session->flush()) == error_code::system));
  BOOST_TEST(test.resident(keys) == 0U);
  BOOST_TEST(must(test.session->stats()).reservations == 8U);  // nobody may write there before the session has ended
  BOOST_TEST((code_of(test.session->commit_after(blocks, test.where)) == error_code::closed));
  const auto others = keys_of(100, 4);
  auto plain = content(100, 4);
  BOOST_TEST(test.session->put(batch_of(others), 0, std::nullopt, run_of(plain, 4)).stored == 4U);  // by the processor
  must(test.session->close());
}

BOOST_AUTO_TEST_CASE(only_the_device_that_the_session_uses_may_work_on_its_blocks) {
  fixture test;
  BOOST_TEST((code_of(test.session->release_after({}, test.where)) == error_code::invalid_argument));
  BOOST_TEST((code_of(test.session->commit_after({}, test.where)) == error_code::invalid_argument));
  BOOST_TEST(test.owner.session().header().device_writes.load() == 0U);
  must(test.session->use_device(test.sim));
  must(test.session->use_device(test.sim));
  BOOST_TEST(test.owner.session().header().device_writes.load() == 1U);
  const auto other = std::make_shared<sim_device>();
  BOOST_TEST((code_of(test.session->use_device(other)) == error_code::invalid_argument));
  BOOST_TEST(
      (code_of(test.session->release_after({}, {other, must(other->make_stream())})) == error_code::invalid_argument));
  const std::uint32_t never_held = 3;
  BOOST_TEST((code_of(test.session->release_after({&never_held, 1}, test.where)) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(slabs_are_registered_before_and_after_the_device_is_known_and_given_back) {
  fixture test;
  const auto keys = keys_of(0, 1);
  auto bytes = content(0, 1);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 1)).status);
  BOOST_TEST(test.sim->registered_bytes() == 0U);
  BOOST_TEST(must(test.session->stats()).bytes_registered == 0U);
  must(test.session->use_device(test.sim));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).slabs_registered == 1U; }));
  BOOST_TEST(test.sim->registered_bytes() == test.owner.blocks() * part_bytes);
  test.session.reset();
  BOOST_TEST(test.sim->registered_bytes() == 0U);

  fixture later;
  must(later.session->use_device(later.sim));
  must(later.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 1)).status);
  BOOST_TEST(later.comes([&] { return must(later.session->stats()).slabs_registered == 1U; }));
}

BOOST_AUTO_TEST_CASE(a_retired_slab_is_given_back_while_nobody_asks_for_another) {
  fixture test;
  const auto keys = keys_of(0, 1);
  auto bytes = content(0, 1);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 1)).status);
  must(test.session->use_device(test.sim));
  BOOST_TEST(test.comes([&] { return test.sim->registered_bytes() != 0; }));
  auto& state = test.owner.versions().slab(testing::local_owner::slab_index)->state;
  state.store(static_cast<std::uint32_t>(memory::slab_state::retired));
  BOOST_TEST(test.comes([&] { return test.sim->registered_bytes() == 0; }));
  BOOST_TEST(must(test.session->stats()).slabs_mapped == 0U);
}

BOOST_AUTO_TEST_CASE(a_slab_that_cannot_be_registered_is_counted_and_used_all_the_same) {
  fixture test;
  test.sim->set_registration_refused(true);
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 4);
  const auto blocks = test.reserved(keys);
  const auto bytes = content(0, 4);
  test.write(blocks, bytes);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST(must(test.session->flush()) == 4U);
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).slabs_refused == 1U; }));
  BOOST_TEST(must(test.session->stats()).slabs_registered == 0U);
}

BOOST_AUTO_TEST_CASE(pins_end_behind_their_event_while_commits_wait_for_a_silent_node) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto present = keys_of(0, 4);
  auto bytes = content(0, 4);
  must(test.session->put(batch_of(present), 0, std::nullopt, run_of(bytes, 4)).status);
  std::vector<client::held_block> held(4);
  BOOST_TEST(must(test.session->acquire(batch_of(present), 0, held)) == 4U);
  const auto blocks = test.reserved(keys_of(100, 4));
  test.node.be_silent(true);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).waiting_for_device == 1U; }));
  std::vector<std::uint32_t> slots;
  for (const auto& each : held) slots.push_back(each.slot);
  must(test.session->release_after(slots, test.where));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).pins_in_use == 0U; }));
  test.node.be_silent(false);
}

BOOST_AUTO_TEST_CASE(a_close_does_not_wait_for_a_node_that_is_silent_when_the_device_is_done) {
  fixture test;
  must(test.session->use_device(test.sim));
  const auto blocks = test.reserved(keys_of(0, 4));
  test.node.be_silent(true);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST(test.comes([&] { return !test.session->device_works(); }));
  must(test.session->close());
  BOOST_TEST(!test.session->device_works());
}

BOOST_AUTO_TEST_CASE(a_close_waits_for_the_device_but_not_for_ever_and_gives_nothing_back_then) {
  fixture test(100ms);
  must(test.session->use_device(test.sim));
  const auto keys = keys_of(0, 4);
  const auto blocks = test.reserved(keys);
  gate closed(*test.sim);
  closed.hold(test.where.stream);
  must(test.session->commit_after(blocks, test.where));
  BOOST_TEST((code_of(test.session->flush()) == error_code::deadline_exceeded));
  BOOST_TEST((code_of(test.session->close()) == error_code::deadline_exceeded));
  BOOST_TEST(test.node.released() == 0U);
  const std::byte* const block = blocks[0].data;
  test.session.reset();  // what a device may still write stays mapped
  BOOST_TEST((*static_cast<const volatile std::byte*>(block) == std::byte{0}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace session_device_test
