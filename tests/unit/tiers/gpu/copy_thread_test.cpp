// Copies begun on a thread of their own: by a driver that does what it should, and by one that does not return.
#include "tiers/gpu/copy_thread.hpp"

#include <boost/test/unit_test.hpp>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/wrapped_sim.hpp"

namespace copy_thread_test {

using namespace cenote;
using gpu::copy_end;
using kind = gpu::copy_end::kind;
using gpu::copy_way;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t bytes = 8192;
constexpr auto limit = 60s;

/// A driver that keeps who copies, or who registers memory, until it is let go.
class keeping_device final : public testing::wrapped_sim {
 public:
  result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override {
    stay(keeps_copies_);
    return wrapped_sim::copy(on, runs);
  }
  result<void> register_host(std::span<std::byte> memory) override {
    stay(keeps_registrations_);
    return wrapped_sim::register_host(memory);
  }
  void keep_copies(bool what) { set(keeps_copies_, what); }
  void keep_registrations(bool what) { set(keeps_registrations_, what); }
  void wait_until_it_keeps() {
    std::unique_lock lock(mutex_);
    BOOST_REQUIRE(changed_.wait_for(lock, limit, [&] { return keeps_now_; }));
  }

 private:
  void set(bool& which, bool what) {
    const std::lock_guard lock(mutex_);
    which = what;
    changed_.notify_all();
  }
  void stay(const bool& keeps) {
    std::unique_lock lock(mutex_);
    keeps_now_ = keeps;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !keeps; });
    keeps_now_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool keeps_copies_ = false, keeps_registrations_ = false;
  bool keeps_now_ = false;
};

struct fixture {
  std::shared_ptr<keeping_device> device = std::make_shared<keeping_device>();
  std::vector<std::byte> slab = std::vector<std::byte>(bytes, std::byte{1});
  device_memory there = std::move(*device->make(bytes));
  gpu::copy_thread copies;

  std::future<kind> begin(copy_way way) {
    auto ended = std::make_shared<std::promise<kind>>();
    const bool is_up = way == copy_way::up;
    copies.begin(way, {{is_up ? there.mapping.get() : slab.data(), is_up ? slab.data() : there.mapping.get(), bytes}},
                 {slab}, [ended](const copy_end& end) { ended->set_value(end.how); });
    return ended->get_future();
  }
  /// The slab, soon.
  bool registers() {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (device->registered_bytes() != bytes && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return device->registered_bytes() == bytes;
  }
  static kind end_of(std::future<kind> one) {
    BOOST_REQUIRE((one.wait_for(limit) == std::future_status::ready));
    return one.get();
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(copy_thread, fixture)

BOOST_AUTO_TEST_CASE(bytes_go_up_and_come_down_and_the_slab_is_registered_once) {
  copies.open(device);
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::done));
  BOOST_TEST(registers());
  slab.assign(bytes, std::byte{0});
  BOOST_TEST((end_of(begin(copy_way::down)) == kind::done));
  BOOST_TEST((slab == std::vector<std::byte>(bytes, std::byte{1})));
  BOOST_TEST(device->registered_bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(memory_that_goes_is_not_the_devices_any_more) {
  copies.open(device);
  end_of(begin(copy_way::up));
  BOOST_TEST(registers());
  std::vector<std::byte> other(bytes);
  copies.forget(other);
  BOOST_TEST(device->registered_bytes() == bytes);
  copies.forget(slab);
  BOOST_TEST(device->registered_bytes() == 0U);
  end_of(begin(copy_way::up));
  BOOST_TEST(registers());
  copies.close();
  BOOST_TEST(device->registered_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_device_that_registers_nothing_copies_all_the_same_and_that_is_told_once) {
  device->sim.set_registration_refused(true);
  std::promise<error> told;
  copies.open(device, [&](const error& why) { told.set_value(why); });
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::done));
  auto why = told.get_future();
  BOOST_REQUIRE((why.wait_for(limit) == std::future_status::ready));
  BOOST_CHECK(why.get().code() == error_code::unsupported);
  copies.forget(slab);
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::done));
}

BOOST_AUTO_TEST_CASE(a_copy_does_not_wait_for_its_slab_to_be_registered) {
  device->keep_registrations(true);
  copies.open(device);
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::done));
  device->wait_until_it_keeps();
  device->keep_registrations(false);
  BOOST_TEST(registers());
}

BOOST_AUTO_TEST_CASE(without_a_device_copies_are_refused) {
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::refused));
}

BOOST_AUTO_TEST_CASE(after_the_end_copies_are_refused_and_nothing_is_forgotten) {
  copies.open(device);
  end_of(begin(copy_way::up));
  copies.close();
  BOOST_TEST((end_of(begin(copy_way::up)) == kind::refused));
  copies.forget(slab);
  copies.close();
}

BOOST_AUTO_TEST_CASE(a_driver_that_does_not_return_keeps_nobody_who_begins_a_copy) {
  copies.open(device);
  device->keep_copies(true);
  auto first = begin(copy_way::up);
  device->wait_until_it_keeps();
  auto second = begin(copy_way::up);  // comes back
  BOOST_TEST((first.wait_for(0s) == std::future_status::timeout));
  device->keep_copies(false);
  BOOST_TEST((end_of(std::move(first)) == kind::done));
  BOOST_TEST((end_of(std::move(second)) == kind::done));
}

BOOST_AUTO_TEST_CASE(who_gives_memory_up_waits_once_for_a_driver_that_does_not_return) {
  copies.open(device);
  device->keep_copies(true);
  auto first = begin(copy_way::up);
  device->wait_until_it_keeps();
  for (int i = 0; i < 1000; ++i) copies.forget(slab);  // the first one in vain; the test would take an hour else
  device->keep_copies(false);
  BOOST_TEST((end_of(std::move(first)) == kind::done));
}

BOOST_AUTO_TEST_CASE(a_thread_that_its_driver_keeps_stays_behind) {
  copies.open(device);
  device->keep_copies(true);
  auto kept = begin(copy_way::up);
  device->wait_until_it_keeps();
  copies.close();
  BOOST_TEST((kept.wait_for(0s) == std::future_status::timeout));
  device->keep_copies(false);  // the thread goes, and touches what it has itself
  BOOST_TEST((end_of(std::move(kept)) == kind::done));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace copy_thread_test
