#include "worker/publisher/event_batcher.hpp"

#include <bit>
#include <string_view>
#include <utility>

namespace cenote::publishing {

namespace {

void put_number(std::string& target, std::uint64_t value, unsigned bytes) {
  for (; bytes > 0; --bytes) target.push_back(static_cast<char>(value >> (8 * (bytes - 1)) & 0xff));
}

/// Of MessagePack: a small map, an array, a short text, bytes, a small number, a double.
void pack_map(std::string& target, unsigned entries) {
  put_number(target, 0x80U | entries, 1);
}
void pack_array(std::string& target, std::uint32_t elements) {
  if (elements < 16) return put_number(target, 0x90U | elements, 1);
  put_number(target, 0xdd, 1);
  put_number(target, elements, 4);
}
void pack_text(std::string& target, std::string_view text) {
  put_number(target, 0xa0U | text.size(), 1);  // below 32 bytes
  target += text;
}
void pack_bytes(std::string& target, std::span<const std::byte> bytes) {
  put_number(target, 0xc4, 1);
  put_number(target, bytes.size(), 1);
  target.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void pack_double(std::string& target, double value) {
  put_number(target, 0xcb, 1);
  put_number(target, std::bit_cast<std::uint64_t>(value), 8);
}

constexpr std::string_view tag_of(tier_change_kind kind) noexcept {
  switch (kind) {
    case tier_change_kind::stored: return "BlockStored";
    case tier_change_kind::removed: return "BlockRemoved";
    default: return "AllBlocksCleared";
  }
}

}  // namespace

void event_batcher::add(tier_change_kind change, event_medium medium, std::optional<std::uint32_t> group,
                        const full_key& key) {
  const bool joins = !events_.empty() && events_.back().kind == change && events_.back().medium == medium &&
                     events_.back().group == group && events_.back().hashes < most_hashes;
  if (!joins) events_.push_back({change, medium, group, 0, {}});
  ++events_.back().hashes;
  pack_bytes(events_.back().packed, key.view());
}

void event_batcher::clear(event_medium medium) {
  events_.push_back({tier_change_kind::cleared, medium, {}, 0, {}});
}

void event_batcher::pack(std::string& target, const pending_event& change) {
  const bool names_blocks = change.kind != tier_change_kind::cleared;
  pack_map(target, 2U + (names_blocks ? 1U : 0U) + (change.group ? 1U : 0U));
  pack_text(target, "type");
  pack_text(target, tag_of(change.kind));
  if (names_blocks) {
    pack_text(target, "block_hashes");
    pack_array(target, change.hashes);
    target += change.packed;
  }
  pack_text(target, "medium");
  pack_text(target, name_of(change.medium));
  if (!change.group) return;
  pack_text(target, "group_idx");
  put_number(target, *change.group, 1);  // below max_groups
}

std::vector<std::string> event_batcher::take(double timestamp) {
  std::vector<std::string> payloads;
  const std::vector<pending_event> events = std::exchange(events_, {});
  for (std::size_t first = 0; first < events.size();) {
    std::size_t end = first;
    std::uint32_t hashes = 0;
    for (; end < events.size() && (end == first || hashes + events[end].hashes <= most_hashes); ++end)
      hashes += events[end].hashes;
    std::string& payload = payloads.emplace_back();
    pack_array(payload, 3);
    pack_double(payload, timestamp);
    pack_array(payload, static_cast<std::uint32_t>(end - first));
    for (; first < end; ++first) pack(payload, events[first]);
    put_number(payload, 0, 1);  // the rank: a node has none
  }
  return payloads;
}

}  // namespace cenote::publishing
