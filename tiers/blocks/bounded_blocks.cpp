#include "tiers/blocks/bounded_blocks.hpp"

#include <algorithm>
#include <tuple>

#include "tiers/blocks/structures.hpp"
#include "tiers/eviction/lru.hpp"

namespace cenote::blocks {

namespace {

constexpr std::uint32_t most_stuck = 1024;  // then the others are looked at
constexpr tenths held_for = tenths(2);

/// Nothing: the kind has no bound.
std::optional<std::size_t> bound_of(block_kind kind) noexcept {
  if (kind == block_kind::own) return std::nullopt;
  return static_cast<std::size_t>(kind) - 1;
}

}  // namespace

std::uint32_t bounded_order::size() const noexcept {
  std::uint32_t all = 0;
  for (const auto& each : by_kind) all += each->size();
  return all;
}

void bounded_order::note_stuck(boot_time now) noexcept {
  if (++stuck < std::min(size(), most_stuck)) return;
  stuck = 0;
  is_aside = true;
  aside_until = now + held_for;
}

void bounded_order::resume(boot_time now) noexcept {
  if (is_aside && is_due(aside_until, now)) is_aside = false;
}

std::optional<std::uint32_t> bounded_order::victim() const {
  if (shares == nullptr || is_aside) return std::nullopt;
  for (std::size_t kind = 0; kind < bounded_kinds; ++kind) {
    if (!shares->is_over(kind)) continue;
    if (const auto oldest = by_kind[kind]->victim()) return oldest;
  }
  return std::nullopt;
}

void bounded_blocks::equip(pool& group) {
  group.bounded.shares = &shares_;
  for (auto& each : group.bounded.by_kind) each = std::make_unique<eviction::lru>(links_);
}

block_kind bounded_blocks::kind_of(std::uint32_t record) const noexcept {
  const block_kind* const known = kinds_.find(record);
  return known == nullptr ? block_kind::own : *known;
}

void bounded_blocks::prepare(std::uint32_t record, block_kind kind) {
  if (!bound_of(kind)) return;
  links_.cover(record + 1);
  std::ignore = kinds_.make(record);
}

void bounded_blocks::set_kind(std::uint32_t record, block_kind kind) {
  prepare(record, kind);
  if (kinds_.find(record) != nullptr) kinds_[record] = kind;
}

void bounded_blocks::enter(pool& group, std::uint32_t record, boot_time now) {
  const auto kind = bound_of(kind_of(record));
  if (!kind) return;
  group.bounded.by_kind[*kind]->insert(record, 0, count_of(now));
  shares_.used[*kind] += group.stride;
}

void bounded_blocks::leave(pool& group, std::uint32_t record) {
  const auto kind = bound_of(kind_of(record));
  if (!kind) return;
  group.bounded.by_kind[*kind]->forget(record);
  shares_.used[*kind] -= group.stride;
}

void bounded_blocks::touch(pool& group, std::uint32_t record, boot_time now) {
  if (const auto kind = bound_of(kind_of(record))) group.bounded.by_kind[*kind]->touch(record, count_of(now));
}

}  // namespace cenote::blocks
