#include "tiers/blocks/sum_checks.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tiers/blocks/block_states.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;

bool sum_checks::add(const slab& home, block_ref ref, boot_time now) {
  const block_record& record = state_.record_of(home, ref);
  const bool is_checkable =
      state_.options.bytes_are_host && record.state() == block_state::present && record.checksum();
  if (!is_checkable || !is_due(home.owner->checks_from, now)) return false;
  const auto is_same = [&](const waiting_block& each) {
    return each.instance == home.owner->number && each.ref == ref;
  };
  if (std::ranges::any_of(waiting_, is_same)) return true;
  const auto of_instance = std::ranges::count(waiting_, home.owner->number, &waiting_block::instance);
  if (waiting_.size() >= most_waiting || std::cmp_greater_equal(of_instance, most_of_instance)) return false;
  waiting_.push_back({home.owner->number, ref, record.word.load(std::memory_order_relaxed)});
  return true;
}

/// Null: the block is gone.
slab* sum_checks::find(const waiting_block& waiting) const noexcept {
  const auto owner = state_.instances.find(waiting.instance);
  slab* const home = owner == state_.instances.end() ? nullptr : slab_of(*owner->second, waiting.ref);
  if (home == nullptr) return nullptr;
  const block_record& record = state_.record_of(*home, waiting.ref);
  return record.word.load(std::memory_order_relaxed) == waiting.word && record.checksum() ? home : nullptr;
}

/// The sum, once all of the block was read.
std::optional<std::uint64_t> sum_checks::add_piece(const slab& home, block_ref ref) {
  if (!sum_) sum_ = std::make_unique<running_checksum>();
  const std::uint64_t bytes = pool_of(home).block_bytes;
  const std::uint64_t begin = sum_->bytes();
  sum_->add({home.block(ref) + begin, std::min(piece_bytes, bytes - begin)});
  if (sum_->bytes() < bytes) return std::nullopt;
  return std::exchange(sum_, nullptr)->value();
}

std::optional<removal> sum_checks::step(boot_time now) {
  if (waiting_.empty()) return std::nullopt;
  const waiting_block first = waiting_.front();
  slab* const home = find(first);
  const auto sum = home == nullptr ? std::nullopt : add_piece(*home, first.ref);
  if (home != nullptr && !sum) return std::nullopt;
  sum_.reset();
  waiting_.erase(waiting_.begin());
  if (home == nullptr) return std::nullopt;
  ++state_.counters.copies_checked;
  instance& in = *home->owner;
  if (state_.record_of(*home, first.ref).checksum() != sum) return drop(in, *home, first.ref, now);
  // The other node, or the way there, altered it, and may go on so.
  in.checks_from = now + pause;
  std::erase_if(waiting_, [&](const waiting_block& each) { return each.instance == first.instance; });
  return std::nullopt;
}

removal sum_checks::drop(instance& instance, slab& home, block_ref ref, boot_time now) {
  const block_record& record = state_.record_of(home, ref);
  removal gone{
      .instance = instance.number, .all = false, .keys = {reduce_key(record.get_key().view(), home.what.group)}};
  ++state_.counters.checksum_errors;
  count_wrong(instance, record, now);
  const std::array refs{ref};
  blocks_.forget_blocks(instance, refs, now);
  return gone;
}

void sum_checks::count_wrong(const instance& instance, const block_record& record, boot_time now) {
  instance.payer->pay(&account::wrong, 1);
  const std::uint32_t number = record.owner.load(std::memory_order_relaxed);
  const auto found = std::ranges::find(instance.sessions, number, &session::short_number);
  if (found == instance.sessions.end()) return;
  session& by = **found;
  ++by.wrong_blocks;
  if (by.wrong_lately == 0 || age_of(by.wrong_since, now) > window) {
    by.wrong_since = now;
    by.wrong_lately = 0;
  }
  if (++by.wrong_lately == most_wrong) sessions_.push_back({by.number, by.wrong_blocks});
}

std::vector<wrong_session> sum_checks::take_sessions() noexcept {
  return std::exchange(sessions_, {});
}

}  // namespace cenote::blocks
