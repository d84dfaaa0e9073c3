// A queue whose bytes are counted exactly: payloads, and a fixed sum for each entry, so that empty ones are bounded.
#include "services/indexer/feed/waiting_batches.hpp"

#include <algorithm>
#include <utility>

namespace cenote::indexer {

bool waiting_batches::add(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload) {
  if (!batches_.empty() && batches_.back().seq >= seq) return false;
  const std::uint64_t size = payload.bytes.size() + overhead_bytes;
  if (size > limit_ - bytes_ || (total_ != nullptr && size > total_->limit - total_->used)) return false;
  bytes_ += size;
  if (total_ != nullptr) total_->used += size;
  batches_.push_back({seq, fingerprint, ++order_, std::move(payload)});
  return true;
}

held_batch waiting_batches::take_first() {
  held_batch first = std::move(batches_.front());
  batches_.pop_front();
  const std::uint64_t size = first.payload.bytes.size() + overhead_bytes;
  bytes_ -= size;
  if (total_ != nullptr) total_->used -= size;
  return first;
}

std::size_t waiting_batches::drop_below(std::uint64_t end) {
  std::size_t count = 0;
  for (; !batches_.empty() && batches_.front().seq < end; ++count) (void)take_first();
  return count;
}

std::size_t waiting_batches::drop_older(std::uint64_t order) {
  std::size_t count = 0;
  for (; !batches_.empty() && batches_.front().order <= order; ++count) (void)take_first();
  return count;
}

void waiting_batches::clear() {
  while (!batches_.empty()) (void)take_first();
}

const held_batch* waiting_batches::find(std::uint64_t seq) const noexcept {
  const auto found = std::ranges::lower_bound(batches_, seq, {}, &held_batch::seq);
  return found != batches_.end() && found->seq == seq ? &*found : nullptr;
}

}  // namespace cenote::indexer
