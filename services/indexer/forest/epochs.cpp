#include "services/indexer/forest/epochs.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <thread>

namespace cenote::indexer {

std::optional<std::size_t> epoch_table::claim() noexcept {
  for (std::size_t place = 0; place < most_readers; ++place) {
    if (places_[place].is_taken.exchange(true, std::memory_order_acq_rel)) continue;
    std::size_t known = most_taken_.load(std::memory_order_relaxed);
    while (known < place + 1 && !most_taken_.compare_exchange_weak(known, place + 1, std::memory_order_seq_cst)) {
    }
    return place;
  }
  return std::nullopt;
}

std::uint64_t epoch_table::advance() noexcept {
  std::uint64_t oldest = current() + 1;
  current_.store(oldest, std::memory_order_seq_cst);
  fence();
  const std::size_t count = most_taken_.load(std::memory_order_seq_cst);
  for (std::size_t place = 0; place < count; ++place) {
    const std::uint64_t entered = places_[place].entered.load(std::memory_order_seq_cst);
    if (entered != 0) oldest = std::min(oldest, entered);
  }
  return oldest;
}

void retirement_list::add(const retired_thing& thing) noexcept {
  if (things_.size() == things_.capacity()) reclaim();
  for (;;) {
    try {
      things_.push_back(thing);
      bytes_ += thing.bytes;
      blocks_ += thing.extra;
      return;
    } catch (const std::bad_alloc&) {
      wait();
    }
  }
}

// Readers are within their questions, which are short; one whose thread was displaced needs the processor, which a
// thread that only yields may keep from one of less priority.
void retirement_list::wait() noexcept {
  constexpr unsigned most_yields = 64;
  if (++idle_waits_ <= most_yields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const std::size_t waiting = size();
  reclaim();
  if (size() < waiting) idle_waits_ = 0;
}

void retirement_list::reclaim() noexcept {
  safe_ = epochs_.advance();
  while (const auto thing = take()) reuse_(owner_, *thing);
  things_.erase(things_.begin(), things_.begin() + static_cast<std::ptrdiff_t>(first_));
  first_ = 0;
}

void retirement_list::end() noexcept {
  safe_ = std::numeric_limits<std::uint64_t>::max();
  while (const auto thing = take()) reuse_(owner_, *thing);
}

std::optional<retired_thing> retirement_list::take() noexcept {
  if (first_ == things_.size() || things_[first_].epoch >= safe_) return std::nullopt;
  bytes_ -= things_[first_].bytes;
  blocks_ -= things_[first_].extra;
  return things_[first_++];
}

}  // namespace cenote::indexer
