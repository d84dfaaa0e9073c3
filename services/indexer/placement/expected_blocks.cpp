#include "services/indexer/placement/expected_blocks.hpp"

#include <algorithm>

namespace cenote::indexer {

namespace {

holder_kind kind_of_generation(std::size_t generation) noexcept {
  return kind_of(expected_slot, static_cast<medium_number>(generation));
}

}  // namespace

std::chrono::nanoseconds expected_blocks::width() const noexcept {
  return std::max<std::chrono::nanoseconds>(ttl_ / (generations - 1), std::chrono::milliseconds(1));
}

bool expected_blocks::add(std::string_view pod, model_number model, std::span<const std::uint64_t> keys, feed_time now,
                          std::chrono::milliseconds ttl) {
  if (ttl_.count() <= 0 || ttl.count() <= 0) return false;
  advance(now);
  // A shorter time is an earlier generation, which ends sooner.
  constexpr auto most = static_cast<std::int64_t>(generations) - 1;
  const std::int64_t ticks = std::min<std::int64_t>((ttl - std::chrono::nanoseconds(1)) / width() + 1, most);
  const auto generation = static_cast<std::size_t>((tick_ + ticks + 1) % static_cast<std::int64_t>(generations));
  const holder_name name{.pod = pod, .model = model, .rank = 0, .kind = kind_of_generation(generation)};
  const bool is_new = index_.holders().find(name) == 0;
  const auto opened = index_.holders().open(name);
  if (!opened) return false;
  if (is_new) {
    holders_[generation].push_back(*opened);
    ++count_;
  }
  return index_.store(no_domain, no_block, keys, {}, *opened).value_or(0) == keys.size();
}

void expected_blocks::end(std::string_view pod, model_number model, std::span<const block_number> blocks) noexcept {
  if (count_ == 0) return;
  for (std::size_t generation = 0; generation < generations; ++generation) {
    if (holders_[generation].empty()) continue;
    const holder present =
        index_.holders().find({.pod = pod, .model = model, .rank = 0, .kind = kind_of_generation(generation)});
    if (present != 0) index_.remove(blocks, present);
  }
}

void expected_blocks::end(std::string_view pod, model_number model) noexcept {
  if (count_ == 0) return;
  for (std::size_t generation = 0; generation < generations; ++generation) {
    const holder present =
        index_.holders().find({.pod = pod, .model = model, .rank = 0, .kind = kind_of_generation(generation)});
    if (present == 0) continue;
    index_.clear(present);
    count_ -= std::erase(holders_[generation], present);
  }
}

void expected_blocks::advance(feed_time now) {
  const std::int64_t tick = now.time_since_epoch() / width();
  if (tick == tick_) return;
  // The generation that begins now is the one that began six ticks ago; all ended ticks between go, too.
  const std::int64_t steps = tick < tick_ ? static_cast<std::int64_t>(generations) : tick - tick_;
  for (std::int64_t i = 1; i <= std::min(steps, static_cast<std::int64_t>(generations)); ++i) {
    auto& ended = holders_[static_cast<std::size_t>((tick_ + i) % static_cast<std::int64_t>(generations))];
    for (const holder each : ended) index_.clear(each);
    count_ -= ended.size();
    ended.clear();
  }
  tick_ = tick;
}

}  // namespace cenote::indexer
