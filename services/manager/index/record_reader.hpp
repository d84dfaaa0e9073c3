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

/// The tables of an index, by the first bits of hashes.
using table_parts = std::array<slot_table, std::size_t{1} << slot_table::part_bits>;

[[nodiscard]] inline std::size_t part_of(std::uint64_t hash) noexcept {
  return static_cast<std::size_t>(hash >> (64 - slot_table::part_bits));
}

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
  record_reader(const key_hash& hash, const table_parts& tables, const record_store& records,
                const extent_table& extents, const spec_sets& sets) noexcept
      : hash_(hash), tables_(tables), records_(records), extents_(extents), sets_(sets) {}

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
        tables_[part_of(hash)].prefetch(hash);
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
    return tables_[part_of(hash)].find(hash, [&](std::uint32_t record) { return records_.entry(record).has_key(key); });
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
    pending.candidate = tables_[part_of(pending.hash)].candidate(pending.hash);
    if (pending.candidate != no_record) __builtin_prefetch(&records_.entry(pending.candidate));
  }
  template <class Collector>
  [[nodiscard]] std::uint32_t read(const cache_key& key, const pending_key& pending, Collector& collector) const {
    collector.clear();
    if (pending.candidate != no_record && collect(pending.candidate, key, collector)) return pending.candidate;
    return tables_[part_of(pending.hash)].find(pending.hash,
                                               [&](std::uint32_t record) { return collect(record, key, collector); });
  }
  /// Whether the record has the key. Its locations are in the collector then, or none if it changes all the time: a
  /// miss is always right.
  template <class Collector>
  [[nodiscard]] bool collect(std::uint32_t number, const cache_key& key, Collector& collector) const {
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
  const table_parts& tables_;
  const record_store& records_;
  const extent_table& extents_;
  const spec_sets& sets_;
};

}  // namespace cenote::manager
