// The calls of readers.
#include "services/manager/index/instance_index.hpp"
#include "services/manager/index/part_choice.hpp"

namespace cenote::manager {

namespace {

/// Collects the parts that can be read, behind those of the keys before.
class served_parts {
 public:
  served_parts(const read_order& order, lookup_answer& answer) noexcept
      : choice_(order, answer.parts), answer_(answer) {}

  void clear() noexcept {
    choice_.clear();
    answer_.checksums.resize(checksums_);
  }
  [[nodiscard]] static bool has_use(location_state state) noexcept { return state == location_state::serving; }
  void add(const location& place, const extent_info& extent, std::uint64_t specs) {
    if (!choice_.is_usable(extent.storage)) return;
    std::uint32_t checksums = no_checksums;
    if (extent.checksums != nullptr) [[unlikely]] {
      checksums = static_cast<std::uint32_t>(answer_.checksums.size());
      if (!checksum_runs::append_block(extent.checksums, place.position, answer_.checksums)) checksums = no_checksums;
    }
    choice_.add(extent.number, specs, extent.wrote_at, place.position, extent.storage, checksums);
  }

  [[nodiscard]] std::uint64_t specs() const noexcept { return choice_.specs(); }
  void finish(std::uint32_t record) {
    answer_.keys.push_back(choice_.finish(record));
    checksums_ = answer_.checksums.size();
  }

 private:
  part_choice choice_;
  lookup_answer& answer_;
  std::size_t checksums_ = 0;  ///< words of the keys before
};

/// Collects only which specs can be read.
class served_specs {
 public:
  explicit served_specs(const read_order& order) noexcept : order_(order) {}

  void clear() noexcept { specs_ = 0; }
  [[nodiscard]] static bool has_use(location_state state) noexcept { return state == location_state::serving; }
  void add(const location& /*place*/, const extent_info& extent, std::uint64_t specs) noexcept {
    if (order_.rank[extent.storage] != read_order::unusable) specs_ |= specs;
  }

  [[nodiscard]] std::uint64_t specs() const noexcept { return specs_; }

 private:
  const read_order& order_;
  std::uint64_t specs_ = 0;
};

/// Collects all locations of one key behind those of others.
class all_states {
 public:
  explicit all_states(std::vector<key_state>& states) noexcept : states_(states) {}

  void begin(std::size_t key) noexcept {
    key_ = static_cast<std::uint32_t>(key);
    begin_ = states_.size();
  }
  void clear() noexcept { states_.resize(begin_); }
  [[nodiscard]] static bool has_use(location_state /*any*/) noexcept { return true; }
  void add(const location& place, const extent_info& extent, std::uint64_t specs) {
    states_.push_back({.key = key_,
                       .state = place.state,
                       .storage = extent.storage,
                       .position = place.position,
                       .extent = extent.number,
                       .specs = specs,
                       .wrote_at = extent.wrote_at,
                       .checksums = {}});
    if (extent.checksums != nullptr) {
      (void)checksum_runs::append_block(extent.checksums, place.position, states_.back().checksums);
    }
  }

 private:
  std::vector<key_state>& states_;
  std::size_t begin_ = 0;
  std::uint32_t key_ = 0;
};

/// Counts the keys of a prefix.
class prefix_count {
 public:
  explicit prefix_count(const prefix_rule& rule) noexcept : rule_(rule) {}

  /// Whether a key with these specs goes on with the prefix.
  [[nodiscard]] bool take(std::uint64_t specs) noexcept {
    if (specs == 0 || (specs & rule_.all) != rule_.all) return false;
    ++keys_;
    if ((specs & rule_.last) == rule_.last) whole_ = keys_;
    return true;
  }
  /// Up to the last key that may be the last.
  [[nodiscard]] std::size_t whole() const noexcept { return whole_; }

 private:
  const prefix_rule& rule_;
  std::size_t keys_ = 0;
  std::size_t whole_ = 0;
};

/// The first key that is absent; the number of keys if none is.
std::size_t count_present(const record_reader& reader, std::span<const cache_key> keys, const read_order& order) {
  served_specs specs(order);
  std::size_t present = 0;
  reader.walk(keys, specs, [&](std::size_t /*key*/, std::uint32_t record) {
    if (record == no_record || specs.specs() == 0) return false;
    ++present;
    return true;
  });
  return present;
}

/// Where the last window of present keys begins. A window is read from its front: a key that is absent ends all windows
/// that contain it, the earlier it stands the more of them.
std::optional<std::size_t> find_window(const record_reader& reader, std::span<const cache_key> keys, std::size_t window,
                                       const read_order& order) {
  std::size_t end = keys.size();
  std::size_t present = end;  // keys from here to end are present
  while (end >= window) {
    const std::size_t begin = end - window;
    const std::size_t absent = begin + count_present(reader, keys.subspan(begin, present - begin), order);
    if (absent == present) return begin;
    end = absent;
    present = begin;
  }
  return std::nullopt;
}

}  // namespace

std::size_t instance_index::match_prefix(std::span<const cache_key> keys, const read_order& order,
                                         const prefix_rule& rule, lookup_answer& answer) const {
  answer.clear();
  served_parts parts(order, answer);
  prefix_count prefix(rule);
  reader().walk(keys, parts, [&](std::size_t /*key*/, std::uint32_t record) {
    if (record == no_record || !prefix.take(parts.specs())) return false;
    parts.finish(record);
    return true;
  });
  answer.keys.resize(prefix.whole());
  answer.parts.resize(answer.keys.empty() ? 0 : answer.keys.back().first_part + answer.keys.back().parts);
  return prefix.whole();
}

std::size_t instance_index::count_prefix(std::span<const cache_key> keys, const read_order& order,
                                         const prefix_rule& rule, std::vector<std::uint32_t>& records) const {
  records.clear();
  served_specs specs(order);
  prefix_count prefix(rule);
  reader().walk(keys, specs, [&](std::size_t /*key*/, std::uint32_t record) {
    if (record == no_record || !prefix.take(specs.specs())) return false;
    records.push_back(record);
    return true;
  });
  records.resize(prefix.whole());
  return prefix.whole();
}

std::optional<std::size_t> instance_index::match_window(std::span<const cache_key> keys, std::size_t window,
                                                        const read_order& order, lookup_answer& answer) const {
  answer.clear();
  if (window == 0) return std::nullopt;
  // The keys of a window may go until they are read for the answer; then the search starts again behind fewer keys.
  for (std::optional<std::size_t> begin = find_window(reader(), keys, window, order); begin.has_value();
       begin = find_window(reader(), keys, window, order)) {
    read_each(keys.subspan(*begin, window), order, answer);
    const auto absent = std::ranges::find(answer.keys, std::uint32_t{0}, &found_key::parts);
    if (absent == answer.keys.end()) return begin;
    keys = keys.first(*begin + static_cast<std::size_t>(absent - answer.keys.begin()));
  }
  answer.clear();
  return std::nullopt;
}

void instance_index::read_each(std::span<const cache_key> keys, const read_order& order, lookup_answer& answer) const {
  answer.clear();
  served_parts parts(order, answer);
  reader().walk(keys, parts, [&](std::size_t /*key*/, std::uint32_t record) {
    if (parts.specs() == 0) record = no_record;
    parts.finish(record);
    return true;
  });
}

void instance_index::read_states(std::span<const cache_key> keys, std::vector<key_state>& states) const {
  states.clear();
  all_states collector(states);
  collector.begin(0);
  reader().walk(keys, collector, [&](std::size_t key, std::uint32_t /*record*/) {
    collector.begin(key + 1);
    return true;
  });
}

}  // namespace cenote::manager
