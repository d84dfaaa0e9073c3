#include "tiers/eviction/mq.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace cenote::eviction {

namespace {
constexpr std::uint64_t standard_lifetime = 10'000;
constexpr std::size_t ghosts_per_block = 4;

template <std::size_t... I>
std::array<block_list, sizeof...(I)> make_queues(block_links& links, std::index_sequence<I...> /*indices*/) {
  return {((void)I, block_list(links))...};
}
}  // namespace

mq::mq(block_links& links, partial_blocks partial) noexcept
    : admits_partial_(partial),
      lifetime_(standard_lifetime),
      queues_(make_queues(links, std::make_index_sequence<queue_count>())) {
  ghosts_.bound(0);
}

void mq::thin(std::uint32_t thinning) {
  lifetime_ = std::max<std::uint64_t>(standard_lifetime / thinning, 1);
}

void mq::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  ghosts_.bound(ghosts_per_block * capacity);
}

std::uint32_t mq::begin_request(const request& request, std::uint32_t /*now*/) {
  partial_.reset();
  if (admits_partial_ == partial_blocks::refused && request.partial && !request.ids.empty())
    partial_ = request.ids.back();
  return 0;
}

bool mq::should_admit(std::uint64_t id, std::uint32_t /*now*/) {
  if (partial_ == id) return false;
  returning_.reset();
  if (const auto uses = ghosts_.take(id)) {
    returning_ = id;
    returning_uses_ = *uses;
  }
  return true;
}

void mq::insert(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  const std::uint32_t uses = returning_ == id ? returning_uses_ : ghosts_.take(id).value_or(0);
  returning_.reset();
  if (size_ >= capacity_) resize(size_ + 1);
  states_.make(block).uses = uses;
  ++size_;
  place(block, 0);
  touch(block, 0);
}

void mq::insert_with_history(std::uint32_t block, std::uint32_t /*then*/, std::uint32_t uses) {
  if (size_ >= capacity_) resize(size_ + 1);
  const std::uint32_t all = std::max(uses, 1U);
  const std::size_t queue = queue_of(all);
  states_.make(block) = {.expires = clock_ + lifetime_, .uses = all, .queue = static_cast<std::uint32_t>(queue)};
  queues_[queue].push_back(block);
  ends_[queue] = {};
  ++size_;
}

void mq::touch(std::uint32_t block, std::uint32_t /*now*/) {
  state& of = states_[block];
  if (of.uses < std::numeric_limits<std::uint32_t>::max()) ++of.uses;
  queues_[of.queue].remove(block);
  place(block, queue_of(of.uses));
  tick();
}

void mq::skip_victim(std::uint32_t block, std::uint32_t /*now*/) {
  std::size_t queue = states_[block].queue;
  queues_[queue].remove(block);
  if (size_ > 1) {  // alone in its queue it would be the victim again: it goes to the next queue that has blocks
    while (queues_[queue].empty()) queue = (queue + 1) % queue_count;
  }
  place(block, queue);
}

void mq::evict(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  ghosts_.push(id, states_[block].uses);
  forget(block);
}

void mq::forget(std::uint32_t block) {
  queues_[states_[block].queue].remove(block);
  --size_;
}

std::optional<std::uint32_t> mq::victim() {
  for (const block_list& queue : queues_) {
    if (!queue.empty()) return queue.back();
  }
  return std::nullopt;
}

/// By the logarithm of the uses.
std::size_t mq::queue_of(std::uint32_t uses) noexcept {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(uses)) - 1, queue_count - 1);
}

void mq::place(std::uint32_t block, std::size_t queue) {
  state& of = states_[block];
  queues_[queue].push_front(block);
  if (ends_[queue].block == block) ends_[queue] = {};
  of.queue = static_cast<std::uint32_t>(queue);
  of.expires = clock_ + lifetime_;
}

/// Time goes on by one; the oldest block of each queue goes down if its lifetime is over.
void mq::tick() {
  ++clock_;
  for (std::size_t queue = 1; queue < queue_count; ++queue) {
    const std::uint32_t oldest = queues_[queue].back();
    if (oldest == block_list::none) continue;
    if (ends_[queue].block != oldest) ends_[queue] = {oldest, states_[oldest].expires};
    if (ends_[queue].expires >= clock_) continue;
    queues_[queue].remove(oldest);
    place(oldest, queue - 1);
  }
}

}  // namespace cenote::eviction
