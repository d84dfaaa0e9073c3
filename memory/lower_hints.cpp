#include "memory/lower_hints.hpp"

#include <algorithm>

namespace cenote::memory {

namespace {

constexpr std::uint64_t tags_of_a_bucket = 15;

std::atomic<std::uint64_t>& bucket_count(std::byte* base) noexcept {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(base + index_area_bytes);
}

/// 0: no lower tier, or nonsense.
std::uint64_t buckets_of(const std::byte* base) noexcept {
  if (base == nullptr) return 0;
  const auto& count = *reinterpret_cast<const std::atomic<std::uint64_t>*>(base + index_area_bytes);
  const std::uint64_t buckets = count.load(std::memory_order_acquire);
  return buckets <= hints::max_buckets ? buckets : 0;
}

}  // namespace

std::uint64_t hints::buckets_for(std::uint64_t keys) noexcept {
  const auto wanted =
      static_cast<std::uint64_t>(static_cast<double>(keys) / load / static_cast<double>(tags_of_a_bucket)) + 1;
  return std::min(wanted, max_buckets);
}

bool hint_reader::none() const noexcept {
  return buckets_of(base_) == 0;
}

bool hint_reader::contains(const block_key& key) const noexcept {
  const std::uint64_t buckets = buckets_of(base_);
  if (buckets == 0) return false;
  const auto* all = reinterpret_cast<const hint_bucket*>(base_ + hints::first_bucket);
  const std::uint32_t tag = hints::tag_of(key);
  const std::uint64_t home = index_reader::home_slot(key, buckets);
  for (std::uint64_t probe = 0; probe < hints::max_probes; ++probe) {
    const hint_bucket& here = all[(home + probe) % buckets];
    for (const auto& each : here.tags) {
      if (each.load(std::memory_order_relaxed) == tag) return true;
    }
    if (probe == 0 && here.elsewhere.load(std::memory_order_relaxed) == 0) return false;
  }
  return false;
}

hint_writer::hint_writer(segment memory, std::uint64_t keys) : memory_(std::move(memory)) {
  const std::uint64_t buckets = hints::buckets_for(keys);
  shared_store(bucket_count(memory_.data()), 0, std::memory_order_release, "hints.emptied"_point);
  // Whatever a worker before left behind; pages that were never touched cost nothing.
  memory_.punch(hints::first_bucket, index_segment_bytes - hints::first_bucket, "hints.punched"_point);
  buckets_ = buckets;
  // One a tier and instance: the index in front of them is mapped by its own writer.
  const std::uint64_t end = hints::first_bucket + buckets * sizeof(hint_bucket);
  memory_.narrow(index_area_bytes, (end + page_bytes - 1) / page_bytes * page_bytes - index_area_bytes);
  shared_store(bucket_count(memory_.data()), buckets, std::memory_order_release, "hints.opened"_point);
}

hint_bucket& hint_writer::bucket(std::uint64_t number) const noexcept {
  return reinterpret_cast<hint_bucket*>(memory_.data() + hints::first_bucket)[number % buckets_];
}

void hint_writer::add(const block_key& key) noexcept {
  if (buckets_ == 0) return;
  const std::uint32_t tag = hints::tag_of(key);
  const std::uint64_t home = index_reader::home_slot(key, buckets_);
  for (std::uint64_t probe = 0; probe < std::min(hints::max_probes, buckets_); ++probe) {
    for (auto& each : bucket(home + probe).tags) {
      if (each.load(std::memory_order_relaxed) != 0) continue;
      if (probe > 0) {
        shared_add(bucket(home).elsewhere, 1, std::memory_order_relaxed, "hints.elsewhere"_point);
      }
      shared_store(each, tag, std::memory_order_relaxed, "hints.added"_point);
      return;
    }
  }
}

void hint_writer::erase(const block_key& key) noexcept {
  if (buckets_ == 0) return;
  const std::uint32_t tag = hints::tag_of(key);
  const std::uint64_t home = index_reader::home_slot(key, buckets_);
  for (std::uint64_t probe = 0; probe < std::min(hints::max_probes, buckets_); ++probe) {
    for (auto& each : bucket(home + probe).tags) {
      if (each.load(std::memory_order_relaxed) != tag) continue;
      shared_store(each, 0, std::memory_order_relaxed, "hints.erased"_point);
      if (probe > 0) {  // unsigned: minus one
        shared_add(bucket(home).elsewhere, ~std::uint32_t{0}, std::memory_order_relaxed, "hints.back_home"_point);
      }
      return;
    }
  }
}

void hint_writer::clear() noexcept {
  for (std::uint64_t b = 0; b < buckets_; ++b) {
    hint_bucket& here = bucket(b);
    for (auto& each : here.tags) shared_store(each, 0, std::memory_order_relaxed, "hints.cleared"_point);
    shared_store(here.elsewhere, 0, std::memory_order_relaxed, "hints.nowhere_else"_point);
  }
}

}  // namespace cenote::memory
