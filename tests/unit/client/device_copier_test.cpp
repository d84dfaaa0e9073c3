// Copies of put and get through the stage, and what becomes of the stage when the device does not end them.
#include "client/device_copier.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "device/sim.hpp"
#include "tests/support/wrapped_sim.hpp"

namespace device_copier_test {

using namespace cenote;
using namespace std::chrono_literals;
using client::device_copier;

namespace {

constexpr auto patience = 60s;
constexpr auto soon = 50ms;
constexpr std::size_t odd_bytes = 9 * device_copier::stage_bytes + 4097;  // several stages, the last not full

auto in(std::chrono::nanoseconds time) {
  return std::chrono::steady_clock::now() + time;
}

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>(i * 7 + i / 4096 + i / 1'000'003);  // no two stages alike
  return made;
}

struct fixture {
  fixture() { memory = sim->make(odd_bytes).value(); }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;
  ~fixture() = default;

  device_memory memory;  // before the device: it may still copy when the test is over
  std::shared_ptr<sim_device> sim = std::make_shared<sim_device>();
  device_copier copier{sim};

  client::copy_outcome write(const std::vector<std::byte>& from, std::chrono::nanoseconds limit = patience) {
    const copy_run run{memory.mapping.get(), from.data(), from.size()};
    return copier.to_device({&run, 1}, in(limit));
  }
  client::copy_outcome read(std::vector<std::byte>& to, std::chrono::nanoseconds limit = patience) {
    const copy_run run{to.data(), memory.mapping.get(), to.size()};
    return copier.from_device({&run, 1}, in(limit));
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(copiers, fixture)

BOOST_AUTO_TEST_CASE(runs_of_any_length_arrive_whole) {
  const auto bytes = counted(odd_bytes);
  std::vector<copy_run> runs;
  for (std::size_t at = 0, length = 1; at < bytes.size();
       at += length, length = std::min(length * 3, bytes.size() - at)) {
    length = std::min(length, bytes.size() - at);
    runs.push_back({memory.mapping.get() + at, bytes.data() + at, length});
    if (at % 2 == 0) runs.push_back({memory.mapping.get(), bytes.data(), 0});
  }
  BOOST_TEST(copier.to_device(runs, in(patience)).status.has_value());
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(read(back).status.has_value());
  BOOST_TEST((back == bytes));
  BOOST_TEST(copier.to_device({}, in(patience)).status.has_value());
}

/// A device that is faster than any processor: when it is given the next piece, it has ended the last one.
class fast_device final : public testing::wrapped_sim {
 public:
  result<event_ref> record(const stream_ref& on) override {
    auto event = wrapped_sim::record(on);
    if (event) static_cast<void>(await(*this, *event, patience));
    return event;
  }
};

BOOST_AUTO_TEST_CASE(what_a_fast_device_has_brought_is_taken_before_its_stage_is_used_again) {
  auto fast = std::make_shared<fast_device>();
  auto there = fast->make(odd_bytes).value();
  device_copier through(fast);
  const auto bytes = counted(odd_bytes);
  const copy_run down{there.mapping.get(), bytes.data(), bytes.size()};
  BOOST_TEST(through.to_device({&down, 1}, in(patience)).status.has_value());
  std::vector<std::byte> back(bytes.size());
  const copy_run up{back.data(), there.mapping.get(), back.size()};
  BOOST_TEST(through.from_device({&up, 1}, in(patience)).status.has_value());
  BOOST_TEST((back == bytes));
}

BOOST_AUTO_TEST_CASE(a_call_that_waits_for_a_device_ends_when_its_session_does) {
  sim->lose_event(1);
  std::thread closer([&] { copier.stop(); });
  const auto outcome = write(counted(odd_bytes), patience);
  closer.join();
  BOOST_TEST(!outcome.status.has_value());
  BOOST_TEST((outcome.status.error().code() == error_code::closed));
}

BOOST_AUTO_TEST_CASE(the_stage_is_registered_and_given_back) {
  BOOST_TEST(write(counted(odd_bytes)).status.has_value());
  BOOST_TEST(sim->registered_bytes() == 2 * device_copier::stage_bytes);
  {
    device_copier other(sim);
    const std::byte from{};
    const copy_run run{memory.mapping.get(), &from, 1};
    BOOST_TEST(other.to_device({&run, 1}, in(patience)).status.has_value());
    BOOST_TEST(sim->registered_bytes() == 3 * device_copier::stage_bytes);
  }
  BOOST_TEST(sim->registered_bytes() == 2 * device_copier::stage_bytes);
}

BOOST_AUTO_TEST_CASE(a_device_that_registers_nothing_copies_all_the_same) {
  sim->set_registration_refused(true);
  const auto bytes = counted(odd_bytes);
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(write(bytes).status.has_value());
  BOOST_TEST(read(back).status.has_value());
  BOOST_TEST((back == bytes));
}

BOOST_AUTO_TEST_CASE(a_copy_whose_event_is_lost_ends_at_its_deadline_and_what_it_went_through_is_not_used_again) {
  const auto bytes = counted(4096);
  BOOST_TEST(write(bytes).status.has_value());
  sim->lose_next_event();
  std::vector<std::byte> back(bytes.size());
  const auto lost = read(back, soon);
  BOOST_REQUIRE(!lost.status);
  BOOST_TEST((lost.status.error().code() == error_code::deadline_exceeded));
  BOOST_TEST(lost.begun);
  BOOST_REQUIRE(lost.last);
  BOOST_TEST((sim->look(lost.last) == event_state::pending));
  BOOST_TEST((back == std::vector<std::byte>(bytes.size())));  // nobody writes there, now or later
  BOOST_TEST(read(back).status.has_value());
  BOOST_TEST((back == bytes));
  BOOST_TEST(sim->registered_bytes() == 2 * device_copier::stage_bytes);
}

BOOST_AUTO_TEST_CASE(a_device_that_keeps_all_stages_gets_no_more_of_them) {
  device_memory own;  // before the device
  const auto device = std::make_shared<testing::silent_device>();
  own = device->make(4096).value();
  device_copier other(device);
  const std::vector<std::byte> bytes(4096);
  const copy_run run{own.mapping.get(), bytes.data(), bytes.size()};
  device->is_silent = true;
  std::uint64_t kept = 0;
  for (;; ++kept) {
    const auto how = other.to_device({&run, 1}, in(patience));
    BOOST_REQUIRE(!how.status);
    if (how.status.error().code() == error_code::limit_exceeded) {
      BOOST_TEST(!how.begun);
      break;
    }
    BOOST_TEST(how.begun);
    BOOST_TEST(!how.last);  // nobody tells
    BOOST_REQUIRE(kept < 100);
  }
  BOOST_TEST(kept > 1);
  BOOST_TEST(device->registered_bytes() == kept * device_copier::stage_bytes);
}

BOOST_AUTO_TEST_CASE(a_copy_that_ends_late_gives_its_stage_back) {
  const auto bytes = counted(4096);
  sim->set_delay(20ms);
  for (int i = 0; i < 50; ++i) {
    const auto late = write(bytes, 1us);
    if (!late.status && late.begun) BOOST_REQUIRE(await(*sim, late.last, patience));
  }
  sim->set_delay(0us);
  BOOST_TEST(write(bytes).status.has_value());
  BOOST_TEST(sim->registered_bytes() == device_copier::stage_bytes);
}

BOOST_AUTO_TEST_CASE(work_that_fails_is_told_and_so_is_a_device_that_is_away) {
  sim->fail_work(2);
  const auto failed = write(counted(odd_bytes));
  BOOST_REQUIRE(!failed.status);
  BOOST_TEST((failed.status.error().code() == error_code::closed));
  BOOST_TEST(failed.begun);
  const auto refused = write(counted(1));
  BOOST_REQUIRE(!refused.status);
  BOOST_TEST((refused.status.error().code() == error_code::closed));
  BOOST_TEST(!refused.begun);
  BOOST_TEST(!copier.check());
}

BOOST_AUTO_TEST_CASE(nobody_waits_longer_than_it_has_for_its_turn) {
  const auto bytes = counted(4096);
  sim->lose_next_event();
  std::thread first([&] { BOOST_TEST(!write(bytes, 1s).status); });
  while (sim->registered_bytes() == 0) std::this_thread::yield();  // it has its turn
  const auto second = write(bytes, 1ms);
  first.join();
  BOOST_REQUIRE(!second.status);
  BOOST_TEST((second.status.error().code() == error_code::deadline_exceeded));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace device_copier_test
