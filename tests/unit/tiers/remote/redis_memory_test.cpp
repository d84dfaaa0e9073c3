// The Redis backend when there is no memory: each allocation of its thread fails once.
#include <pthread.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string_view>

#include "tests/support/allocations.hpp"
#include "tests/unit/tiers/remote/backend_fixture.hpp"
#include "tests/unit/tiers/remote/fake_redis.hpp"

namespace {

std::atomic<int> allocations_left = 0;  // of the backend's thread, until one fails; 0: none does
thread_local bool is_spared = false;

bool is_to_fail() noexcept {
  if (is_spared) return false;
  std::array<char, 16> name{};
  if (::pthread_getname_np(::pthread_self(), name.data(), name.size()) != 0) return false;
  return std::string_view(name.data()) == "cenote-redis" && allocations_left.fetch_sub(1) == 1;
}

}  // namespace

namespace cenote::remote {

namespace {

/// Notes which tokens were answered; that itself never fails.
struct answered_tokens {
  void note(const std::vector<item_outcome>& some) {
    is_spared = true;
    {
      const std::lock_guard lock(mutex);
      for (const item_outcome& each : some) is_good = tokens.insert(each.token).second && is_good;
      changed.notify_all();
    }
    is_spared = false;
  }
  bool come(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [&] { return tokens.size() == count; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::uint64_t> tokens;
  bool is_good = true;  ///< none was answered twice
};

}  // namespace

BOOST_AUTO_TEST_SUITE(redis_without_memory)

BOOST_AUTO_TEST_CASE(an_allocation_that_fails_on_the_backends_thread_loses_no_token) {
  fake_redis server([](const redis_words&) { return std::nullopt; });
  const test::scratch_folder folder;
  answered_tokens told;
  std::atomic<int> exceptions = 0;
  redis_options options;
  options.url = redis::parse_server_url(server.url()).value();
  options.state = folder.path();
  options.timeout = std::chrono::seconds(20);
  options.first_back_off = std::chrono::milliseconds(1);
  options.last_back_off = std::chrono::milliseconds(1);
  const auto node = redis_backend::open(options, {.put = [&](const auto& some) { told.note(some); },
                                                  .got = [&](const auto& some) { told.note(some); },
                                                  .standing = [](const auto&) {},
                                                  .on_exception = [&](const auto&) { ++exceptions; }});
  BOOST_REQUIRE(node.has_value());
  std::vector<std::byte> from(4096);
  std::vector<std::byte> into(4096);
  std::uint64_t token = 0;
  cenote::test::set_allocation_fault(is_to_fail);
  for (int fails_at = 1; fails_at <= 40; ++fails_at) {
    allocations_left = fails_at;
    for (int i = 0; i < 2; ++i) {
      const auto name = name_of(token, token);  // each with an epoch to be made
      (*node)->put({{.token = ++token, .name = name, .memory = from}});
      (*node)->locate({name}, std::chrono::seconds(1), [](const presence&) {});
      (*node)->get({{.token = ++token, .name = name, .memory = into}});
    }
    BOOST_REQUIRE_MESSAGE(told.come(token), "allocation " << fails_at);
  }
  cenote::test::set_allocation_fault(nullptr);
  (*node)->stop();
  BOOST_TEST(exceptions > 0);
  BOOST_TEST(told.is_good);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
