// A Redis backend under test, with calls that wait for their answers.
#pragma once

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/numbered_identity.hpp"
#include "tests/support/redis_server.hpp"
#include "tiers/remote/redis_backend.hpp"

namespace cenote::remote {

inline const numbered_identity some_identity = 0xabcdef;

inline block_name name_of(std::uint64_t number, const numbered_identity& identity = some_identity) {
  std::array<std::byte, 32> key{};
  std::memcpy(key.data(), &number, sizeof(number));
  return {.identity = identity, .group = 1, .full = full_key(key)};
}

/// Bytes that no other block has.
inline std::vector<std::byte> block_of(std::uint64_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = number * 0x9e3779b97f4a7c15ULL + 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    bytes[i] = static_cast<std::byte>(state >> 56U);
  }
  return bytes;
}

/// One backend and what it said. The calls of the test wait, with a limit ten times what was promised.
class backend_under_test {
 public:
  explicit backend_under_test(const std::string& url, const std::function<void(redis_options&)>& change = {},
                              std::string state = {}, std::function<void(instance_identity)> cleared = {},
                              removal_book removals = {})
      : state_(state.empty() ? folder_.path() : std::move(state)) {
    redis_options options;
    const auto parsed = redis::parse_server_url(url);
    BOOST_REQUIRE_MESSAGE(parsed.has_value(), url);
    options.url = *parsed;
    options.state = state_;
    options.timeout = std::chrono::seconds(3);
    options.first_back_off = std::chrono::milliseconds(20);
    options.last_back_off = std::chrono::milliseconds(100);
    if (change) change(options);
    auto made = redis_backend::open(std::move(options),
                                    {.put = [this](auto some) { note(puts_, some); },
                                     .got = [this](auto some) { note(gets_, some); },
                                     .standing = [this](auto stands) { note(stands); },
                                     .cleared = std::move(cleared),
                                     .on_exception = [this](const auto&) { ++exceptions_; }},
                                    std::move(removals));
    BOOST_REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.error().message()));
    backend_ = std::move(*made);
  }
  ~backend_under_test() {
    backend_->stop();
    BOOST_TEST(exceptions_ == 0);
    BOOST_TEST(twice_ == 0);
  }

  [[nodiscard]] redis_backend& operator*() noexcept { return *backend_; }
  [[nodiscard]] redis_backend* operator->() noexcept { return backend_.get(); }

  std::uint64_t begin_put(std::uint64_t number, std::span<std::byte> memory,
                          const numbered_identity& identity = some_identity) {
    backend_->put({{.token = ++token_, .name = name_of(number, identity), .memory = memory}});
    return token_;
  }
  std::uint64_t begin_get(std::uint64_t number, std::span<std::byte> memory,
                          const numbered_identity& identity = some_identity) {
    backend_->get({{.token = ++token_, .name = name_of(number, identity), .memory = memory}});
    return token_;
  }
  /// Offers what was stored at `start` or later, when the place was away.
  item_result put_missed(std::uint64_t number, std::chrono::steady_clock::time_point start) {
    auto bytes = block_of(number, 4096);
    return put_outcome(begin_put_missed(number, bytes, start));
  }
  std::uint64_t begin_put_missed(std::uint64_t number, std::span<std::byte> memory,
                                 std::chrono::steady_clock::time_point start) {
    backend_->put({{.token = ++token_, .name = name_of(number), .memory = memory, .missed = start}});
    return token_;
  }
  item_result put_outcome(std::uint64_t token) { return outcome(puts_, token); }
  item_result get_outcome(std::uint64_t token) { return outcome(gets_, token); }

  item_result put(std::uint64_t number, std::size_t size = 4096, const numbered_identity& identity = some_identity) {
    auto bytes = block_of(number, size);
    return put_outcome(begin_put(number, bytes, identity));
  }
  /// Also fails the test when `done` comes with other bytes.
  item_result get(std::uint64_t number, std::size_t size = 4096, const numbered_identity& identity = some_identity) {
    std::vector<std::byte> bytes(size);
    const auto what = get_outcome(begin_get(number, bytes, identity));
    if (what == item_result::done) BOOST_REQUIRE(bytes == block_of(number, size));
    return what;
  }
  presence locate(const std::vector<std::uint64_t>& numbers,
                  std::chrono::milliseconds patience = std::chrono::seconds(60),
                  const numbered_identity& identity = some_identity) {
    std::vector<block_name> names;
    for (const auto each : numbers) names.push_back(name_of(each, identity));
    std::promise<presence> told;
    backend_->locate(std::move(names), patience, [&](presence found) { told.set_value(std::move(found)); });
    return told.get_future().get();
  }
  result<std::uint64_t> drop(const std::vector<std::uint64_t>& numbers,
                             const numbered_identity& identity = some_identity) {
    std::vector<block_key> keys;
    for (const auto each : numbers) keys.push_back(name_of(each).key());
    std::promise<result<std::uint64_t>> told;
    backend_->drop(identity, std::move(keys), [&](auto count) { told.set_value(std::move(count)); });
    return told.get_future().get();
  }
  result<void> clear(const numbered_identity& identity = some_identity) {
    std::promise<result<void>> told;
    backend_->clear(identity, [&](auto cleared) { told.set_value(std::move(cleared)); });
    return told.get_future().get();
  }

  /// Removals and clears that wait, and the servers that have not confirmed one of them.
  std::pair<std::uint64_t, std::uint64_t> count_unconfirmed(const numbered_identity& identity = some_identity) {
    std::promise<unconfirmed_removals> told;
    backend_->count_unconfirmed(identity, [&](const auto& counted) { told.set_value(counted); });
    const auto counted = told.get_future().get();
    return {counted.removals, counted.places};
  }
  bool is_confirmed_in_time() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (count_unconfirmed().first > 0 || backend_->removals().unconfirmed > 0) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  /// Waits until the backend last said that the place answers, or does not; gives the text of the latter.
  std::string wait_until(bool stands) {
    std::unique_lock lock(mutex_);
    BOOST_REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60),
                                    [&] { return standing_ && standing_->has_value() == stands; }));
    return stands ? "" : standing_->error().message();
  }
  /// Puts or gets `number` until the answer is `wanted`.
  bool gets_to_be(item_result wanted, const std::function<item_result()>& call) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < until) {
      if (call() == wanted) return true;
    }
    return false;
  }
  /// Counts are told at the end of the backend's turn, which may be after an answer.
  bool counts_until(const std::function<bool(const redis_counts&)>& wanted) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!wanted(backend_->counts())) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }
  [[nodiscard]] std::size_t answers() {
    const std::lock_guard lock(mutex_);
    return puts_.size() + gets_.size();
  }

 private:
  using outcomes = std::map<std::uint64_t, item_result>;

  void note(outcomes& into, const std::vector<item_outcome>& some) {
    const std::lock_guard lock(mutex_);
    for (const item_outcome& each : some) {
      if (!into.emplace(each.token, each.what).second) ++twice_;
    }
    changed_.notify_all();
  }
  void note(result<void> stands) {
    const std::lock_guard lock(mutex_);
    standing_ = std::move(stands);
    changed_.notify_all();
  }
  item_result outcome(outcomes& of, std::uint64_t token) {
    std::unique_lock lock(mutex_);
    BOOST_REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return of.contains(token); }));
    return of[token];
  }

  test::scratch_folder folder_;
  std::string state_;
  std::mutex mutex_;
  std::condition_variable changed_;
  outcomes puts_, gets_;
  std::optional<result<void>> standing_;
  int twice_ = 0;
  std::atomic<int> exceptions_ = 0;
  std::uint64_t token_ = 0;
  std::unique_ptr<redis_backend> backend_;
};

inline std::ostream& operator<<(std::ostream& out, item_result what) {
  constexpr std::array names{"done", "missing", "full", "wrong", "unreachable", "refused"};
  return out << names.at(static_cast<std::size_t>(what));
}

}  // namespace cenote::remote
