#include "services/manager/index/record_store.hpp"

#include <algorithm>
#include <new>

namespace cenote::manager {

std::uint32_t record_store::make_room() {
  if (unused_ != no_record) return unused_;
  if (bound_ == no_record - 1) throw std::bad_alloc();
  records_.reserve(std::size_t{bound_} + 1);
  live_.reserve(std::size_t{bound_} + 1);
  readable_.store(static_cast<std::uint32_t>(std::min<std::size_t>(records_.capacity(), no_record)),
                  std::memory_order_release);
  return bound_;
}

std::uint32_t record_store::take(const cache_key& key, std::uint32_t parent) noexcept {
  const std::uint32_t number = unused_ != no_record ? unused_ : bound_++;
  index_record& record = entry(number);
  if (number == unused_) unused_ = record.parent;
  record.key_low.store(key.low, std::memory_order_release);
  record.key_high.store(key.high, std::memory_order_release);
  grow_sequence(record);
  record.children = 0;
  record.last_use = 0;
  record.uses = 0;
  record.parent = is_live(parent) ? parent : no_record;
  if (record.parent != no_record) ++entry(record.parent).children;
  live_.insert(number);
  return number;
}

void record_store::release(std::uint32_t record) noexcept {
  live_.erase(record);
  index_record& target = entry(record);
  give_up_parent(target);
  if (target.children == 0) recycle(record);
}

void record_store::give_up_parent(index_record& record) noexcept {
  const std::uint32_t parent = record.parent;
  record.parent = no_record;
  if (parent == no_record) return;
  if (--entry(parent).children == 0 && !is_live(parent)) recycle(parent);
}

void record_store::recycle(std::uint32_t record) noexcept {
  entry(record).parent = unused_;
  unused_ = record;
}

void record_store::add_location(std::uint32_t record, const location& place) {
  index_record& target = entry(record);
  const bool is_full = visit_words(record, [&](std::atomic<std::uint64_t>& word) {
    if (word.load(std::memory_order_relaxed) != 0) return true;
    change(target, word, pack(place));
    return false;
  });
  if (!is_full) return;
  std::uint32_t link = unused_nodes_;
  if (link == 0) {
    nodes_.reserve(std::size_t{node_bound_} + 1);
    link = ++node_bound_;
  } else {
    unused_nodes_ = node(link - 1).next.load(std::memory_order_relaxed);
  }
  overflow_node& fresh = node(link - 1);
  fresh.locations[0].store(pack(place), std::memory_order_release);
  fresh.next.store(target.overflow.load(std::memory_order_relaxed), std::memory_order_release);
  target.overflow.store(link, std::memory_order_release);
  grow_sequence(target);
}

void record_store::drop_empty_node(index_record& record) noexcept {
  std::atomic<std::uint32_t>* origin = &record.overflow;
  for (std::uint32_t link = origin->load(std::memory_order_relaxed); link != 0;) {
    overflow_node& empty = node(link - 1);
    const std::uint32_t next = empty.next.load(std::memory_order_relaxed);
    if (std::ranges::all_of(empty.locations, [](auto& word) { return word.load(std::memory_order_relaxed) == 0; })) {
      origin->store(next, std::memory_order_release);
      grow_sequence(record);
      empty.next.store(unused_nodes_, std::memory_order_release);
      unused_nodes_ = link;
      return;
    }
    origin = &empty.next;
    link = next;
  }
}

}  // namespace cenote::manager
