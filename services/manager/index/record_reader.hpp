// Reads records beside the writer, without locks and without a trace.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/manager/index/extent_table.hpp"
#include "services/manager/index/key_hash.hpp"
#include "services/manager/index/record_store.hpp"
#include "services/manager/index/slot_table.hpp"
#include "services/manager/index/spec_sets.hpp"

namespace cenote::manager {

/// Finds keys and collects their locations. Any number of threads, each with a collector of its own:
///
///   void clear();                                  forgets what it has
///   bool has_use(location_state) const;            false: the location is not looked at
///   void add(const location&, const extent_info&, std::uint64_t specs);
///
/// The protocol is a sequence lock without its odd half (Boehm, "Can seqlocks get along with programming language
/// memory models?", 2012): the writer stores one word at a time, each with release order, and the sequence of the
/// record grows behind it; a reader loads all with acquire order and then the sequence again. If a load saw a later use
/// of the record, of an overflow node or of an extent's number, then it also makes the growth seen by which the writer
/// ended the use before, and the second look at the sequence finds it.
class record_reader {
 public:
  record_reader(const key_hash& hash, const slot_table& table, const record_store& records, const extent_table& extents,
                const spec_sets& sets) noexcept
      : hash_(hash), table_(table), records_(records), extents_(extents), sets_(sets) {}

  /// Collects the locations of each key in turn and calls `visit(index, record)`, no_record for one that is not there,
  /// until it gives false. The memory of the keys behind comes meanwhile.
  template <class Collector, class Visit>
  void walk(std::span<const cache_key> keys, Collector& collector, Visit&& visit) const {
    std::array<pending_key, ring> pending;
    const std::size_t count = keys.size();
    for (std::size_t step = 0; step < count + slots_ahead; ++step) {
      if (step < count) {
        const std::uint64_t hash = hash_(keys[step]);
        pending[step % ring].hash = hash;
        table_.prefetch(hash);
      }
      if (const std::size_t i = step - (slots_ahead - records_ahead); i < count) fetch_record(pending[i % ring]);
      if (const std::size_t i = step - slots_ahead; i < count) {
        if (!visit(i, read(keys[i], pending[i % ring], collector))) return;
      }
    }
  }
  /// The record that has the key, no_record if none has.
  [[nodiscard]] std::uint32_t find(const cache_key& key) const noexcept {
    const std::uint64_t hash = hash_(key);
    return table_.find(
        hash, [&](std::uint32_t record) { return records_.has_entry(record) && records_.entry(record).has_key(key); });
  }

 private:
  static constexpr std::size_t slots_ahead = 16;   ///< keys between the look at a slot and its prefetch …
  static constexpr std::size_t records_ahead = 8;  ///< … and between those of a record
  static constexpr std::size_t ring = slots_ahead * 2;
  static constexpr int most_attempts = 64;

  struct pending_key {
    std::uint64_t hash = 0;
    std::uint32_t candidate = no_record;
  };

  void fetch_record(pending_key& pending) const noexcept {
    pending.candidate = table_.candidate(pending.hash);
    if (records_.has_entry(pending.candidate)) __builtin_prefetch(&records_.entry(pending.candidate));
  }
  template <class Collector>
  [[nodiscard]] std::uint32_t read(const cache_key& key, const pending_key& pending, Collector& collector) const {
    collector.clear();
    if (collect(pending.candidate, key, collector)) return pending.candidate;
    return table_.find(pending.hash, [&](std::uint32_t record) { return collect(record, key, collector); });
  }
  /// Whether the record has the key. Its locations are in the collector then, or none if it changes all the time: a
  /// miss is always right.
  template <class Collector>
  [[nodiscard]] bool collect(std::uint32_t number, const cache_key& key, Collector& collector) const {
    if (!records_.has_entry(number)) return false;
    const index_record& record = records_.entry(number);
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
      const std::uint32_t sequence = record.sequence.load(std::memory_order_acquire);
      collector.clear();
      if (!record.has_key(key)) return false;
      for (const auto& word : record.locations) collect_word(word, collector);
      if (!collect_overflow(record, sequence, collector)) continue;
      if (record.sequence.load(std::memory_order_acquire) == sequence) return true;
    }
    collector.clear();
    return true;
  }
  /// False if the record has changed: a node may then belong to another one.
  template <class Collector>
  [[nodiscard]] bool collect_overflow(const index_record& record, std::uint32_t sequence, Collector& collector) const {
    for (std::uint32_t link = record.overflow.load(std::memory_order_acquire); link != 0;) {
      const overflow_node& node = records_.node(link - 1);
      for (const auto& word : node.locations) collect_word(word, collector);
      link = node.next.load(std::memory_order_acquire);
      if (record.sequence.load(std::memory_order_acquire) != sequence) return false;
    }
    return true;
  }
  template <class Collector>
  void collect_word(const std::atomic<std::uint64_t>& word, Collector& collector) const {
    const std::uint64_t packed = word.load(std::memory_order_acquire);
    if (packed == 0 || !collector.has_use(state_of(packed))) return;
    const location place = unpack(packed);
    collector.add(place, extents_.get(place.extent), sets_.mask(place.set));
  }

  const key_hash& hash_;
  const slot_table& table_;
  const record_store& records_;
  const extent_table& extents_;
  const spec_sets& sets_;
};

}  // namespace cenote::manager
