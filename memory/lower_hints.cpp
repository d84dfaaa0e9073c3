#include "memory/lower_hints.hpp"

#include <algorithm>

namespace cenote::memory {

namespace {

constexpr std::uint64_t tags_of_a_bucket = 15;

std::atomic<std::uint64_t>& bucket_count(const window& area) noexcept {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(area.base());
}

/// 0: no lower tier, or nonsense.
std::uint64_t buckets_of(const window* area) noexcept {
  if (area == nullptr) return 0;
  const std::uint64_t buckets = bucket_count(*area).load(std::memory_order_acquire);
  return buckets <= hints::max_buckets ? buckets : 0;
}

}  // namespace

std::uint64_t hints::buckets_for(std::uint64_t keys) noexcept {
  const auto wanted =
      static_cast<std::uint64_t>(static_cast<double>(keys) / load / static_cast<double>(tags_of_a_bucket)) + 1;
  return std::min(wanted, max_buckets);
}

bool hint_reader::none() const noexcept {
  return buckets_of(hints_) == 0;
}

bool hint_reader::contains(const block_key& key) const noexcept {
  const std::uint64_t buckets = buckets_of(hints_);
  if (buckets == 0) return false;
  const auto* all =
      reinterpret_cast<const hint_bucket*>(hints_->reach(hints::first_bucket, buckets * sizeof(hint_bucket)));
  if (all == nullptr) return false;  // no address space
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

result<hint_writer> hint_writer::open(shared_file file, std::uint64_t keys) {
  const std::uint64_t buckets = hints::buckets_for(keys);
  auto mapped =
      window::open(file, hints::area, access::read_write, hints::first_bucket + buckets * sizeof(hint_bucket));
  if (!mapped) return std::unexpected(mapped.error());
  hint_writer made;
  made.file_ = std::move(file);
  made.memory_ = std::move(*mapped);
  made.buckets_ = buckets;
  shared_store(bucket_count(made.memory_), 0, std::memory_order_release, "hints.emptied"_point);
  // Whatever a worker before left behind; pages that were never touched cost nothing.
  made.file_.punch(hints::area.offset + hints::first_bucket, hints::area.bytes - hints::first_bucket,
                   "hints.punched"_point);
  shared_store(bucket_count(made.memory_), buckets, std::memory_order_release, "hints.opened"_point);
  return made;
}

hint_bucket& hint_writer::bucket(std::uint64_t number) const noexcept {
  return reinterpret_cast<hint_bucket*>(memory_.base() + hints::first_bucket)[number % buckets_];
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
