#include "services/indexer/placement/payload_placer.hpp"

#include <chrono>

namespace cenote::indexer {

result<void> payload_placer::open(publisher_id publisher, const publisher_identity& identity) {
  if (auto opened = blocks_.open(publisher, identity); !opened) return opened;
  adapters_.insert_or_assign(publisher, event_adapter(identity.engine));
  return {};
}

batch_effect payload_placer::apply(publisher_id publisher, std::string_view topic, std::span<const std::byte> payload) {
  const auto adapter = adapters_.find(publisher);
  if (adapter == adapters_.end()) return {};
  batch_effect effect;
  if (adapter->second.parse(topic, payload, batch_)) {
    const placement_effect placed = blocks_.apply(publisher, batch_);
    effect = {.is_all_cleared = placed.is_all_cleared,
              .is_parent_unknown = placed.is_parent_unknown,
              .is_unread = batch_.unread_removals > 0};
  } else {
    ++bad_batches_;
    effect.is_unread = true;
  }
  batch_.trim();
  return effect;
}

void payload_placer::close(publisher_id publisher) {
  if (const placed_publisher* const closed = blocks_.find(publisher)) closed_ += closed->counters;
  blocks_.close(publisher);
  adapters_.erase(publisher);
}

void payload_placer::set_clock(feed_time now) noexcept {
  constexpr std::chrono::milliseconds step{50};
  index_.advance_clock(static_cast<std::uint32_t>(1 + now.time_since_epoch() / step));
}

void payload_placer::sweep() noexcept {
  constexpr std::size_t swept_runs = 65'536;
  (void)index_.sweep(swept_runs);
  index_.reclaim();
}

placement_counters payload_placer::counters() const noexcept {
  placement_counters sum = closed_;
  for (const auto& [publisher, adapter] : adapters_) sum += blocks_.find(publisher)->counters;
  return sum;
}

}  // namespace cenote::indexer
