// Objects for calls, which gRPC's threads borrow.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <semaphore>
#include <string_view>
#include <vector>

#include "services/indexer/http/indexer_calls.hpp"
#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// The calls of one thread at a time, with memory for its question.
struct call_place {
  std::unique_ptr<indexer_calls> calls;
  std::vector<std::string_view> pods;
  extra_key_table extra_keys;
  std::atomic<bool> is_taken{false};
};

/// gRPC has threads of its own, of which the calls know nothing. A thread waits for a place as long as others answer,
/// which do not block; so it must not ask for a second one. Thread-safe.
class calls_pool {
 public:
  class lease {
   public:
    lease(calls_pool& pool, call_place& place) noexcept : pool_(pool), place_(place) {}
    lease(const lease&) = delete;
    lease& operator=(const lease&) = delete;
    ~lease() { pool_.give_back(place_); }

    [[nodiscard]] call_place& operator*() const noexcept { return place_; }
    [[nodiscard]] call_place* operator->() const noexcept { return &place_; }

   private:
    calls_pool& pool_;
    call_place& place_;
  };

  static constexpr std::size_t most_places = 16;  ///< as many threads has gRPC's callback interface at most

  /// One place for each of `all`, at least one.
  explicit calls_pool(std::vector<std::unique_ptr<indexer_calls>> all);

  [[nodiscard]] lease take();

 private:
  void give_back(call_place& place) noexcept;

  std::vector<call_place> places_;
  std::counting_semaphore<> free_;
};

}  // namespace cenote::indexer
