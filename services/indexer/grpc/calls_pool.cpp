#include "services/indexer/grpc/calls_pool.hpp"

#include <utility>

namespace cenote::indexer {

calls_pool::calls_pool(std::vector<std::unique_ptr<indexer_calls>> all)
    : places_(all.size()), free_(static_cast<std::ptrdiff_t>(all.size())) {
  for (std::size_t i = 0; i < all.size(); ++i) places_[i].calls = std::move(all[i]);
}

calls_pool::lease calls_pool::take() {
  free_.acquire();
  for (;;) {
    for (call_place& each : places_) {
      if (!each.is_taken.exchange(true, std::memory_order_acquire)) return {*this, each};
    }
  }
}

void calls_pool::give_back(call_place& place) noexcept {
  place.is_taken.store(false, std::memory_order_release);
  free_.release();
}

}  // namespace cenote::indexer
