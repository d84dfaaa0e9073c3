#include "worker/publisher/event_ring.hpp"

#include <utility>

namespace cenote::publishing {

void event_ring::add(numbered_batch batch) {
  bytes_ += batch.payload->size();
  batches_.push_back(std::move(batch));
  while (batches_.size() > limits_.batches || (bytes_ > limits_.bytes && batches_.size() > 1)) {
    if (batches_.front().payload) bytes_ -= batches_.front().payload->size();
    batches_.pop_front();
    ++first_;
  }
}

void event_ring::forget(const shared_text& topic) {
  for (numbered_batch& each : batches_) {
    if (each.topic != topic) continue;
    bytes_ -= each.payload->size();
    each = {};
  }
}

}  // namespace cenote::publishing
