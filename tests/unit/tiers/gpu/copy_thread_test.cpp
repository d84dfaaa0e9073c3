// Copies begun on a thread of their own: by a driver that does what it should, and by one that does not return.
#include "tiers/gpu/copy_thread.hpp"

#include <boost/test/unit_test.hpp>

#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

#include "tests/support/wrapped_sim.hpp"

namespace copy_thread_test {

using namespace cenote;
using gpu::copy_end;
using gpu::copy_way;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t bytes = 8192;
constexpr auto limit = 60s;

/// A driver that keeps who copies until it is let go.
class keeping_device final : public testing::wrapped_sim {
 public:
  result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override {
    std::unique_lock lock(mutex_);
    keeps_now_ = keeps_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !keeps_; });
    keeps_now_ = false;
    return wrapped_sim::copy(on, runs);
  }
  void keep(bool what) {
    const std::lock_guard lock(mutex_);
    keeps_ = what;
    changed_.notify_all();
  }
  void wait_until_it_keeps() {
    std::unique_lock lock(mutex_);
    BOOST_REQUIRE(changed_.wait_for(lock, limit, [&] { return keeps_now_; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool keeps_ = false;
  bool keeps_now_ = false;
};

struct fixture {
  std::shared_ptr<keeping_device> device = std::make_shared<keeping_device>();
  std::vector<std::byte> slab = std::vector<std::byte>(bytes, std::byte{1});
  device_memory there = std::move(*device->make(bytes));
  gpu::copy_thread copies;

  std::future<copy_end> begin(copy_way way) {
    auto ended = std::make_shared<std::promise<copy_end>>();
    const bool is_up = way == copy_way::up;
    copies.begin(way, {{is_up ? there.mapping.get() : slab.data(), is_up ? slab.data() : there.mapping.get(), bytes}},
                 {slab}, [ended](copy_end how) { ended->set_value(how); });
    return ended->get_future();
  }
  static copy_end end_of(std::future<copy_end> one) {
    BOOST_REQUIRE((one.wait_for(limit) == std::future_status::ready));
    return one.get();
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(copy_thread, fixture)

BOOST_AUTO_TEST_CASE(bytes_go_up_and_come_down_and_the_slab_is_registered_once) {
  copies.open(device);
  BOOST_TEST((end_of(begin(copy_way::up)) == copy_end::done));
  BOOST_TEST(device->registered_bytes() == bytes);
  slab.assign(bytes, std::byte{0});
  BOOST_TEST((end_of(begin(copy_way::down)) == copy_end::done));
  BOOST_TEST((slab == std::vector<std::byte>(bytes, std::byte{1})));
  BOOST_TEST(device->registered_bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(memory_that_goes_is_not_the_devices_any_more) {
  copies.open(device);
  end_of(begin(copy_way::up));
  std::vector<std::byte> other(bytes);
  copies.forget(other);
  BOOST_TEST(device->registered_bytes() == bytes);
  copies.forget(slab);
  BOOST_TEST(device->registered_bytes() == 0U);
  end_of(begin(copy_way::up));
  BOOST_TEST(device->registered_bytes() == bytes);
  copies.close();
  BOOST_TEST(device->registered_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_device_that_registers_nothing_copies_all_the_same) {
  device->sim.set_registration_refused(true);
  copies.open(device);
  BOOST_TEST((end_of(begin(copy_way::up)) == copy_end::done));
}

BOOST_AUTO_TEST_CASE(without_a_device_copies_are_refused) {
  BOOST_TEST((end_of(begin(copy_way::up)) == copy_end::refused));
}

BOOST_AUTO_TEST_CASE(a_driver_that_does_not_return_keeps_nobody_who_begins_a_copy) {
  copies.open(device);
  device->keep(true);
  auto first = begin(copy_way::up);
  device->wait_until_it_keeps();
  auto second = begin(copy_way::up);  // comes back
  BOOST_TEST((first.wait_for(0s) == std::future_status::timeout));
  device->keep(false);
  BOOST_TEST((end_of(std::move(first)) == copy_end::done));
  BOOST_TEST((end_of(std::move(second)) == copy_end::done));
}

BOOST_AUTO_TEST_CASE(who_gives_memory_up_waits_once_for_a_driver_that_does_not_return) {
  copies.open(device);
  device->keep(true);
  auto first = begin(copy_way::up);
  device->wait_until_it_keeps();
  copies.forget(slab);  // in vain
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) copies.forget(slab);
  BOOST_TEST((std::chrono::steady_clock::now() - begun < 100 * gpu::copy_thread::patience));
  device->keep(false);
  BOOST_TEST((end_of(std::move(first)) == copy_end::done));
}

BOOST_AUTO_TEST_CASE(a_thread_that_its_driver_keeps_stays_behind) {
  copies.open(device);
  device->keep(true);
  auto kept = begin(copy_way::up);
  device->wait_until_it_keeps();
  copies.close();
  BOOST_TEST((kept.wait_for(0s) == std::future_status::timeout));
  device->keep(false);  // the thread goes, and touches what it has itself
  BOOST_TEST((end_of(std::move(kept)) == copy_end::done));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace copy_thread_test
