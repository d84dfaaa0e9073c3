#include "services/indexer/forest/epochs.hpp"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

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
  if (first_ == things_.size()) {
    things_.clear();
    first_ = 0;
  } else if (first_ > things_.size() / 2) {
    things_.erase(things_.begin(), things_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  for (;;) {
    try {
      things_.push_back(thing);
      bytes_ += thing.bytes;
      return;
    } catch (const std::bad_alloc&) {  // memory of the oldest is given back in place, which makes room for this one
      advance();
      const auto end = std::ranges::find_if(things_, [&](const retired_thing& one) { return one.epoch >= safe_; });
      for (auto one = things_.begin() + static_cast<std::ptrdiff_t>(first_); one < end; ++one) {
        if (one->kind != retired_kind::memory) continue;
        budget_.release(std::exchange(one->memory, nullptr), one->bytes);
        bytes_ -= one->bytes;
      }
      things_.erase(things_.begin(), things_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
      std::erase_if(things_,
                    [](const retired_thing& one) { return one.kind == retired_kind::memory && one.memory == nullptr; });
      std::this_thread::yield();
    }
  }
}

std::optional<retired_thing> retirement_list::take() noexcept {
  if (first_ == things_.size() || things_[first_].epoch >= safe_) return std::nullopt;
  bytes_ -= things_[first_].bytes;
  return things_[first_++];
}

}  // namespace cenote::indexer
